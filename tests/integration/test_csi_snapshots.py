"""Snapshots, restores and clones on every storage with the documented role."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi import native_snapshots
from moxwell.csi.controller import ControllerService
from moxwell.csi.driver import DriverSettings
from moxwell.csi.errors import FailedPrecondition, Incompatible
from moxwell.csi.garbage import collect
from moxwell.csi.ids import get_volume
from moxwell.csi.ownership import ForeignVolume
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox.state import SimVolume
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.csi_calls import GIB
from moxwell.testing.loop import run_virtual

Scenario = Callable[[CsiEnvironment, ControllerService], Awaitable[None]]
OWN = ("local-lvm", "ceph", "butter")
COPIED = ("local", "local-zfs", "nfs", "drbd")
REGIONS = ("r1", "r2")


def run_scenario(
    folder: Path,
    scenario: Scenario,
    *,
    root: bool = False,
    settings: DriverSettings | None = None,
) -> None:
    async def run() -> None:
        env = CsiEnvironment(folder)
        env.as_root = root
        async with env.running(settings=settings):
            await scenario(env, env.controller)
        await env.close()

    run_virtual(run())


async def made(
    control: ControllerService, name: str, storage: str, region: str = "r1", **how: object
) -> csi.Volume:
    shared = storage in ("ceph", "nfs", "drbd")
    zone = "" if shared else f"{region}-h0"
    return await calls.create(control, name, storage, region=region, zone=zone, **how)  # type: ignore[arg-type]


def nothing_left(env: CsiEnvironment, region: str = "r1") -> None:
    assert (env.all_disks(region), env.helper_vms(region)) == ([], [])


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("storage", [*OWN, *COPIED])
def test_a_snapshot_is_restored_and_deleted_completely(
    tmp_path: Path, storage: str, region: str
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage, region)
        env.write(volume.volume_id, "monday")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        assert (taken.ready_to_use, taken.size_bytes) == (True, GIB)
        assert ("@" in taken.snapshot_id) == (storage in OWN)
        env.write(volume.volume_id, "tuesday")
        back = await made(control, "pvc-2", storage, region, gib=2, source=calls.of_snapshot(taken))
        assert env.content(back.volume_id) == "monday"
        assert back.capacity_bytes == 2 * GIB
        context = await calls.attach(control, back)
        assert context["wwn"]
        assert "size=2G" in str(env.conf(101, region)["scsi1"])
        await calls.detach(control, back)
        await calls.delete(control, back)
        await calls.unsnapshot(control, taken)
        await calls.delete(control, volume)
        nothing_left(env, region)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("storage", [*OWN, *COPIED])
def test_a_clone_has_the_content_and_is_independent(tmp_path: Path, storage: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage)
        env.write(volume.volume_id, "monday")
        clone = await made(control, "pvc-2", storage, source=calls.of_volume(volume))
        again = await made(control, "pvc-2", storage, source=calls.of_volume(volume))
        assert clone.volume_id == again.volume_id
        assert len(env.helper_vms()) == 1  # that of the clone; the temporary one is destroyed
        await calls.delete(control, volume)
        assert env.content(clone.volume_id) == "monday"
        assert await calls.volumes(control) == [clone.volume_id]
        await calls.delete(control, clone)
        nothing_left(env)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("storage", [*OWN, *COPIED])
def test_snapshots_survive_the_deletion_of_their_volume(tmp_path: Path, storage: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage)
        env.write(volume.volume_id, "monday")
        one = await calls.snapshot(control, "snapshot-1", volume)
        two = await calls.snapshot(control, "snapshot-2", volume)
        await calls.delete(control, volume)
        await calls.delete(control, volume)  # again
        assert await calls.volumes(control) == []
        ids = [s.snapshot_id for s in await calls.snapshots(control)]
        assert ids == sorted([one.snapshot_id, two.snapshot_id])
        with pytest.raises(Missing):
            await calls.attach(control, volume)
        back = await made(control, "pvc-2", storage, source=calls.of_snapshot(one))
        assert env.content(back.volume_id) == "monday"
        await calls.delete(control, back)
        await calls.unsnapshot(control, one)
        await calls.unsnapshot(control, two)
        nothing_left(env)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("storage", ["local-lvm", "local-zfs", "ceph"])
def test_a_restored_volume_can_be_snapshotted_and_cloned(tmp_path: Path, storage: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage)
        env.write(volume.volume_id, "monday")
        second = await made(control, "pvc-2", storage, source=calls.of_volume(volume))
        taken = await calls.snapshot(control, "snapshot-1", second)
        third = await made(control, "pvc-3", storage, source=calls.of_snapshot(taken))
        for gone in (volume, second):
            await calls.delete(control, gone)
        assert env.content(third.volume_id) == "monday"
        assert await calls.volumes(control) == [third.volume_id]
        await calls.unsnapshot(control, taken)
        await calls.delete(control, third)
        nothing_left(env)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("storage", "params", "allowed"),
    [
        pytest.param("local-lvm", {}, True, id="thin LVs are of one moment"),
        pytest.param("ceph", {}, True, id="Ceph is of one moment"),
        pytest.param("butter", {}, True, id="btrfs is of one moment"),
        pytest.param("local-zfs", {}, False, id="a copy is not"),
        pytest.param("local-zfs", {"whileAttached": "copy"}, True, id="a copy with leave"),
        pytest.param("local", {"format": "qcow2"}, False, id="qcow2 is open in the guest"),
    ],
)
def test_a_snapshot_of_an_attached_disk(
    tmp_path: Path, storage: str, params: dict[str, str], allowed: bool
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        form = {"storageFormat": params.pop("format")} if "format" in params else {}
        volume = await made(control, "pvc-1", storage, params=form)
        await calls.attach(control, volume)
        if not allowed:
            with pytest.raises(FailedPrecondition, match="running"):
                await calls.snapshot(control, "snapshot-1", volume, **params)
            assert env.helper_vms() == []
            return
        taken = await calls.snapshot(control, "snapshot-1", volume, **params)
        assert taken.ready_to_use
        assert "scsi1" in env.conf(101)
        await calls.detach(control, volume)

    params = dict(params)
    run_scenario(tmp_path, scenario)


def test_qcow2_has_native_snapshots_while_detached(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        form = {"storageFormat": "qcow2"}
        volume = await made(control, "pvc-1", "local", params=form)
        env.write(volume.volume_id, "monday")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        assert "@" in taken.snapshot_id
        back = await made(control, "pvc-2", "local", params=form, source=calls.of_snapshot(taken))
        assert back.volume_id.endswith(".qcow2")
        assert env.content(back.volume_id) == "monday"

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("storage", "mode", "linked", "bound"),
    [
        pytest.param("local-lvm", "auto", True, False, id="thin LVs link, and depend on nothing"),
        pytest.param("local-lvm", "full", False, False, id="unless the class wants copies"),
        pytest.param("ceph", "auto", False, False, id="Ceph copies"),
        pytest.param("ceph", "linked", True, True, id="Ceph links where the class allows"),
    ],
)
def test_a_clone_is_linked_if_independent_or_requested(
    tmp_path: Path, storage: str, mode: str, linked: bool, bound: bool
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage)
        taken = await calls.snapshot(control, "snapshot-1", volume)
        back = await made(
            control, "pvc-2", storage, params={"cloneMode": mode}, source=calls.of_snapshot(taken)
        )
        stored = env.world().storages[storage].volumes.values()
        parents = [v.parent for volumes in stored for v in volumes.values() if v.parent]
        assert bool(parents) == linked
        if bound:
            with pytest.raises(FailedPrecondition, match="linked clones"):
                await calls.unsnapshot(control, taken)
            assert [g.conf.get("lock") for g in env.world().guests.values()].count(None) == len(
                env.world().guests
            )
            await calls.delete(control, back)
        await calls.unsnapshot(control, taken)
        assert await calls.snapshots(control) == []

    run_scenario(tmp_path, scenario)


def test_a_lock_that_a_failed_deletion_left_is_explained(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "ceph")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        vmid, name = env.helper_vms()[0], taken.snapshot_id.partition("@")[2]
        guest = env.world().guests[vmid]
        disk = volume.volume_id.rpartition("/")[2]
        volumes = next(iter(env.world().storages["ceph"].volumes.values()))
        volumes["vm-500-disk-0"] = SimVolume(
            "vm-500-disk-0", "raw", "images", GIB, vmid=500, parent=f"{disk}@{name}"
        )
        reader = env.driver.regions["r1"].reader
        listed = await reader.storage.content(guest.node, "ceph", content="images")
        assert f"{disk}@{name}" in {row.parent for row in listed}
        with pytest.raises(FailedPrecondition, match="ceph:vm-500-disk-0"):
            await calls.unsnapshot(control, taken)
        assert "lock" not in guest.conf
        guest.conf["lock"], guest.snapshots[name].state = "snapshot-delete", "delete"
        del volumes["vm-500-disk-0"]
        with pytest.raises(FailedPrecondition, match=f"qm unlock {vmid}"):
            await calls.unsnapshot(control, taken)
        del guest.conf["lock"]
        await calls.unsnapshot(control, taken)
        await calls.delete(control, volume)
        nothing_left(env)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("storage", ["local-lvm", "local-zfs"])
def test_a_name_identifies_one_snapshot(tmp_path: Path, storage: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        one = await made(control, "pvc-1", storage)
        two = await made(control, "pvc-2", storage)
        first = await calls.snapshot(control, "same", one)
        assert (await calls.snapshot(control, "same", one)).snapshot_id == first.snapshot_id
        with pytest.raises(Incompatible):
            await calls.snapshot(control, "same", two)
        assert len(await calls.snapshots(control)) == 1

    run_scenario(tmp_path, scenario)


def test_snapshots_are_found_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        env = CsiEnvironment(tmp_path)
        async with env.running():
            volume = await made(env.controller, "pvc-1", "local-lvm")
            one = await calls.snapshot(env.controller, "a", volume)
            two = await calls.snapshot(env.controller, "b" * 100, volume)
            back = await made(env.controller, "pvc-2", "local-lvm", source=calls.of_snapshot(one))
        async with env.running():
            control = env.controller
            assert await calls.snapshot(control, "a", volume) == one
            assert await calls.snapshot(control, "b" * 100, volume) == two
            again = await made(control, "pvc-2", "local-lvm", source=calls.of_snapshot(one))
            assert again.volume_id == back.volume_id
            assert await calls.snapshots(control, source_volume_id=volume.volume_id) == sorted(
                [one, two], key=lambda s: s.snapshot_id
            )
            assert await calls.snapshots(control, snapshot_id=two.snapshot_id) == [two]
        await env.close()

    run_virtual(run())


@pytest.mark.parametrize("storage", ["local-lvm", "local-zfs"])
def test_a_restore_is_migrated_to_the_requested_host(tmp_path: Path, storage: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", storage)
        env.write(volume.volume_id, "monday")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        back = await calls.create(
            control, "pvc-2", storage, zone="r1-h1", source=calls.of_snapshot(taken)
        )
        assert back.volume_id.startswith(f"r1/r1-h1/{storage}/")
        assert env.content(back.volume_id) == "monday"
        assert await calls.attach(control, back, 102)

    run_scenario(tmp_path, scenario)


def test_a_snapshot_can_be_restored_to_another_storage(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "ceph")
        env.write(volume.volume_id, "monday")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        back = await calls.create(
            control, "pvc-2", "local-zfs", zone="r1-h1", source=calls.of_snapshot(taken)
        )
        assert back.volume_id.startswith("r1/r1-h1/local-zfs/")
        assert env.content(back.volume_id) == "monday"

    run_scenario(tmp_path, scenario)


def test_an_unsupported_snapshot_mode_is_refused(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "local-zfs")
        with pytest.raises(Invalid, match="zfspool"):
            await calls.snapshot(control, "s1", volume, snapshotMode="storage")

    run_scenario(tmp_path, scenario)


def test_a_volume_is_never_deleted_as_a_snapshot(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "local-lvm")
        clone = await made(control, "pvc-2", "local-lvm", source=calls.of_volume(volume))
        for one in (volume, clone):
            await calls.unsnapshot(control, csi.Snapshot(snapshot_id=one.volume_id))
        assert await calls.volumes(control) == sorted([volume.volume_id, clone.volume_id])

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("what", ["snapshot", "volume"])
def test_a_missing_source_is_not_found(tmp_path: Path, what: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        gone = "r1/r1-h0/local-lvm/vm-9999-pvc-0"
        source = calls.of_volume(csi.Volume(volume_id=gone))
        if what == "snapshot":
            source = calls.of_snapshot(csi.Snapshot(snapshot_id=f"{gone}@snap"))
        with pytest.raises(Missing):
            await made(control, "pvc-1", "local-lvm", source=source)
        assert env.helper_vms() == []

    run_scenario(tmp_path, scenario)


def test_a_helper_vm_does_not_count_as_an_attachment(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "ceph")
        await calls.snapshot(control, "snapshot-1", volume)
        await calls.attach(control, volume, 101)
        await calls.detach(control, volume, 101)
        await calls.attach(control, volume, 102)
        assert len(env.helper_vms()) == 1

    run_scenario(tmp_path, scenario)


def test_a_copy_by_root_has_the_snapshot_name(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "ceph")
        taken = await calls.snapshot(control, "snapshot-1", volume, snapshotMode="root")
        assert "/vm-9999-pvc-snap-snapshot-1-" in taken.snapshot_id
        back = await made(control, "pvc-2", "ceph", source=calls.of_snapshot(taken))
        assert [s.snapshot_id for s in await calls.snapshots(control)] == [taken.snapshot_id]
        # The same call without the mode finds the existing snapshot.
        again = await calls.snapshot(control, "snapshot-1", volume)
        assert again.snapshot_id == taken.snapshot_id
        for gone in (volume, back):
            await calls.delete(control, gone)
        await calls.unsnapshot(control, taken)
        nothing_left(env)

    run_scenario(tmp_path, scenario, root=True)


def test_only_abandoned_helper_vms_are_collected(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        driver, region = env.driver, env.driver.regions["r1"]
        retained = await made(control, "pvc-1", "local-lvm")
        await calls.snapshot(control, "snap", retained)
        clone = await made(control, "pvc-2", "local-lvm", source=calls.of_volume(retained))
        idle = get_volume((await made(control, "pvc-3", "local-lvm")).volume_id)
        left = get_volume((await made(control, "pvc-4", "local-lvm")).volume_id)
        tenant = await driver.ownership.key()
        await driver.helper_vms.ensure(region, idle, tenant=tenant)
        helper_vm = await driver.helper_vms.ensure(region, left, tenant=tenant)
        await native_snapshots.create(
            region, helper_vm, "clone-0123456789abcdef", "Temporary, for a clone."
        )
        disks = env.all_disks()
        assert len(env.helper_vms()) == 4
        await collect(driver, region)
        assert len(env.helper_vms()) == 3  # the temporary snapshot is too young
        await asyncio.sleep(2 * 3600)
        await collect(driver, region)
        assert len(env.helper_vms()) == 2
        assert env.all_disks() == disks
        assert clone.volume_id in await calls.volumes(control)

    run_scenario(tmp_path, scenario)


def test_a_snapshot_of_proxmox_csi_plugin_is_listed_restored_and_deleted(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        name = "vm-9999-snapshot-6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d"
        volumes = env.world().storages["local-lvm"].volumes_on("r1-h0")
        volumes[name] = SimVolume(name, "raw", "images", GIB, vmid=9999, content_id="monday")
        old = csi.Snapshot(snapshot_id=f"r1/r1-h0/local-lvm/{name}")
        assert [s.snapshot_id for s in await calls.snapshots(control)] == [old.snapshot_id]
        assert await calls.volumes(control) == []
        back = await made(control, "pvc-1", "local-lvm", source=calls.of_snapshot(old))
        assert env.content(back.volume_id) == "monday"
        await calls.unsnapshot(control, old)
        await calls.delete(control, back)
        nothing_left(env)

    run_scenario(tmp_path, scenario, settings=DriverSettings(own_by_prefix=True))


def test_a_guest_with_a_reused_vmid_keeps_its_disks(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await made(control, "pvc-1", "local-lvm")
        clone = await made(control, "pvc-2", "local-lvm", source=calls.of_volume(volume))
        await calls.delete(control, clone)
        vmid = get_volume(clone.volume_id).owner
        env.chaos("take-vmid", vmid=vmid, node="r1-h0")
        await asyncio.sleep(120)
        await calls.delete(control, clone)  # a repeated call finds nothing
        volumes = env.world().storages["local-lvm"].volumes_on("r1-h0")
        name = f"vm-{vmid}-disk-0"
        volumes[name] = SimVolume(name, "raw", "images", GIB, vmid=vmid)
        with pytest.raises(ForeignVolume, match=str(vmid)):
            await calls.delete(control, clone)
        assert name in volumes

    run_scenario(tmp_path, scenario)
