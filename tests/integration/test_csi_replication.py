"""Replicated volumes follow their pods between hosts and are never migrated while attached."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.csi.errors import AttachedElsewhere, FailedPrecondition
from moxwell.csi.ids import get_volume
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid
from moxwell.pve.effects import Owned
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual

Scenario = Callable[[CsiEnvironment, ControllerService], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario) -> None:
    async def run() -> None:
        env = CsiEnvironment(folder, hosts=3)
        async with env.running(regions=("r1",)):
            await scenario(env, env.controller)
        await env.close()

    run_virtual(run())


async def replicated(control: ControllerService, zones: str = "r1-h0,r1-h1") -> csi.Volume:
    params = {"replicate": "true", "replicateZones": zones, "replicateSchedule": "*/5"}
    return await calls.create(control, "pvc-1", "local-zfs", zone="r1-h0", params=params)


def helper_vm_host(env: CsiEnvironment, volume: csi.Volume) -> str:
    """The host of the helper VM."""
    return env.world().guests[get_volume(volume.volume_id).owner].node


def jobs(env: CsiEnvironment) -> list[tuple[str, str]]:
    rows = env.world().replication.values()
    return sorted((str(row["target"]), str(row["schedule"])) for row in rows)


def test_a_volume_follows_its_pod_to_another_host_and_back(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        assert jobs(env) == [("r1-h1", "*/5")]
        name = volume.volume_id.split("/", 3)[3]
        env.write(f"r1/r1-h0/local-zfs/{name}", "monday")
        for vmid, host, copy in ((101, "r1-h0", "r1-h1"), (102, "r1-h1", "r1-h0")) * 2:
            await calls.attach(control, volume, vmid)
            assert (helper_vm_host(env, volume), jobs(env)) == (host, [(copy, "*/5")])
            assert env.content(f"r1/{host}/local-zfs/{name}") == "monday"
            await calls.detach(control, volume, vmid)
        again = await replicated(control)  # the orchestrator repeats the call after the migration
        assert again.volume_id == volume.volume_id
        assert await calls.expand(control, volume, 2) == 2 * calls.GIB
        zones = sorted(t.segments[calls.ZONE] for t in volume.accessible_topology)
        assert zones == ["r1-h0", "r1-h1"]
        assert await calls.volumes(control) == [volume.volume_id]
        await calls.delete_replicated(control, volume)
        assert (env.all_disks(), env.helper_vms(), jobs(env)) == ([], [], [])

    run_scenario(tmp_path, scenario)


def test_an_attached_volume_is_never_migrated(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        await calls.attach(control, volume, 101)
        with pytest.raises(AttachedElsewhere):
            await calls.attach(control, volume, 102)
        assert helper_vm_host(env, volume) == "r1-h0"
        assert len(env.all_disks()) == 1

    run_scenario(tmp_path, scenario)


def test_a_guest_migrates_only_without_the_volume(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        region = env.driver.regions["r1"]
        volume = await replicated(control)
        await calls.attach(control, volume, 101)

        async def migrate() -> object:
            upid = await region.writer(Owned("test", vmids=(101,))).qemu.migrate(
                "r1-h0", 101, "r1-h1", online=True, with_local_disks=True
            )
            return (await region.tasks.wait_ended(upid)).error

        assert await migrate() is not None  # the task log says "owned by other VM"
        assert "pvc-1" in str(env.conf(101)["scsi1"])
        await calls.detach(control, volume, 101)
        assert await migrate() is None
        await region.inventory.refresh()
        await calls.attach(control, volume, 101)
        assert helper_vm_host(env, volume) == env.world().guests[101].node == "r1-h1"

    run_scenario(tmp_path, scenario)


def test_an_offline_host_is_reported_with_instructions(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        vmid = get_volume(volume.volume_id).owner
        env.chaos("host-down", node="r1-h0")
        await asyncio.sleep(60)
        await env.driver.regions["r1"].inventory.refresh()
        with pytest.raises(FailedPrecondition, match=rf"r1-h0/qemu-server/{vmid}\.conf"):
            await calls.attach(control, volume, 102)
        assert "scsi1" not in env.conf(102)
        env.chaos("move-guest", vmid=vmid, node="r1-h1")  # done by an administrator
        await env.driver.regions["r1"].inventory.refresh()
        assert await calls.attach(control, volume, 102)
        await calls.detach(control, volume, 102)
        await calls.delete_replicated(control, volume)
        assert (env.helper_vms(), jobs(env)) == ([], [])

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize(
    ("zones", "why"),
    [
        pytest.param("r1-h0,r1-h9", "r1-h9", id="a host that is not there"),
        pytest.param("", "replicateZones", id="no host"),
        pytest.param("a,b,c,d", "replicateZones", id="too many hosts"),
    ],
)
def test_zones_are_checked_before_anything_is_created(tmp_path: Path, zones: str, why: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        with pytest.raises(Invalid, match=why):
            await replicated(control, zones)
        assert (env.all_disks(), env.helper_vms(), jobs(env)) == ([], [], [])

    run_scenario(tmp_path, scenario)


def test_a_replicated_volume_has_snapshots_and_clones_by_copy(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        name = volume.volume_id.split("/", 3)[3]
        env.write(f"r1/r1-h0/local-zfs/{name}", "monday")
        taken = await calls.snapshot(control, "snap", volume)
        await calls.delete_replicated(control, volume)
        back = await calls.create(
            control, "pvc-2", "local-zfs", zone="r1-h1", source=calls.of_snapshot(taken)
        )
        assert env.content(back.volume_id) == "monday"
        await calls.unsnapshot(control, taken)
        await calls.delete(control, back)
        assert (env.all_disks(), env.helper_vms(), jobs(env)) == ([], [], [])

    run_scenario(tmp_path, scenario)
