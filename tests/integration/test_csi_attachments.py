"""Disks attached by other tools are detected before a second guest gets them."""

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

Scenario = Callable[[CsiEnvironment, ControllerService, PveWriter], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario) -> None:
    async def run() -> None:
        env = CsiEnvironment(folder)
        world, now = env.world(), env.clock.now().timestamp()
        headers = {
            "cookie": f"PVEAuthCookie={auth.make_ticket(world, 'root@pam', now)}",
            "csrfpreventiontoken": auth.make_csrf(world, "root@pam", now),
        }
        person = PveWriter(SimTransport(env.engine, "r1", headers=headers))
        async with env.running(regions=("r1",)):
            await scenario(env, env.controller, person)
        await env.close()

    run_virtual(run())


@pytest.mark.parametrize("what", ["attach", "delete", "snapshot"])
def test_a_disk_attached_by_hand_is_detected_at_once(tmp_path: Path, what: str) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        storage = "local-zfs" if what == "snapshot" else "ceph"
        volume = await calls.create(control, "pvc-1", storage, zone="r1-h0")
        other = await calls.create(control, "pvc-2")
        await calls.attach(control, other, 101)  # fills the index
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
        assert env.guests_with(drive.partition(":")[2]) == [vmid]

    run_scenario(tmp_path, scenario)


def test_a_disk_added_to_a_stopped_guest_is_detected_when_it_starts(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
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

    run_scenario(tmp_path, scenario)


def test_the_first_attach_reads_one_guest(tmp_path: Path) -> None:
    """The driver reads all guests in the background when it starts."""

    async def scenario(env: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        driver = env.driver
        rounds = asyncio.create_task(driver.attachments.rescan(driver.regions, env.clock))
        volume = await calls.create(control, "pvc-1")
        await asyncio.sleep(5)
        env.sent().clear()
        await calls.attach(control, volume, 101)
        read = [path for method, path in env.sent() if method == "GET" and "/config" in path]
        assert {path.split("/")[4] for path in read} == {"101"}
        rounds.cancel()

    run_scenario(tmp_path, scenario)


def test_a_change_without_a_task_is_detected_by_the_rescan(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        driver = env.driver
        rounds = asyncio.create_task(driver.attachments.rescan(driver.regions, env.clock))
        volume = await calls.create(control, "pvc-1")
        other = await calls.create(control, "pvc-2")
        await calls.attach(control, other, 101)
        drive = f"ceph:{volume.volume_id.split('/', 3)[3]}"
        await person.qemu.configure("r1-h1", 102, {"scsi9": drive})
        await asyncio.sleep(330)
        with pytest.raises(AttachedElsewhere, match="102"):
            await calls.attach(control, volume, 101)
        await person.qemu.configure("r1-h1", 102, {}, delete=("scsi9",))
        assert await calls.attach(control, volume, 101)  # the guest in the index is read again
        rounds.cancel()

    run_scenario(tmp_path, scenario)


def test_own_tasks_cause_no_extra_reads(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, control: ControllerService, person: PveWriter) -> None:
        for n in range(3):
            volume = await calls.create(control, f"pvc-{n}")
            await calls.attach(control, volume, 101)
            await asyncio.sleep(10)
        before = len(env.sent())
        volume = await calls.create(control, "pvc-last")
        await calls.attach(control, volume, 101)
        requests = [path for _, path in env.sent()[before:] if path != "/cluster/resources"]
        # create, then tasks, write and read; the configuration is known
        assert len(requests) <= 5

    run_scenario(tmp_path, scenario)
