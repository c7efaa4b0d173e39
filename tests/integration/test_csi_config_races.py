"""
Races over the configuration of a guest: a write that Proxmox refuses loses nothing.

``POST …/config`` is refused with 500 when the digest is not current, when the guest or its file is
locked, and its response may be lost. Each is produced here; afterwards the disk is attached exactly
once, and the other settings of the guest are unchanged.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.errors import MoxwellError
from moxwell.lab.proxmox.access import auth
from moxwell.pve.client import PveWriter
from moxwell.pve.errors import Locked
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual
from moxwell.testing.pve import SimTransport

CONFIG = r".*/qemu/101/config"


class Race:
    """One driver, one person with a client, and what was refused of configuration writes."""

    def __init__(self, env: CsiEnvironment, person: PveWriter, refused: Counter[str]) -> None:
        self.env, self.person, self.refused = env, person, refused
        self.control: ControllerService = env.controller

    async def create(self, name: str) -> Any:
        return await calls.create(self.control, name)

    def is_attached_once(self, volume: Any) -> bool:
        disk = volume.volume_id.split("/", 3)[3]
        drives = [v for k, v in self.env.conf(101).items() if k.startswith("scsi") and disk in v]
        return self.env.guests_with(disk) == [101] and len(drives) == 1


def run_race(
    folder: Path, story: Callable[[Race], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    """Run a story; returns the reasons of refused configuration writes."""
    refused: Counter[str] = Counter()
    sent = SimTransport.request

    async def request(self: SimTransport, method: str, path: str, *args: Any, **more: Any) -> bytes:
        try:
            return await sent(self, method, path, *args, **more)
        except MoxwellError as error:
            if method == "POST" and path.endswith("/101/config"):
                refused[error.reason] += 1
            raise

    monkeypatch.setattr(SimTransport, "request", request)

    async def run() -> None:
        env = CsiEnvironment(folder)
        world, now = env.world(), env.clock.now().timestamp()
        headers = {
            "cookie": f"PVEAuthCookie={auth.make_ticket(world, 'root@pam', now)}",
            "csrfpreventiontoken": auth.make_csrf(world, "root@pam", now),
        }
        person = PveWriter(SimTransport(env.engine, "r1", headers=headers))
        async with env.running(regions=("r1",)):
            await story(Race(env, person, refused))
        await env.close()

    run_virtual(run())
    return refused


def test_the_digest_is_current_after_an_expand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resize changes the digest; the next write of the driver must not use the old one."""

    async def story(race: Race) -> None:
        volume = await race.create("pvc-1")
        await calls.attach(race.control, volume, 101)
        began = asyncio.get_running_loop().time()
        await calls.expand(race.control, volume, 2)
        assert asyncio.get_running_loop().time() - began < 0.5  # no round of the task poller
        other = await race.create("pvc-2")
        await calls.attach(race.control, other, 101)
        await calls.expand(race.control, volume, 3)
        await calls.detach(race.control, volume, 101)
        assert race.is_attached_once(other)
        assert race.env.guests_with(volume.volume_id.split("/", 3)[3]) == []

    assert run_race(tmp_path, story, monkeypatch) == Counter()


def test_another_client_changes_the_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is not current: refused once, read again, written."""

    async def story(race: Race) -> None:
        first = await race.create("pvc-1")
        await calls.attach(race.control, first, 101)
        await race.person.qemu.configure("r1-h0", 101, {"description": "changed by hand"})
        second = await race.create("pvc-2")
        await calls.attach(race.control, second, 101)
        assert race.is_attached_once(first)
        assert race.is_attached_once(second)
        assert race.env.conf(101)["description"].strip() == "changed by hand"

    assert run_race(tmp_path, story, monkeypatch) == Counter({"ConfigChanged": 1})


def test_a_locked_guest_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call fails without a write, and its repetition after the lock succeeds."""

    async def story(race: Race) -> None:
        first, second = await race.create("pvc-1"), await race.create("pvc-2")
        await calls.attach(race.control, first, 101)
        race.env.chaos("lock", vmid=101, lock="backup")
        with pytest.raises(Locked, match="backup"):
            await calls.attach(race.control, second, 101)
        race.env.chaos("lock", vmid=101, lock="")
        await calls.attach(race.control, second, 101)
        assert race.is_attached_once(first)
        assert race.is_attached_once(second)

    refused = run_race(tmp_path, story, monkeypatch)
    assert set(refused) <= {"ConfigChanged"}  # the lock changes the digest


@pytest.mark.parametrize("kind", ["cut-before", "cut-after"])
def test_the_response_of_a_write_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whether the write happened is not known; the configuration tells."""

    async def story(race: Race) -> None:
        first, second = await race.create("pvc-1"), await race.create("pvc-2")
        await calls.attach(race.control, first, 101)
        race.env.fault(kind, method="POST", path=CONFIG, times=1)
        await calls.attach(race.control, second, 101)
        assert race.is_attached_once(first)
        assert race.is_attached_once(second)
        race.env.fault(kind, method="POST", path=CONFIG, times=1)
        await calls.detach(race.control, first, 101)
        assert race.env.guests_with(first.volume_id.split("/", 3)[3]) == []
        assert race.is_attached_once(second)

    run_race(tmp_path, story, monkeypatch)


def test_a_task_that_cannot_lock_the_file_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(race: Race) -> None:
        volume = await race.create("pvc-1")
        text = "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"
        race.env.fault("status", method="POST", path=CONFIG, times=2, status=500, text=text)
        await calls.attach(race.control, volume, 101)
        assert race.is_attached_once(volume)

    assert run_race(tmp_path, story, monkeypatch) == Counter({"Locked": 2})
