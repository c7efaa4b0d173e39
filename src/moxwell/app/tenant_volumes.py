"""
What the volumes of tenant clusters use of the quotas of their tenants, in lab and standalone mode.

The disks are counted in Proxmox, by the key of the tenant in their names, because the
PersistentVolumes of a tenant are its own to change. A volume that is being created or expanded
counts from the moment it is allowed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.infra.machine.quota import machine_usage
from moxwell.controllers.tenancy.cluster.see import NAMESPACES
from moxwell.csi import listing
from moxwell.csi.driver import Driver
from moxwell.errors import Busy
from moxwell.pve.reservations import Reservations
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.scheduling import quota
from moxwell.scheduling.quota import Amounts, Limits

COUNT_SECONDS = 60.0


class VolumeQuotaExceeded(Busy):
    """The quota of the tenant has no room for a volume."""

    reason = "QuotaExceeded"


class TenantVolumes:
    """The bytes of volumes by cluster, and the check before a volume is created or expanded."""

    def __init__(self, caches: Caches, reservations: Reservations, clock: Clock) -> None:
        """``caches`` are those of the management API."""
        self._namespaces: Cache[Any] = caches.of(NAMESPACES)
        self._machines: Cache[ProxmoxMachine] = caches.of(ProxmoxMachine)
        self._clusters: Cache[Cluster] = caches.of(Cluster)
        self._reservations, self._clock = reservations, clock
        self._drivers: dict[Key, Driver] = {}
        self._disks: dict[Key, dict[str, int]] = {}  # bytes by volume id, by cluster
        self._pending: dict[tuple[Key, str], int] = {}  # final bytes, by cluster and name

    def add(self, cluster: Key, driver: Driver) -> None:
        """Count the volumes of a cluster from now on."""
        self._drivers[cluster] = driver

    def forget(self, cluster: Key) -> None:
        """A control plane stopped; its disks stay counted until the cluster is deleted."""
        self._drivers.pop(cluster, None)

    async def run(self, cluster: Key) -> None:
        """Count the disks of a cluster again and again."""
        while True:
            await self._count(cluster)
            await self._clock.sleep(COUNT_SECONDS)

    def by_cluster(self) -> dict[tuple[str, str], int]:
        """The bytes of the volumes of each cluster."""
        keys = {*self._disks, *(cluster for cluster, _ in self._pending)}
        there = [key for key in keys if self._clusters.find(key) is not None]
        return {(key.namespace, key.name): self._bytes(key) for key in there}

    def in_tenant(self, namespace: str) -> int:
        """The bytes of all volumes of a tenant and of those below it."""
        rows = self.by_cluster().items()
        return sum(size for (space, _), size in rows if quota.belongs_to(space, namespace))

    def _bytes(self, cluster: Key) -> int:
        """Its disks, and what pending volumes will have beyond what is counted already."""
        pending = [(name, size) for (key, name), size in self._pending.items() if key == cluster]
        coming = sum(max(0, size - self._present(cluster, name)) for name, size in pending)
        return sum(self._disks.get(cluster, {}).values()) + coming

    @asynccontextmanager
    async def room(self, cluster: Key, name: str, size: int) -> AsyncIterator[None]:
        """
        Allow a volume of ``size`` bytes while the block runs; ``name`` is in its volume id.

        Raises VolumeQuotaExceeded if a tenant has no room. A volume that exists counts with the
        difference.
        """
        limits = self._limits(cluster.namespace)
        if not limits:
            yield
            return
        for key in list(self._drivers):
            if any(quota.belongs_to(key.namespace, tenant) for tenant in limits):
                await self._count(key)
        present = self._present(cluster, name)  # nothing is awaited until it is pending
        self._check(cluster, limits, size, present)
        self._pending[cluster, name] = size
        try:
            yield
            await self._count(cluster)
        finally:
            self._pending.pop((cluster, name), None)

    def _check(self, cluster: Key, limits: dict[str, Limits], size: int, present: int) -> None:
        found: list[quota.Excess] = []
        for tenant, limit in limits.items():
            machines = machine_usage(self._machines, self._reservations, tenant)
            used = machines.storage + self.in_tenant(tenant) - present
            found += quota.excesses(
                tenant,
                limit,
                asked=Amounts(storage=size),
                used=Amounts(storage=used),
                before=Amounts(storage=present),
            )
        if found:
            raise VolumeQuotaExceeded(quota.sentence(found))

    def _present(self, cluster: Key, name: str) -> int:
        rows = self._disks.get(cluster, {}).items()
        return sum(size for volume, size in rows if name in volume)

    def _limits(self, namespace: str) -> dict[str, Limits]:
        found: dict[str, Limits] = {}
        for tenant in quota.tenant_namespaces(namespace):
            space = self._namespaces.find(Key("", tenant)) or {}
            limits = quota.read_annotation(space.get("metadata") or {})
            if "storage" in limits:
                found[tenant] = limits
        return found

    async def _count(self, cluster: Key) -> None:
        driver = self._drivers.get(cluster)
        if driver is not None:
            rows = await listing.list_volumes(driver)
            self._disks[cluster] = {str(disk.id): disk.size for disk, _ in rows}
