"""Disks that somebody attaches by hand are seen before a second guest gets them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.csi.errors import AttachedElsewhere
from moxwell.errors import MoxwellError
from moxwell.lab.proxmox.access import auth
from moxwell.pve.client import PveWriter
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual
from moxwell.testing.pve import SimTransport

Story = Callable[[CsiEnvironment, ControllerService, PveWriter], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    async def run() -> None:
        stage = CsiEnvironment(folder)
        world, now = stage.world(), stage.clock.now().timestamp()
        headers = {
            "cookie": f"PVEAuthCookie={auth.make_ticket(world, 'root@pam', now)}",
            "csrfpreventiontoken": auth.make_csrf(world, "root@pam", now),
        }
        person = PveWriter(SimTransport(stage.engine, "r1", headers=headers))
        async with stage.running(regions=("r1",)):
            await story(stage, stage.controller, person)
        await stage.close()

    run_virtual(run())


@pytest.mark.parametrize("what", ["attach", "delete", "snapshot"])
def test_a_disk_attached_by_hand_is_seen_at_once(tmp_path: Path, what: str) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        storage = "local-zfs" if what == "snapshot" else "ceph"
        volume = await calls.create(control, "pvc-1", storage, zone="r1-h0")
        other = await calls.create(control, "pvc-2")
        await calls.attach(control, other, 101)  # the index is made
        await asyncio.sleep(60)
        vmid, host = (101, "r1-h0") if what == "snapshot" else (102, "r1-h1")
        drive = f"{storage}:{volume.volume_id.split('/', 3)[3]}"
        await person.qemu.configure_task(host, vmid, {"scsi9": drive}, background_delay=5)
        operations: dict[str, Callable[[], Awaitable[object]]] = {
            "attach": lambda: calls.attach(control, volume, 101),
            "delete": lambda: calls.delete(control, volume),
            "snapshot": lambda: calls.snapshot(control, "snap", volume),
        }
        with pytest.raises(MoxwellError, match=str(vmid)):
            await operations[what]()
        assert stage.holders_of(drive.partition(":")[2]) == [vmid]

    play(tmp_path, story)


def test_a_disk_given_to_a_stopped_guest_is_seen_when_it_starts(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        volume = await calls.create(control, "pvc-1")
        await person.qemu.stop("r1-h1", 102)
        await asyncio.sleep(30)
        other = await calls.create(control, "pvc-2")
        await calls.attach(control, other, 101)
        drive = f"ceph:{volume.volume_id.split('/', 3)[3]}"
        await person.qemu.configure("r1-h1", 102, {"scsi9": drive})
        await person.qemu.start("r1-h1", 102)
        await asyncio.sleep(30)
        with pytest.raises(AttachedElsewhere, match="102"):
            await calls.attach(control, volume, 101)

    play(tmp_path, story)


def test_a_change_without_a_task_is_seen_by_the_patrol(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        driver = stage.driver
        rounds = asyncio.create_task(driver.attachments.rescan(driver.regions, stage.clock))
        volume = await calls.create(control, "pvc-1")
        other = await calls.create(control, "pvc-2")
        await calls.attach(control, other, 101)
        drive = f"ceph:{volume.volume_id.split('/', 3)[3]}"
        await person.qemu.configure("r1-h1", 102, {"scsi9": drive})
        await asyncio.sleep(330)
        with pytest.raises(AttachedElsewhere, match="102"):
            await calls.attach(control, volume, 101)
        await person.qemu.configure("r1-h1", 102, {}, delete=("scsi9",))
        assert await calls.attach(control, volume, 101)  # whoever is named is looked at again
        rounds.cancel()

    play(tmp_path, story)


def test_our_own_work_is_no_news(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        for n in range(3):
            volume = await calls.create(control, f"pvc-{n}")
            await calls.attach(control, volume, 101)
            await asyncio.sleep(10)
        before = len(stage.sent())
        volume = await calls.create(control, "pvc-last")
        await calls.attach(control, volume, 101)
        requests = [path for _, path in stage.sent()[before:] if path != "/cluster/resources"]
        # create; then tasks, (config is known), write, read
        assert len(requests) <= 5

    play(tmp_path, story)
