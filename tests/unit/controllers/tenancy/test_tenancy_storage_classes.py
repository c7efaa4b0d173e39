"""The StorageClasses of a tenant cluster follow the storages of its regions."""

from typing import Any

from moxwell.controllers.tenancy.storage_classes.controller import StorageClassReconciler
from moxwell.controllers.tenancy.storage_classes.plan import CLASSES, DEFAULT_CLASS
from moxwell.controllers.tenancy.storage_classes.see import REGION
from moxwell.kube.client import Kube
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.values import SecretValue
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport

NODE = {"metadata": {"name": "n", "labels": {REGION: "a"}}}


class World:
    """A region with storages, and a tenant cluster with one node in it."""

    def __init__(self) -> None:
        self.storages = [storage("local", content="iso"), storage("lvm"), storage("ceph", shared=1)]
        auth = TokenAuth("u@pve!t", SecretValue("s"))
        config = RegionConfig(region="a", urls=("https://x",), auth=auth)
        self.regions = Regions([config], LoopClock(), connect=self._connect)
        self.fake = FakeKube(LoopClock())
        self.kube = Kube(self.fake)
        self.classes = StorageClassReconciler(self.kube, self.regions, "csi")

    def _connect(self, _: RegionConfig) -> ScriptedTransport:
        return ScriptedTransport(lambda *_: self.storages, region="a")

    async def look(self) -> float | None:
        await self.regions["a"].inventory.refresh()
        return await self.reconcile()

    async def reconcile(self) -> float | None:
        seen = await self.classes.see(NODE, self.kube)
        move = self.classes.plan(NODE, seen)
        await self.classes.act(move)
        return self.classes.requeue_after(NODE, seen, move)

    def names(self) -> set[str]:
        return {c["metadata"]["name"] for c in self.fake.objects("storageclasses", CLASSES.group)}


def storage(name: str, *, shared: int = 0, content: str = "images") -> dict[str, Any]:
    return {"id": f"storage/pve1/{name}", "type": "storage", "node": "pve1", "storage": name,
            "content": content, "shared": shared, "status": "available", "disk": 0,
            "maxdisk": 10, "plugintype": "dir"}  # fmt: skip


def test_a_storage_that_is_added_later_gets_its_class() -> None:
    async def story() -> None:
        world = World()
        assert await world.look() == 60.0
        assert world.names() == {"proxmox-lvm", "proxmox-ceph"}
        world.storages.append(storage("new", shared=1))
        await world.look()
        assert world.names() == {"proxmox-lvm", "proxmox-ceph", "proxmox-new"}
        found = {
            c["metadata"]["name"]: c for c in world.fake.objects("storageclasses", CLASSES.group)
        }
        marked = [n for n, c in found.items() if c["metadata"].get("annotations")]
        assert marked == ["proxmox-ceph"]
        assert found["proxmox-ceph"]["metadata"]["annotations"] == {DEFAULT_CLASS: "true"}

    run_virtual(story())


def test_a_deleted_class_is_not_created_again() -> None:
    async def story() -> None:
        world = World()
        await world.look()
        await world.kube.delete(CLASSES, "proxmox-lvm")
        await world.look()
        assert world.names() == {"proxmox-ceph"}

    run_virtual(story())


def test_a_region_that_is_not_synced_is_looked_at_soon() -> None:
    async def story() -> None:
        world = World()
        assert await world.reconcile() == 5.0
        assert world.names() == set()

    run_virtual(story())
