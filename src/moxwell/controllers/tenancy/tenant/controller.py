"""``tenancy.tenant``: keeps the namespace, quota, roles and firewall groups of each tenant."""

import base64
from collections.abc import Sequence
from typing import Any

from moxwell.api.cozystack import Tenant, TenantStatus
from moxwell.controllers.tenancy.tenant.isolation import secret_name
from moxwell.controllers.tenancy.tenant.plan import (
    ObservedTenantNamespace,
    TenantChanges,
    TenantMove,
    describe_tenant,
    plan_tenant,
)
from moxwell.controllers.tenancy.tenant.see import TenantObserver
from moxwell.controllers.tenancy.tenant.see_isolation import SECRETS
from moxwell.errors import Bug
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.config import RegionConfig
from moxwell.pve.regions import Regions
from moxwell.pve.steps import TenantToken
from moxwell.pve.values import SecretValue
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Writes

NAME = "tenancy.tenant"


def token_secret(config: RegionConfig, token: TenantToken, secret: SecretValue) -> dict[str, Any]:
    """The Secret of a tenant's token, in the form of a ``credentialsRef``."""
    data = {
        "url": config.urls[0],
        "token": token.token_id,
        "secret": secret.reveal(),
        "fingerprint": config.fingerprint,
        "root_ca": config.ca_pem,
    }
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items() if v}
    meta = {"name": secret_name(token.region), "namespace": token.name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": encoded}


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
                raise Bug("a step in Proxmox without regions")
            await self._regions[step.region].perform(step, NAME)
        for token in move.tokens:
            await self._issue(token)
        await Writes(move.writes).perform(self._kube)

    async def _issue(self, token: TenantToken) -> None:
        """Make a token and store its secret; if this is interrupted, the next pass replaces it."""
        if self._regions is None:
            raise Bug("a token without regions")
        region = self._regions[token.region]
        secret = await token.issue(region.writer(token.owned))
        await self._kube.apply(token_secret(region.config, token, secret), SECRETS, force=True)

    def describe(
        self, obj: Tenant, seen: ObservedTenantNamespace, move: TenantMove
    ) -> TenantStatus | None:
        return None if obj.deleting else describe_tenant(obj, seen)
