"""``tenancy.tenant``: keeps the namespace, quota, roles and firewall groups of each tenant."""

from collections.abc import Sequence

from moxwell.api.cozystack import Tenant, TenantStatus
from moxwell.controllers.tenancy.tenant.plan import (
    ObservedTenantNamespace,
    TenantChanges,
    TenantMove,
    describe_tenant,
    plan_tenant,
)
from moxwell.controllers.tenancy.tenant.see import TenantObserver
from moxwell.errors import Bug
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Regions
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

NAME = "tenancy.tenant"


class TenantReconciler(Reconciler[Tenant, ObservedTenantNamespace, TenantMove, TenantStatus]):
    """One pass per tenant; without ``regions`` a tenant cannot have a firewall."""

    kind = Tenant
    finalizer = "apps.cozystack.io/tenant"
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, regions: Regions | None = None) -> None:
        self._kube, self._regions = kube, regions
        self._observer = TenantObserver(kube.with_managed_fields(), regions)

    async def see(self, obj: Tenant, reader: Reader) -> ObservedTenantNamespace:
        return await self._observer.see(obj, reader)

    def plan(self, obj: Tenant, seen: ObservedTenantNamespace) -> TenantMove:
        return plan_tenant(obj, seen)

    async def act(self, move: TenantMove) -> None:
        if not isinstance(move, TenantChanges):
            return
        for step in move.steps:
            if self._regions is None:
                raise Bug("a firewall step without regions")
            await self._regions[step.region].perform(step, NAME)
        await Writes(move.writes).perform(self._kube)

    def describe(
        self, obj: Tenant, seen: ObservedTenantNamespace, move: TenantMove
    ) -> TenantStatus | None:
        return None if obj.deleting else describe_tenant(obj, seen)
