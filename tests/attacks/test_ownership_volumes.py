"""A tenant cannot delete, attach, expand, copy or read disks of others by a volume handle."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.api.kinds import Resource
from moxwell.csi import driver as drivers
from moxwell.csi.cluster_guests import ClusterGuests, GuestNotBound
from moxwell.csi.controller import ControllerService
from moxwell.csi.driver import Driver, DriverSettings
from moxwell.csi.ids import VolumeId, get_volume, tenant_key_in
from moxwell.csi.journal import MemoryJournal
from moxwell.csi.migrate import Migration
from moxwell.csi.ownership import ForeignVolume, StaticVolume
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.csi.static_volumes import parse_by_cluster
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import Invalid, Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.state import SimVolume
from moxwell.pve.ownership import Foreign
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.csi_calls import GIB
from moxwell.testing.loop import run_virtual

Call = Callable[[ControllerService, str], Awaitable[object]]
EARLIER = "vm-9999-pvc-6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d"
UNATTACHED = "vm-102-disk-7"
BACKUPS = "vm-9999-backups"


def _volume(handle: str) -> csi.Volume:
    return csi.Volume(volume_id=handle)


def _snapshot(handle: str) -> csi.Snapshot:
    return csi.Snapshot(snapshot_id=handle)


OPERATIONS: dict[str, Call] = {
    "delete": lambda c, h: calls.delete(c, _volume(h)),
    "attach": lambda c, h: calls.attach(c, _volume(h), 101),
    "detach": lambda c, h: calls.detach(c, _volume(h), 101),
    "expand": lambda c, h: calls.expand(c, _volume(h), 50),
    "modify": lambda c, h: calls.modify(c, _volume(h), backup="true"),
    "snapshot": lambda c, h: calls.snapshot(c, "stolen", _volume(h)),
    "copy": lambda c, h: calls.snapshot(c, "stolen", _volume(h), snapshotMode="copy"),
    "clone": lambda c, h: calls.create(c, "pvc-stolen", source=calls.of_volume(_volume(h))),
    "restore": lambda c, h: calls.create(
        c, "pvc-stolen", source=calls.of_snapshot(_snapshot(f"{h}@night"))
    ),
    "delete snapshot": lambda c, h: calls.unsnapshot(c, _snapshot(h)),
    "delete native snapshot": lambda c, h: calls.unsnapshot(c, _snapshot(f"{h}@night")),
    "read": lambda c, h: c.controller_get_volume(csi.ControllerGetVolumeRequest(volume_id=h)),
    "health": lambda c, h: c.controller_get_volume_health(
        csi.ControllerGetVolumeHealthRequest(volume_id=h)
    ),
}

MISSING_IS_ENOUGH = ("restore",)  # the snapshot does not exist for this tenant


class Victims:
    """Disks of tenant a, of a guest, of an earlier version and of nobody."""

    def __init__(self, env: CsiEnvironment) -> None:
        self.env = env
        self.handles = [f"r1//ceph/{name}" for name in self._put("ceph")]

    def _put(self, storage: str) -> list[str]:
        names = [EARLIER, UNATTACHED, BACKUPS]
        volumes = self.env.world().storages[storage].volumes_on("r1-h0")
        for name in names:
            vmid = int(name.split("-")[1])
            volumes[name] = SimVolume(name, "raw", "images", GIB, vmid=vmid)
        return names

    async def create(self) -> None:
        """Create volumes of tenant a of every kind: plain, with snapshot, clone, full copy."""
        control = self.env.controller
        plain = await calls.create(control, "pvc-1")
        local = await calls.create(control, "pvc-2", "local-lvm", zone="r1-h0")
        await calls.snapshot(control, "night", local)
        clone = await calls.create(
            control, "pvc-3", "local-lvm", zone="r1-h0", source=calls.of_volume(local)
        )
        zfs = await calls.create(control, "pvc-4", "local-zfs", zone="r1-h0")
        copy = await calls.snapshot(control, "full", zfs)
        self.handles += [v.volume_id for v in (plain, local, clone, zfs)] + [copy.snapshot_id]


def fingerprint(env: CsiEnvironment) -> dict[str, Any]:
    """Everything that an operation could change."""
    world = env.world()
    disks = {
        f"{storage.name}/{host}/{volume.name}": (volume.size, volume.content_id)
        for storage in world.storages.values()
        for host, volumes in storage.volumes.items()
        for volume in volumes.values()
    }
    guests = {vmid: (dict(g.conf), dict(g.pending)) for vmid, g in world.guests.items()}
    return {"disks": disks, "guests": guests}


def attacker(env: CsiEnvironment, **how: Any) -> Driver:
    """The driver of tenant b on the same Proxmox, with the same driver name and VMID."""
    chosen = DriverSettings(tenant="b", **how)
    return drivers.assemble(env.driver.regions, env.clock, settings=chosen)


def run(folder: Path, story: Callable[[CsiEnvironment, Victims], Awaitable[None]]) -> None:
    async def main() -> None:
        env = CsiEnvironment(folder)
        async with env.running(settings=DriverSettings(tenant="a"), regions=("r1",)):
            victims = Victims(env)
            await victims.create()
            await story(env, victims)
        await env.close()

    run_virtual(main())


def test_no_operation_touches_a_volume_of_another_owner(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        control, before = ControllerService(attacker(env)), fingerprint(env)
        start = len(env.sent())
        for handle in victims.handles:
            for name, call in OPERATIONS.items():
                try:
                    await call(control, handle)
                except ForeignVolume:
                    continue
                except Missing:
                    assert name in MISSING_IS_ENOUGH
                    continue
                assert name in ("detach", "delete snapshot", "delete native snapshot"), name
        writes = [(m, p) for m, p in env.sent()[start:] if m != "GET"]
        assert writes == []
        assert fingerprint(env) == before
        assert await calls.volumes(control) == []
        assert await calls.snapshots(control) == []

    run(tmp_path, story)


PARTS = st.sampled_from(
    ["pvc-1", "pvc-2", "t", "-", "vm-9999-", "vm-102-", "disk-0", "disk-7", ".raw", "\n", "/", ".."]
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    cases=st.lists(
        st.tuples(
            st.sampled_from(sorted(OPERATIONS)), st.integers(0, 7), st.lists(PARTS, max_size=4)
        ),
        min_size=10,
        max_size=30,
    )
)
def test_random_handles_never_change_what_is_not_owned(
    cases: list[tuple[str, int, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        driver = attacker(env)
        control, own = ControllerService(driver), await driver.ownership.key()
        mine = await calls.create(control, "pvc-mine")
        before = fingerprint(env)
        for name, index, parts in cases:
            target = victims.handles[index % len(victims.handles)]
            handle = target + "".join(parts) if parts else target
            if "t" in parts:
                handle = f"{target}-t{own}"
            try:
                await OPERATIONS[name](control, handle)
            except MoxwellError:
                continue
        after = fingerprint(env)
        for disk, state in before["disks"].items():
            assert after["disks"].get(disk) == state
        new = set(after["disks"]) - set(before["disks"])
        assert all(tenant_key_in(disk.rpartition("/")[2]) == own for disk in new)
        assert after["guests"] == before["guests"]
        assert mine.volume_id in await calls.volumes(control)

    run(tmp_path_factory.mktemp("volumes"), story)


def test_a_static_volume_needs_a_grant_and_is_never_deleted(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        handle = f"r1//ceph/{UNATTACHED}"
        with pytest.raises(ForeignVolume, match="staticVolumes"):
            await calls.attach(env.controller, _volume(handle), 101)
        control = ControllerService(attacker(env, static_volumes=("r1//ceph/vm-102-disk-7",)))
        await calls.attach(control, _volume(handle), 101)
        await calls.detach(control, _volume(handle), 101)
        with pytest.raises(StaticVolume, match="Retain"):
            await calls.delete(control, _volume(handle))
        with pytest.raises(ForeignVolume):
            await calls.attach(control, _volume(f"r1//ceph/{BACKUPS}"), 101)
        assert UNATTACHED in env.world().storages["ceph"].volumes_on("r1-h0")

    run(tmp_path, story)


def test_volumes_of_proxmox_csi_plugin_need_a_setting(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        control = ControllerService(attacker(env, own_by_prefix=True))
        await calls.delete(control, _volume(f"r1//ceph/{EARLIER}"))
        assert EARLIER not in env.volumes("ceph")
        for handle in victims.handles:
            if tenant_key_in(handle):
                with pytest.raises(ForeignVolume):
                    await calls.delete(control, _volume(handle))

    run(tmp_path, story)


def _claim(name: str, volume: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": volume,
        "storageClassName": "x",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": spec,
    }


def _pv(name: str, handle: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "csi.moxwell.dev", "volumeHandle": handle},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


async def _earlier_volume(env: CsiEnvironment, kube: Kube, name: str) -> VolumeId:
    """A bound claim with a disk as an earlier version named it."""
    claim = await kube.create(_claim(name, f"pv-{name}"), CLAIMS)
    disk = f"vm-9999-pvc-{claim['metadata']['uid']}"
    volumes = env.world().storages["ceph"].volumes_on("r1-h0")
    volumes[disk] = SimVolume(disk, "raw", "images", GIB, vmid=9999)
    await kube.create(_pv(f"pv-{name}", f"r1//ceph/{disk}"), VOLUMES)
    return get_volume(f"r1//ceph/{disk}")


def test_volumes_of_earlier_versions_stay_usable_for_their_tenant_only(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        record = MemoryJournal()
        async with (
            EmbeddedApiServer(clock=env.clock) as one,
            EmbeddedApiServer(clock=env.clock) as two,
        ):
            volume = await _earlier_volume(env, Kube(one), "data")
            await Kube(two).create(_pv("stolen", str(volume)), VOLUMES)
            await Kube(two).create(_claim("stolen", "stolen"), CLAIMS)
            made = [
                drivers.assemble(env.driver.regions, env.clock, kube=Kube(store), record=record)
                for store in (one, two)
            ]
            for driver in made:
                await driver.ownership.earlier.sweep()
            own, foreign = (ControllerService(driver) for driver in made)
            await calls.attach(own, _volume(str(volume)), 101)
            await calls.detach(own, _volume(str(volume)), 101)
            await Kube(one).delete(CLAIMS, "data", "default")
            with pytest.raises(ForeignVolume):
                await calls.delete(foreign, _volume(str(volume)))
            await calls.delete(own, _volume(str(volume)))
            assert volume.disk not in env.volumes("ceph")

    run(tmp_path, story)


def test_a_migration_does_not_move_a_foreign_disk(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, victims: Victims) -> None:
        async with EmbeddedApiServer(clock=env.clock) as store:
            kube = Kube(store)
            handle = next(h for h in victims.handles if "local-lvm" in h)
            await kube.create(_pv("pv-x", handle), VOLUMES)
            await kube.create(_claim("x", "pv-x"), CLAIMS)
            driver = drivers.assemble(env.driver.regions, env.clock, kube=kube)
            before = fingerprint(env)
            with pytest.raises(ForeignVolume):
                await Migration(driver, kube).run("default", "x", "r1-h1")
            entry = {"source": handle, "host": "r1-h1", "target": handle, "pv": "{}", "pvc": "{}"}
            await driver.journal.put("migrate:default/x", entry)
            with pytest.raises(ForeignVolume):
                await Migration(driver, kube).run("default", "x", "r1-h1")
            assert fingerprint(env) == before

    run(tmp_path, story)


def test_the_system_namespace_of_a_cluster_cannot_be_deleted() -> None:
    """Its UID identifies the tenant."""

    async def story() -> None:
        async with EmbeddedApiServer() as store:
            kube = Kube(store)
            spaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
            with pytest.raises(MoxwellError):
                await kube.delete(spaces, "kube-system")
            assert await kube.find(spaces, "kube-system") is not None

    run_virtual(story())


@pytest.mark.parametrize(
    ("description", "tags", "error"),
    [
        pytest.param("moxwell-owner=x\nmoxwell-cluster=team/c", "", None, id="own"),
        pytest.param("moxwell-owner=x\nmoxwell-cluster=team/d", "", None, id="same namespace"),
        pytest.param("moxwell-owner=x\nmoxwell-cluster=b/c", "", Foreign, id="other namespace"),
        pytest.param("", "", Foreign, id="a guest of nobody"),
        pytest.param("moxwell-owner=x", "moxwell;mox-x", GuestNotBound, id="not bound yet"),
    ],
)
def test_a_volume_is_attached_to_guests_of_the_own_namespace_only(
    tmp_path: Path, description: str, tags: str, error: type[MoxwellError] | None
) -> None:
    """A tenant writes its Nodes, so that it can name any guest as its node."""

    async def story(env: CsiEnvironment, victims: Victims) -> None:
        env.conf(101).update({"description": description, "tags": tags})
        env.engine.runtimes["r1"].mark_changed(101)
        await env.driver.regions["r1"].inventory.refresh()
        driver = drivers.assemble(env.driver.regions, env.clock, guests=ClusterGuests("team", "c"))
        control = ControllerService(driver)
        volume = await calls.create(control, "pvc-x")
        if error is None:
            await calls.attach(control, volume, 101)
        else:
            with pytest.raises(error):
                await calls.attach(control, volume, 101)
            assert "pvc-x" not in str(env.conf(101))

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("given_text", "found"),
    [
        ("", {}),
        ("features: {staticVolumes: {a/c: [r//s/d]}}", {"a/c": ("r//s/d",)}),
        ("features: {staticVolumes: {a/c: ['r/*/s/vm-1-*']}}", {"a/c": ("r/*/s/vm-1-*",)}),
        ("features: {staticVolumes: [r//s/d]}", None),
        ("features: {staticVolumes: {a: [r//s/d]}}", None),
        ("features: {staticVolumes: {a/c: ['*/*/*/*']}}", None),
        ("features: {staticVolumes: {a/c: ['r//*/d']}}", None),
        ("features: {staticVolumes: {a/c: [disk]}}", None),
    ],
)
def test_a_grant_names_region_and_storage(
    given_text: str, found: dict[str, tuple[str, ...]] | None
) -> None:
    if found is not None:
        assert parse_by_cluster(given_text) == found
    else:
        with pytest.raises(Invalid, match="staticVolumes"):
            parse_by_cluster(given_text)
