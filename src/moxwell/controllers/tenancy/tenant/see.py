"""Read the namespace of a tenant, the objects in it, and its security group in every region."""

from typing import Any

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.controllers.tenancy.tenant.firewall import allowed_networks, group_name
from moxwell.controllers.tenancy.tenant.plan import (
    RESOURCES,
    ObservedFirewall,
    ObservedTenantNamespace,
    desired_objects,
    namespace_of,
)
from moxwell.errors import Retryable
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Region, Regions

Json = dict[str, Any]


class TenantObserver:
    """
    Reads tenants.

    ``whole`` is a client that keeps managed fields; without ``regions`` no firewall is read.
    """

    def __init__(self, whole: Reader, regions: Regions | None) -> None:
        self._whole, self._regions = whole, regions

    async def see(self, tenant: Tenant, reader: Reader) -> ObservedTenantNamespace:
        """Everything that the plan of a tenant depends on."""
        name = namespace_of(tenant)
        namespace = await self._whole.find(RESOURCES["Namespace"], name)
        page = await reader.list(Kubernetes, name) if namespace is not None else None
        clusters = tuple(sorted(c.name for c in page.items)) if page else ()
        return ObservedTenantNamespace(
            namespace=namespace,
            clusters=clusters,
            objects=await self._objects(tenant, clusters) if namespace is not None else (),
            firewalls=await self._firewalls(tenant),
        )

    async def _objects(self, tenant: Tenant, clusters: tuple[str, ...]) -> tuple[Json, ...]:
        found = []
        for wanted in desired_objects(tenant, clusters):
            meta, resource = wanted["metadata"], RESOURCES[wanted["kind"]]
            obj = await self._whole.find(resource, meta["name"], meta.get("namespace", ""))
            found += [{**obj, "kind": wanted["kind"]}] if obj is not None else []
        return tuple(found)

    async def _firewalls(self, tenant: Tenant) -> tuple[ObservedFirewall, ...] | None:
        if self._regions is None:
            return None
        if not allowed_networks(tenant) and not tenant.deleting:
            return ()
        name = group_name(namespace_of(tenant))
        return tuple([await _firewall(region, name) for region in self._regions.values()])


async def _firewall(region: Region, name: str) -> ObservedFirewall:
    firewall = region.reader.firewall
    try:
        group = next((g for g in await firewall.groups() if g.group == name), None)
        rules = await firewall.group_rules(name) if group is not None else ()
    except Retryable as error:
        return ObservedFirewall(region=region.name, error=str(error))
    return ObservedFirewall(region=region.name, group=group, rules=tuple(rules))
