"""Replicated volumes: they follow their pods between hosts, are never moved in use, never lost."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.csi.errors import AttachedElsewhere, FailedPrecondition
from moxwell.csi.ids import get_volume
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual

Story = Callable[[CsiEnvironment, ControllerService], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def run() -> None:
        stage = CsiEnvironment(folder, hosts=3)
        async with stage.running(regions=("r1",)):
            await story(stage, stage.controller)
        await stage.close()

    run_virtual(run())


async def replicated(control: ControllerService, zones: str = "r1-h0,r1-h1") -> csi.Volume:
    params = {"replicate": "true", "replicateZones": zones, "replicateSchedule": "*/5"}
    return await calls.create(control, "pvc-1", "local-zfs", zone="r1-h0", params=params)


def shell(stage: CsiEnvironment, volume: csi.Volume) -> str:
    """The host where the carrier is."""
    return stage.world().guests[get_volume(volume.volume_id).owner].node


def jobs(stage: CsiEnvironment) -> list[tuple[str, str]]:
    rows = stage.world().replication.values()
    return sorted((str(row["target"]), str(row["schedule"])) for row in rows)


def test_a_volume_follows_its_pod_to_another_host_and_back(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        assert jobs(stage) == [("r1-h1", "*/5")]
        name = volume.volume_id.split("/", 3)[3]
        stage.write(f"r1/r1-h0/local-zfs/{name}", "monday")
        for vmid, host, copy in ((101, "r1-h0", "r1-h1"), (102, "r1-h1", "r1-h0")) * 2:
            await calls.attach(control, volume, vmid)
            assert (shell(stage, volume), jobs(stage)) == (host, [(copy, "*/5")])
            assert stage.content(f"r1/{host}/local-zfs/{name}") == "monday"
            await calls.detach(control, volume, vmid)
        again = await replicated(control)  # the orchestrator asks again, after the move
        assert again.volume_id == volume.volume_id
        assert await calls.expand(control, volume, 2) == 2 * calls.GIB
        zones = sorted(t.segments[calls.ZONE] for t in volume.accessible_topology)
        assert zones == ["r1-h0", "r1-h1"]
        assert await calls.volumes(control) == [volume.volume_id]
        await calls.delete(control, volume)
        assert (stage.all_disks(), stage.helper_vms(), jobs(stage)) == ([], [], [])

    play(tmp_path, story)


def test_a_volume_in_use_is_never_moved_away(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        await calls.attach(control, volume, 101)
        with pytest.raises(AttachedElsewhere):
            await calls.attach(control, volume, 102)
        assert shell(stage, volume) == "r1-h0"
        assert len(stage.all_disks()) == 1

    play(tmp_path, story)


def test_a_guest_moves_only_without_it_and_the_volume_follows(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        region = stage.driver.regions["r1"]
        volume = await replicated(control)
        await calls.attach(control, volume, 101)

        async def migrate() -> object:
            upid = await region.pve.qemu.migrate(
                "r1-h0", 101, "r1-h1", online=True, with_local_disks=True
            )
            return (await region.tasks.wait_ended(upid)).error

        assert await migrate() is not None  # "owned by other VM", says the task's log
        assert "pvc-1" in str(stage.conf(101)["scsi1"])
        await calls.detach(control, volume, 101)
        assert await migrate() is None
        await region.inventory.refresh()
        await calls.attach(control, volume, 101)
        assert shell(stage, volume) == stage.world().guests[101].node == "r1-h1"

    play(tmp_path, story)


def test_a_host_that_is_down_is_told_with_what_to_do(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        vmid = get_volume(volume.volume_id).owner
        stage.mischief("host-down", node="r1-h0")
        await asyncio.sleep(60)
        await stage.driver.regions["r1"].inventory.refresh()
        with pytest.raises(FailedPrecondition, match=rf"r1-h0/qemu-server/{vmid}\.conf"):
            await calls.attach(control, volume, 102)
        assert "scsi1" not in stage.conf(102)
        stage.mischief("move-guest", vmid=vmid, node="r1-h1")  # a person does so
        await stage.driver.regions["r1"].inventory.refresh()
        assert await calls.attach(control, volume, 102)
        await calls.detach(control, volume, 102)
        await calls.delete(control, volume)
        assert (stage.helper_vms(), jobs(stage)) == ([], [])

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("zones", "why"),
    [
        pytest.param("r1-h0,r1-h9", "r1-h9", id="a host that is not there"),
        pytest.param("", "replicateZones", id="no host"),
        pytest.param("a,b,c,d", "replicateZones", id="too many hosts"),
    ],
)
def test_zones_are_checked_before_anything_is_made(tmp_path: Path, zones: str, why: str) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        with pytest.raises(Invalid, match=why):
            await replicated(control, zones)
        assert (stage.all_disks(), stage.helper_vms(), jobs(stage)) == ([], [], [])

    play(tmp_path, story)


def test_a_replicated_volume_has_snapshots_and_clones_by_copy(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService) -> None:
        volume = await replicated(control)
        name = volume.volume_id.split("/", 3)[3]
        stage.write(f"r1/r1-h0/local-zfs/{name}", "monday")
        taken = await calls.snapshot(control, "snap", volume)
        await calls.delete(control, volume)
        back = await calls.create(
            control, "pvc-2", "local-zfs", zone="r1-h1", source=calls.of_snapshot(taken)
        )
        assert stage.content(back.volume_id) == "monday"
        await calls.unsnapshot(control, taken)
        await calls.delete(control, back)
        assert (stage.all_disks(), stage.helper_vms(), jobs(stage)) == ([], [], [])

    play(tmp_path, story)
