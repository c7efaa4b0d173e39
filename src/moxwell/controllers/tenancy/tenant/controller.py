"""The loop over tenants."""

from collections.abc import Sequence

from moxwell.api.conditions import Condition
from moxwell.api.cozystack import Kubernetes, Tenant, TenantStatus
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.annotations import TENANT_LABEL
from moxwell.controllers.tenancy.tenant import plan
from moxwell.controllers.tenancy.tenant.firewall import Walls, networks
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 5.0
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "Namespace": Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    "ResourceQuota": Resource("", "v1", "resourcequotas", "ResourceQuota"),
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
}
MANAGER = "moxwell-tenancy"


class TenantReconciler:
    """Keeps each tenant's namespace, quota and rights."""

    kind = Tenant
    finalizer = "apps.cozystack.io/tenant"
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, walls: Walls | None = None) -> None:
        self._kube, self._walls = kube, walls

    async def reconcile(self, tenant: Tenant) -> Outcome[TenantStatus]:
        space = plan.namespace_of(tenant)
        found = await self._kube.find(RESOURCES["Namespace"], space)
        owner = ((found or {}).get("metadata") or {}).get("labels", {}).get(TENANT_LABEL)
        if found is not None and owner != tenant.name:
            raise Invalid(f"namespace {space} is there already and belongs to somebody else")
        if tenant.deleting:
            return await self._unmake(space, there=found is not None)
        silent = await self._wall(tenant, space)
        clusters = await self._kube.list(Kubernetes, space) if found is not None else None
        names = [c.name for c in clusters.items] if clusters else []
        for obj in plan.desired_objects(tenant, names):
            await self._kube.apply(obj, RESOURCES[obj["kind"]], manager=MANAGER, force=True)
        return Outcome(_status(tenant, space, silent), again=POLL_SECONDS * (1 if silent else 12))

    async def _wall(self, tenant: Tenant, space: str) -> list[str]:
        """The wall stands before any cluster is told to be behind it."""
        allowed = networks(tenant)
        if not allowed:
            return []
        if self._walls is None:
            raise Invalid("spec.network.allowFrom needs Proxmox regions, and none are known here")
        return await self._walls.keep(space, allowed)

    async def _unmake(self, space: str, *, there: bool) -> Outcome[TenantStatus]:
        """The namespace goes with everything in it; clusters in it take their machines along."""
        if there:
            await self._kube.delete(RESOURCES["Namespace"], space)
        elif self._walls is not None:
            await self._walls.remove(space)
        return Outcome(None, again=POLL_SECONDS, settled=not there)


def _status(tenant: Tenant, space: str, silent: list[str]) -> TenantStatus:
    ready = Condition(type="Ready", status="True", reason="Ready")
    if silent:
        said = f"the firewall is not as it should be: {'; '.join(silent)}"
        ready = Condition(type="Ready", status="False", reason="RegionUnreachable", message=said)
    return TenantStatus(
        conditions=(ready,), namespace=space, observed_generation=tenant.metadata.generation
    )
