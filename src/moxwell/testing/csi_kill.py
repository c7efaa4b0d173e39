"""
Killing a CSI controller after every single effect of a call, or losing every single answer.

A story has four parts: ``prepare`` (undisturbed), ``act`` (the call under test, which an
orchestrator repeats until it succeeds), ``check`` (what must be true then), and ``undo`` (all that
was made is taken away again, after which nothing may be left). ``after_each_effect`` tells it
undisturbed and counts the writes to Proxmox and to the driver's book; then once for each write with
the controller killed right after it, once for each write with its answer lost, once with a kill
after every one, and once for each write with the orchestrator giving up: it goes on to ``undo``.
The surprise: the server always finishes what it was told, as Proxmox does when a client dies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moxwell.csi.controller import ControllerService
from moxwell.csi.journal import JournalEntry, MemoryJournal
from moxwell.errors import MoxwellError, Unreachable
from moxwell.testing.csi import NODES, CsiEnvironment
from moxwell.testing.loop import run_virtual
from moxwell.testing.reconcile import Wires

TRIES, PAUSE_SECONDS = 40, 5.0


@dataclass
class Play:
    """What one telling of a story knows: the stage, and whatever the story keeps."""

    stage: CsiEnvironment
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def control(self) -> ControllerService:
        return self.stage.controller


Part = Callable[[Play], Awaitable[None]]
Wired = Callable[[], Wires]


@dataclass(frozen=True)
class Story:
    """See the module's text. ``retreat`` is what an orchestrator does that gives up before undo."""

    prepare: Part
    act: Part
    check: Part
    undo: Part
    retreat: Part | None = None
    root: bool = False


JOURNAL = "book"
_LOST = Unreachable("the book did not answer")


class KilledJournal:
    """A book whose writes are effects too."""

    def __init__(self, file: Path, wires: Wires) -> None:
        self._inner, self._wires = MemoryJournal(file), wires

    async def get(self, key: str) -> dict[str, str]:
        return await self._inner.get(key)

    async def put(self, key: str, entry: JournalEntry) -> None:
        act = lambda: self._inner.put(key, entry)  # noqa: E731
        await self._wires.effect(JOURNAL, act, refused=lambda _: False, lost=_LOST)

    async def delete(self, key: str) -> None:
        if await self._inner.get(key):
            act = lambda: self._inner.delete(key)  # noqa: E731
            await self._wires.effect(JOURNAL, act, refused=lambda _: False, lost=_LOST)


async def repeat(part: Part, play: Play) -> None:
    """As an orchestrator does: until it succeeds."""
    for attempt in range(TRIES):
        try:
            return await part(play)
        except MoxwellError as error:
            last = error
        await asyncio.sleep(PAUSE_SECONDS * min(attempt + 1, 6))
    raise AssertionError(f"never succeeded: {last}") from last


async def _life(play: Play, file: Path, wires: Wires, part: Part, *, again: bool) -> bool:
    """One life of a controller; whether the part came to its end in it."""
    play.stage.wires = wires
    async with play.stage.running(journal=KilledJournal(file, wires), regions=("r1",)):
        doing = asyncio.create_task(_once(part, play) if not again else repeat(part, play))
        killed = asyncio.create_task(wires.killed.wait())
        await asyncio.wait({doing, killed}, return_when=asyncio.FIRST_COMPLETED)
        ended = doing.done() and not wires.killed.is_set()
        for task in (doing, killed):
            task.cancel()
        await asyncio.wait({doing, killed})
        if ended and (error := doing.exception()) is not None:
            raise error
    await wires.served()
    check_masters(play.stage)
    return ended


def check_masters(stage: CsiEnvironment) -> None:
    """No disk has two masters, at any moment; carriers never run and do not count."""
    masters: dict[str, int] = {}
    for guest in stage.world().guests.values():
        if guest.vmid not in NODES:
            assert not guest.running
            continue
        for key, text in (guest.conf | guest.pending).items():
            if key.startswith("scsi") and ":" in str(text):
                volid = str(text).partition(",")[0]
                assert masters.setdefault(volid, guest.vmid) == guest.vmid, volid


async def _once(part: Part, play: Play) -> None:
    await part(play)


async def tell(
    folder: Path, story: Story, lives: tuple[Wired, ...] = (), *, gives_up: bool = False
) -> list[str]:
    """One telling; answers the effects of the undisturbed act."""
    play, file = Play(CsiEnvironment(folder)), folder / "book.json"
    play.stage.as_root = story.root
    await _life(play, file, Wires(), story.prepare, again=False)
    last = Wires()
    for wires in (*(make() for make in lives), last):
        if await _life(play, file, wires, story.act, again=True):
            break
        if gives_up:
            break
    if gives_up and story.retreat is not None:
        await _life(play, file, Wires(), story.retreat, again=True)
    else:
        await _life(play, file, Wires(), story.act, again=True)  # and once more
        await asyncio.sleep(120)
        await _life(play, file, Wires(), story.check, again=False)
    await _life(play, file, Wires(), story.undo, again=True)
    await asyncio.sleep(120)
    check_clean(play.stage, MemoryJournal(file))
    await play.stage.close()
    return last.effects


def check_clean(stage: CsiEnvironment, journal: MemoryJournal) -> None:
    """Nothing is left of anything."""
    world = stage.world()
    assert stage.all_disks() == []
    assert stage.helper_vms() == []
    assert world.replication == {}
    assert [t.type for t in world.tasks.values() if t.running] == []
    for guest in world.guests.values():
        assert not {k for k in (guest.conf | guest.pending) if k.startswith("scsi")} - {
            "scsi0",
            "scsihw",
        }
        assert "lock" not in guest.conf
    assert journal.keys() == []


def after_each_effect(folder: Path, story: Story) -> list[str]:
    """Every telling; answers the effects of the undisturbed one."""
    plain = run_virtual(tell(_fresh(folder, "plain"), story))
    for number in range(1, len(plain) + 1):
        for what in ("kill", "lost", "give-up"):
            if what == "give-up" and story.retreat is None:
                continue
            wired = late(what, number)
            telling = tell(
                _fresh(folder, f"{what}-{number}"), story, (wired,), gives_up=what == "give-up"
            )
            _noted(telling, f"{what} after effect {number} of {len(plain)}: {plain[number - 1]}")
    each = tuple(late("kill", 1) for _ in range(3 * len(plain) + 3))
    _noted(tell(_fresh(folder, "each"), story, each), "every life ended after one effect")
    return plain


def _fresh(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def late(what: str, number: int) -> Wired:
    """Wires hold an event of the running loop, so they are made inside it."""
    return lambda: Wires(kill_after=number, ending="lost" if what == "lost" else "killed")


def _noted(telling: Coroutine[Any, Any, Any], when: str) -> None:
    """Tell it; a failure says when it was."""
    with ExitStack() as stack:
        stack.push(lambda _kind, error, _trace: error.add_note(when) if error else None)
        run_virtual(telling)
