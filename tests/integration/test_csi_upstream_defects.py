"""Known defects of proxmox-csi-plugin and faults of Proxmox, each as a test."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.csi.driver import PROXMOX_CSI_PLUGIN_NAME, DriverSettings
from moxwell.csi.errors import (
    AttachedElsewhere,
    DeviceMismatch,
    FailedPrecondition,
    Incompatible,
    InsufficientCapacity,
)
from moxwell.csi.ids import get_volume
from moxwell.csi.journal import MemoryJournal
from moxwell.csi.ownership import StaticVolume
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid, Missing, MoxwellError, Unreachable
from moxwell.pve import errors
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment, node_id
from moxwell.testing.csi_calls import GIB
from moxwell.testing.loop import run_virtual

Scenario = Callable[[CsiEnvironment, ControllerService], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario, **how: object) -> None:
    """Run a scenario with a new environment in virtual time."""

    async def run() -> None:
        env = CsiEnvironment(folder, guests=int(str(how.pop("guests", 2))))
        async with env.running(**how):  # type: ignore[arg-type]
            await scenario(env, env.controller)
        await env.close()

    run_virtual(run())


def disk(volume: csi.Volume) -> str:
    return volume.volume_id.split("/", 3)[3]


async def stage_on(
    env: CsiEnvironment, volume: csi.Volume, context: dict[str, str], at: str
) -> None:
    node = env.node(101)
    await node.node_stage_volume(
        csi.NodeStageVolumeRequest(
            volume_id=volume.volume_id,
            staging_target_path=at,
            volume_capability=calls.MOUNT,
            publish_context=context,
        )
    )


def test_issue_1_a_reused_slot_never_shows_another_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        one = await calls.create(control, "pvc-1")
        two = await calls.create(control, "pvc-2")
        old = await calls.attach(control, one)
        await calls.detach(control, one)
        new = await calls.attach(control, two)
        assert (old["lun"], old["wwn"] != new["wwn"]) == (new["lun"], True)
        with pytest.raises(FailedPrecondition, match="no disk with WWN"):
            await stage_on(env, one, old, str(tmp_path / "s"))

    run_scenario(tmp_path, scenario)


def test_issue_1_a_mount_is_compared_with_the_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        one, two = [await calls.create(control, f"pvc-{n}") for n in (1, 2)]
        context = [await calls.attach(control, v) for v in (one, two)]
        node, at = env.node(101), str(tmp_path / "s")
        for volume, target_path, publish_context in ((one, at, context[0]), (two, at, context[1])):
            request = csi.NodeStageVolumeRequest(
                volume_id=volume.volume_id,
                staging_target_path=target_path,
                volume_capability=calls.MOUNT,
                publish_context=publish_context,
            )
            if volume is one:
                await node.node_stage_volume(request)
            else:
                with pytest.raises(DeviceMismatch):
                    await node.node_stage_volume(request)

    run_scenario(tmp_path, scenario)


def test_issue_2_a_pending_hotplug_fails_and_is_reverted(
    tmp_path: Path,
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        env.conf(101)["hotplug"] = "network"
        with pytest.raises(errors.HotplugRefused):
            await calls.attach(control, volume)
        guest = env.world().guests[101]
        assert (guest.pending, env.guests_with(disk(volume))) == ({}, [])
        del env.conf(101)["hotplug"]
        await calls.attach(control, volume)
        assert env.guests_with(disk(volume)) == [101]

    run_scenario(tmp_path, scenario)


def test_issue_3_snapshots_on_shared_storage(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "ceph")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        assert taken.ready_to_use
        source = csi.VolumeContentSource(
            snapshot=csi.VolumeContentSource.SnapshotSource(snapshot_id=taken.snapshot_id)
        )
        restored = await calls.create(control, "pvc-2", "ceph", gib=2, source=source)
        assert (await calls.attach(control, restored))["wwn"] != ""
        assert "size=2G" in str(env.conf(101)["scsi1"])

    run_scenario(tmp_path, scenario)


def test_issue_3_snapshot_mode_root_is_denied_to_a_token(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        with pytest.raises(MoxwellError, match="root@pam"):
            await calls.snapshot(control, "snapshot-1", volume, snapshotMode="root")
        assert env.volumes("ceph") == [disk(volume)]

    run_scenario(tmp_path, scenario)


def test_issue_4_attaching_a_local_volume_to_a_migrated_guest_names_the_host(
    tmp_path: Path,
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "local-lvm", zone="r1-h0")
        env.chaos("move-guest", vmid=101, node="r1-h1")
        await asyncio.sleep(15)
        with pytest.raises(FailedPrecondition, match="moxwell volume migrate"):
            await calls.attach(control, volume)

    run_scenario(tmp_path, scenario)


def test_issue_4_a_migrated_guest_is_found_for_a_shared_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        one, two = [await calls.create(control, f"pvc-{n}") for n in (1, 2)]
        await calls.attach(control, one)
        env.chaos("move-guest", vmid=101, node="r1-h1")
        await calls.attach(control, two)
        await calls.detach(control, one)
        assert env.guests_with(disk(two)) == [101]

    run_scenario(tmp_path, scenario)


def test_issue_5_two_hundred_concurrent_attaches_on_twenty_guests(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        async def one(n: int) -> csi.Volume:
            volume = await calls.create(control, f"pvc-{n}")
            await calls.attach(control, volume, 101 + n % 20)
            return volume

        volumes = await asyncio.gather(*(one(n) for n in range(200)))
        held = [env.guests_with(disk(v)) for v in volumes]
        assert held == [[101 + n % 20] for n in range(200)]

    run_scenario(tmp_path, scenario, guests=20, regions=("r1",))


@pytest.mark.parametrize("mode", ["MULTI_NODE_MULTI_WRITER", "MULTI_NODE_READER_ONLY"])
def test_issue_6_multi_node_access_modes_are_refused(tmp_path: Path, mode: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        shared = csi.VolumeCapability(
            mount=csi.VolumeCapability.MountVolume(),
            access_mode=csi.VolumeCapability.AccessMode(mode=mode),
        )
        request = csi.CreateVolumeRequest(
            name="pvc-1", volume_capabilities=[shared], parameters={"storage": "ceph"}
        )
        with pytest.raises(Invalid, match="one node at a time"):
            await control.create_volume(request)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("zone", ["", "gone-host"], ids=["no zone", "a stale zone"])
def test_issue_7_shared_storage_needs_no_zone(tmp_path: Path, zone: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "ceph", zone=zone)
        assert [dict(t.segments) for t in volume.accessible_topology] == [{calls.REGION: "r1"}]

    run_scenario(tmp_path, scenario)


def test_issue_8_expand_and_modify_on_shared_storage(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        await calls.attach(control, volume, 102)
        assert await calls.expand(control, volume, 3) == 3 * GIB
        await calls.modify(control, volume, diskIOPS="300")
        assert "iops_rd=300" in str(env.conf(102)["scsi1"])
        assert "size=3G" in str(env.conf(102)["scsi1"])

    run_scenario(tmp_path, scenario)


def test_issue_9_backup_is_configurable(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", params={"backup": "true"})
        await calls.attach(control, volume)
        assert "backup=1" in str(env.conf(101)["scsi1"])
        await calls.modify(control, volume, backup="false")
        assert "backup=0" in str(env.conf(101)["scsi1"])

    run_scenario(tmp_path, scenario)


def test_issue_10_the_thirty_first_volume_is_refused(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volumes = [await calls.create(control, f"pvc-{n}") for n in range(31)]
        await asyncio.gather(*(calls.attach(control, v) for v in volumes[:30]))
        with pytest.raises(InsufficientCapacity, match="all 30 slots"):
            await calls.attach(control, volumes[30])
        info = await env.node(101).node_get_info(csi.NodeGetInfoRequest())
        assert info.max_volumes_per_node == 30

    run_scenario(tmp_path, scenario)


def test_issue_11_a_boot_disk_is_never_a_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        boot = csi.Volume(volume_id="r1//ceph/vm-101-disk-0")
        for call in (calls.attach, calls.detach):
            with pytest.raises(FailedPrecondition, match="boot disk"):
                await call(control, boot)
        with pytest.raises(StaticVolume):
            await calls.delete(control, boot)
        assert "vm-101-disk-0" in str(env.conf(101)["scsi0"])

    granted = DriverSettings(static_volumes=("r1//ceph/vm-101-*",))
    run_scenario(tmp_path, scenario, settings=granted)


@pytest.mark.parametrize(
    ("node", "found"),
    [
        pytest.param("node-0/101", True, id="name and id, as the Go driver writes"),
        pytest.param("proxmox://r1/101", True, id="provider id"),
        pytest.param("node-0", False, id="a guest's name alone means nothing"),
        pytest.param("node-0.example.org", False, id="nor does a full name"),
    ],
)
def test_issue_12_a_node_is_never_found_by_guest_name(
    tmp_path: Path, node: str, found: bool
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        if found:
            assert await calls.attach(control, volume, node=node)
        else:
            with pytest.raises(Missing):
                await calls.attach(control, volume, node=node)

    run_scenario(tmp_path, scenario, regions=("r1",))


def test_issue_13_guests_outside_the_tokens_permissions_are_ignored(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        env.fault(
            "status", path="/nodes/.*/qemu/102/.*", status=403, text="Permission check failed"
        )
        volume = await calls.create(control, "pvc-1")
        assert await calls.attach(control, volume, 101)

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("what", ["stop-guest", "delete-guest"])
def test_issue_14_detaching_from_a_deleted_guest_succeeds(tmp_path: Path, what: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        await calls.attach(control, volume)
        env.chaos(what, vmid=101)
        await calls.detach(control, volume)
        await calls.attach(control, volume, 102)
        assert env.guests_with(disk(volume)) == [102]

    run_scenario(tmp_path, scenario)


def test_issue_15_the_disk_name_contains_the_volume_name(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-0f1e", "local", zone="r1-h0")
        key = await env.driver.ownership.key()
        assert volume.volume_id == f"r1/r1-h0/local/9999/vm-9999-pvc-0f1e-t{key}.raw"

    run_scenario(tmp_path, scenario, settings=DriverSettings(name=PROXMOX_CSI_PLUGIN_NAME))


def test_defect_1_attributes_survive_a_detach_and_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        env, journal = CsiEnvironment(tmp_path), MemoryJournal(tmp_path / "journal.json")
        async with env.running(journal=journal):
            volume = await calls.create(env.controller, "pvc-1", mutable={"diskMBps": "50"})
            await calls.modify(env.controller, volume, diskIOPS="700")
        async with env.running(journal=MemoryJournal(tmp_path / "journal.json")):
            await calls.attach(env.controller, volume)
        assert {"iops_rd=700", "mbps_wr=50"} <= set(str(env.conf(101)["scsi1"]).split(","))
        await env.close()

    run_virtual(run())


def test_defect_2_an_unknown_parameter_is_rejected(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        await calls.attach(control, volume)
        before = dict(env.conf(101))
        with pytest.raises(Invalid, match="did you mean diskIOPS"):
            await calls.modify(control, volume, diskIOPs="1", backup="true")
        assert env.conf(101) == before

    run_scenario(tmp_path, scenario)


def test_defect_3_an_existing_volume_of_another_size_is_incompatible(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        await calls.create(control, "pvc-1", gib=1)
        with pytest.raises(Incompatible):
            await calls.create(control, "pvc-1", gib=2)

    run_scenario(tmp_path, scenario)


def test_defect_4_a_malformed_id_is_a_missing_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        await calls.delete(control, csi.Volume(volume_id="whatever"))
        with pytest.raises(Missing):
            await calls.attach(control, csi.Volume(volume_id="whatever"))

    run_scenario(tmp_path, scenario)


def test_defect_5_a_full_storage_is_resource_exhausted(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        env.chaos("fill-storage", storage="ceph", node="r1-h0")
        await env.driver.regions["r1"].inventory.refresh()
        request = csi.GetCapacityRequest(
            parameters={"storage": "ceph"},
            accessible_topology=csi.Topology(segments={calls.REGION: "r1"}),
        )
        assert (await control.get_capacity(request)).available_capacity < GIB
        with pytest.raises(InsufficientCapacity):
            await calls.create(control, "pvc-1", gib=100)

    run_scenario(tmp_path, scenario)


def test_defect_6_a_driver_without_proxmox_is_not_ready(tmp_path: Path) -> None:
    from moxwell.csi.identity import IdentityService, any_reachable

    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        identity = IdentityService("x", lambda: any_reachable(env.driver.regions))
        assert (await identity.probe(csi.ProbeRequest())).ready.value
        for region in ("r1", "r2"):
            env.fault("cut-before", region)
            await env.driver.regions[region].inventory.refresh()
        assert not (await identity.probe(csi.ProbeRequest())).ready.value

    run_scenario(tmp_path, scenario)


def test_defect_7_an_unreachable_region_does_not_affect_others(
    tmp_path: Path,
) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        env.fault("cut-before", "r1")
        with pytest.raises(Unreachable):
            await calls.attach(control, volume)
        other = await calls.create(control, "pvc-2", region="r2")
        assert await calls.attach(control, other)

    run_scenario(tmp_path, scenario)


def test_defect_8_a_disk_name_within_another_is_not_confused(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        ten, one = [await calls.create(control, f"pvc-{n}") for n in (10, 1)]
        await calls.attach(control, ten)
        await calls.detach(control, one)
        assert env.guests_with(disk(ten)) == [101]

    run_scenario(tmp_path, scenario)


def test_defect_9_a_volume_attached_to_another_guest_is_refused(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        await calls.attach(control, volume, 101)
        with pytest.raises(AttachedElsewhere, match=node_id(101)):
            await calls.attach(control, volume, 102)
        with pytest.raises(AttachedElsewhere):
            await calls.delete(control, volume)

    run_scenario(tmp_path, scenario)


def test_of_two_concurrent_attaches_one_succeeds(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        tries = [calls.attach(control, volume, vmid) for vmid in (101, 102)]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(end, AttachedElsewhere) for end in ends) == 1
        assert len(env.guests_with(disk(volume))) == 1

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("operation", ["create", "attach", "detach", "delete", "expand"])
def test_a_lost_response_does_not_change_the_result(tmp_path: Path, operation: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        rules = {
            "create": ("POST", ".*/content"),
            "attach": ("POST", ".*/config"),
            "detach": ("POST", ".*/config"),
            "delete": ("DELETE", ".*"),
            "expand": ("PUT", ".*/resize"),
        }
        volume = csi.Volume()

        async def step(name: str, call: Callable[[], Awaitable[object]]) -> object:
            if name == operation:
                env.fault("cut-after", method=rules[name][0], path=rules[name][1], times=1)
            for _ in range(3):
                try:
                    return await call()
                except Unreachable:
                    continue
            raise AssertionError(f"{name} did not recover")

        made = await step("create", lambda: calls.create(control, "pvc-1"))
        assert isinstance(made, csi.Volume)
        volume.CopyFrom(made)
        assert len(env.volumes("ceph")) == 1
        await step("attach", lambda: calls.attach(control, volume))
        await step("expand", lambda: calls.expand(control, volume, 2))
        assert env.guests_with(disk(volume)) == [101]
        await step("detach", lambda: calls.detach(control, volume))
        assert env.guests_with(disk(volume)) == []
        await step("delete", lambda: calls.delete(control, volume))
        assert env.volumes("ceph") == []

    run_scenario(tmp_path, scenario)


def test_a_task_that_fails_late_fails_the_call(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1")
        env.fault("task-slow", task="qmconfig", seconds=40, times=1)
        env.fault("task-fail", task="qmconfig", text="simulated", times=1)
        with pytest.raises(MoxwellError, match="simulated"):
            await calls.attach(control, volume)
        assert env.guests_with(disk(volume)) == []
        assert await calls.attach(control, volume)

    run_scenario(tmp_path, scenario)


def test_a_killed_copy_is_resumed_and_made_once(tmp_path: Path) -> None:
    async def run() -> None:
        env, file = CsiEnvironment(tmp_path), tmp_path / "journal.json"
        env.as_root, how = True, {"snapshotMode": "root"}
        async with env.running(journal=MemoryJournal(file)):
            volume = await calls.create(env.controller, "pvc-1")
        for cut in range(1, 6):
            async with env.running(journal=MemoryJournal(file)):
                task = asyncio.create_task(calls.snapshot(env.controller, "snap", volume, **how))
                await asyncio.sleep(0.02 * cut)
                task.cancel()
                env.driver.copies.cancel_all()
                await asyncio.wait([task])
        async with env.running(journal=MemoryJournal(file)):
            for _ in range(60):
                if (await calls.snapshot(env.controller, "snap", volume, **how)).ready_to_use:
                    break
                await asyncio.sleep(1)
            assert len(env.volumes("ceph")) == 2
        await env.close()

    run_virtual(run())


def test_a_replicated_volume_of_a_class_follows_its_pod(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(
            control,
            "pvc-1",
            "local-zfs",
            params={"replicate": "true", "replicateZones": "r1-h0,r1-h1"},
        )
        assert len(volume.accessible_topology) == 2
        await calls.attach(control, volume, 101)
        await calls.detach(control, volume, 101)
        await calls.delete_replicated(control, volume)
        assert get_volume(volume.volume_id).owner not in env.world().guests
        assert env.world().replication == {}

    run_scenario(tmp_path, scenario)
