"""Volumes of tenant clusters count for the quota of their tenant; on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.app.tenant_storage import InProcessPlugin, TenantStorage
from moxwell.app.tenant_volumes import TenantVolumes, VolumeQuotaExceeded
from moxwell.controllers.tenancy.cluster.see import NAMESPACES
from moxwell.embedded.controllermanager.storage.plugin import VolumeRequest
from moxwell.pve.reservations import Reservations
from moxwell.runtime.key import Key
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.scheduling.quota import QUOTA
from moxwell.testing.cached_worlds import open_store
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual

GIB = 1 << 30
RED = Key("tenant-red", "c1")


@dataclass
class World:
    """A management API with a tenant, and the volume plugin of its cluster."""

    volumes: TenantVolumes
    plugin: InProcessPlugin

    async def create(self, name: str, gib: int) -> Any:
        request = VolumeRequest(
            name=name,
            size=gib * GIB,
            modes=("ReadWriteOnce",),
            fs_type="ext4",
            block=False,
            parameters={"storage": "local-lvm"},
            segments=({"topology.kubernetes.io/region": "r1"},),
        )
        return await self.plugin.create(request)


async def _objects(kube: Any, limit: str) -> None:
    meta = {"name": RED.namespace, "annotations": {QUOTA: f'{{"storage": "{limit}"}}'}}
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}, NAMESPACES)
    head = {"apiVersion": Cluster.resource.api_version, "kind": "Cluster"}
    own = {"name": RED.name, "namespace": RED.namespace}
    await kube.create({**head, "metadata": own, "spec": {}}, Cluster.resource)
    kind = ProxmoxMachine.resource
    spec = {"virtualMachineID": 900, "disks": {"bootVolume": {"sizeGb": 20}}}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {**own, "name": "m"}}
    await kube.create({**body, "spec": spec}, kind)


@asynccontextmanager
async def world(folder: Path, limit: str) -> AsyncIterator[World]:
    stage = CsiEnvironment(folder)
    async with open_store(stage.clock) as store, stage.running(regions=("r1",)):
        settings = ManagerSettings(elect=False, identity="test")
        management = assemble(store, stage.clock, settings)
        await _objects(management.kube, limit)
        volumes = TenantVolumes(management.manager.caches, Reservations(), stage.clock)
        running = asyncio.create_task(management.manager.caches.run())
        await management.manager.caches.wait_synced()
        storage = TenantStorage(stage.driver.regions, stage.clock, volumes=volumes)
        driver = storage.driver(management)
        volumes.add(RED, driver)
        try:
            yield World(volumes, InProcessPlugin(driver, lambda n, s: volumes.room(RED, n, s)))
        finally:
            running.cancel()
            await asyncio.wait([running])
    await stage.close()


def test_volumes_stop_at_the_quota_of_the_tenant(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, "26Gi") as w:
            first = await w.create("pvc-a", 4)
            assert w.volumes.in_tenant("tenant-red") == 4 * GIB
            await w.create("pvc-a", 4)  # a repeated call creates nothing
            assert w.volumes.in_tenant("tenant-red") == 4 * GIB
            said = "storage: 3Gi asked, 24Gi used by others, limit 26Gi"
            with pytest.raises(VolumeQuotaExceeded, match=said):
                await w.create("pvc-b", 3)
            await w.plugin.expand(first.handle, 6 * GIB, block=False)
            with pytest.raises(VolumeQuotaExceeded, match="7Gi asked, 20Gi used"):
                await w.plugin.expand(first.handle, 7 * GIB, block=False)
            await w.plugin.delete(first.handle)
            await w.create("pvc-b", 6)

    run_virtual(story())


def test_volumes_at_once_do_not_share_the_last_room(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path, "25Gi") as w:
            made = [w.create(f"pvc-{n}", 2) for n in "abcd"]
            results = await asyncio.gather(*made, return_exceptions=True)
            refused = [r for r in results if isinstance(r, VolumeQuotaExceeded)]
            assert len(refused) == 2, results
            assert w.volumes.by_cluster() == {("tenant-red", "c1"): 4 * GIB}

    run_virtual(story())
