"""Reads the namespace of a tenant, the objects in it, and its security group in every region."""

from dataclasses import replace
from typing import Any

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.tenancy.annotations import MADE
from moxwell.controllers.tenancy.tenant import isolation
from moxwell.controllers.tenancy.tenant.firewall import MADE_GROUP, group_name, has_firewall
from moxwell.controllers.tenancy.tenant.isolation import ObservedIsolation
from moxwell.controllers.tenancy.tenant.plan import (
    RESOURCES,
    ObservedFirewall,
    ObservedTenantNamespace,
    desired_objects,
    namespace_of,
)
from moxwell.controllers.tenancy.tenant.see_isolation import IsolationObserver
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
        kept = MADE_GROUP in _made(namespace)
        seen = ObservedTenantNamespace(
            namespace=namespace,
            clusters=clusters,
            firewalls=await self._firewalls(tenant, kept=kept),
            group_used=kept and await _group_used(reader, name),
            isolations=await self._isolations(tenant, reader, namespace),
        )
        if namespace is None:
            return seen
        return replace(seen, objects=await self._objects(tenant, seen))

    async def _isolations(
        self, tenant: Tenant, reader: Reader, namespace: Json | None
    ) -> tuple[ObservedIsolation, ...] | None:
        """What the tenant is to have or had; a tenant without any costs no requests."""
        if self._regions is None:
            return None
        what = isolation.wanted(tenant) | (_made(namespace) - {MADE_GROUP})
        if tenant.deleting and namespace is None:
            what = frozenset({isolation.POOL, isolation.VNET, isolation.TOKEN})
        if not what:
            return ()
        observer = IsolationObserver(reader, namespace_of(tenant), deleting=tenant.deleting)
        return tuple([await observer.see(region, what) for region in self._regions.values()])

    async def _objects(self, tenant: Tenant, seen: ObservedTenantNamespace) -> tuple[Json, ...]:
        found = []
        for wanted in desired_objects(tenant, seen.clusters, seen):
            meta, resource = wanted["metadata"], RESOURCES[wanted["kind"]]
            obj = await self._whole.find(resource, meta["name"], meta.get("namespace", ""))
            found += [{**obj, "kind": wanted["kind"]}] if obj is not None else []
        return tuple(found)

    async def _firewalls(
        self, tenant: Tenant, *, kept: bool
    ) -> tuple[ObservedFirewall, ...] | None:
        """The groups of a tenant that has rules, or had some until now (``kept``)."""
        if self._regions is None:
            return None
        if not has_firewall(tenant) and not tenant.deleting and not kept:
            return ()
        name = group_name(namespace_of(tenant))
        return tuple([await _firewall(region, name) for region in self._regions.values()])


def _made(namespace: Json | None) -> frozenset[str]:
    """The objects in Proxmox that the annotation of the namespace lists."""
    annotations = ((namespace or {}).get("metadata") or {}).get("annotations") or {}
    return frozenset(filter(None, annotations.get(MADE, "").split(",")))


async def _group_used(reader: Reader, namespace: str) -> bool:
    """Whether a machine of the tenant still refers to its security group."""
    group = group_name(namespace)
    machines = await reader.list(ProxmoxMachine, namespace)
    return any(group in machine.spec.firewall_groups for machine in machines.items)


async def _firewall(region: Region, name: str) -> ObservedFirewall:
    firewall = region.reader.firewall
    try:
        group = next((g for g in await firewall.groups() if g.group == name), None)
        rules = await firewall.group_rules(name) if group is not None else ()
    except Retryable as error:
        return ObservedFirewall(region=region.name, error=str(error))
    return ObservedFirewall(region=region.name, group=group, rules=tuple(rules))
