"""
Runs CSI calls with the controller killed, or a response lost, after every single write.

A scenario has the phases ``prepare``, ``act`` (the call under test, repeated until it succeeds),
``check`` and ``undo``, after which nothing may be left. ``after_each_effect`` runs it without
interruption and counts the writes to Proxmox and to the journal. Then it runs it per write with a
kill after that write, with the response of that write lost, and with the orchestrator giving up;
and once with a kill after every write. The server always finishes a request, as Proxmox does.
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
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual

TRIES, PAUSE_SECONDS = 40, 5.0


@dataclass
class ScenarioRun:
    """The environment of one run and the objects that the scenario created."""

    env: CsiEnvironment
    objects: dict[str, Any] = field(default_factory=dict)

    @property
    def control(self) -> ControllerService:
        return self.env.controller


Phase = Callable[[ScenarioRun], Awaitable[None]]
MakeCounter = Callable[[], EffectCounter]


@dataclass(frozen=True)
class Scenario:
    """The phases of a scenario; ``give_up`` replaces ``act`` when the orchestrator gives up."""

    prepare: Phase
    act: Phase
    check: Phase
    undo: Phase
    give_up: Phase | None = None
    root: bool = False


JOURNAL = "journal"
_LOST = Unreachable("the journal is unreachable")


class KilledJournal:
    """A journal whose writes count as effects."""

    def __init__(self, file: Path, effects: EffectCounter) -> None:
        self._inner, self._effects = MemoryJournal(file), effects

    async def get(self, key: str) -> dict[str, str]:
        return await self._inner.get(key)

    async def put(self, key: str, entry: JournalEntry) -> None:
        act = lambda: self._inner.put(key, entry)  # noqa: E731
        await self._effects.effect(JOURNAL, act, refused=lambda _: False, lost=_LOST)

    async def delete(self, key: str) -> None:
        if await self._inner.get(key):
            act = lambda: self._inner.delete(key)  # noqa: E731
            await self._effects.effect(JOURNAL, act, refused=lambda _: False, lost=_LOST)


async def repeat(phase: Phase, run: ScenarioRun) -> None:
    """Repeat a phase until it succeeds, as an orchestrator does."""
    for attempt in range(TRIES):
        try:
            return await phase(run)
        except MoxwellError as error:
            last = error
        await asyncio.sleep(PAUSE_SECONDS * min(attempt + 1, 6))
    raise AssertionError(f"never succeeded: {last}") from last


async def _process_run(
    run: ScenarioRun, file: Path, effects: EffectCounter, phase: Phase, *, again: bool
) -> bool:
    """Run a phase in one driver process; returns whether it ended before a kill."""
    run.env.effects = effects
    async with run.env.running(journal=KilledJournal(file, effects), regions=("r1",)):
        doing = asyncio.create_task(_once(phase, run) if not again else repeat(phase, run))
        killed = asyncio.create_task(effects.killed.wait())
        await asyncio.wait({doing, killed}, return_when=asyncio.FIRST_COMPLETED)
        ended = doing.done() and not effects.killed.is_set()
        for task in (doing, killed):
            task.cancel()
        await asyncio.wait({doing, killed})
        if ended and (error := doing.exception()) is not None:
            raise error
    await effects.served()
    check_single_attachment(run.env)
    return ended


def check_single_attachment(env: CsiEnvironment) -> None:
    """Assert that no disk is attached to two nodes and no helper VM runs."""
    attached_to: dict[str, int] = {}
    for guest in env.world().guests.values():
        if guest.vmid not in NODES:
            assert not guest.running
            continue
        for key, text in (guest.conf | guest.pending).items():
            if key.startswith("scsi") and ":" in str(text):
                volid = str(text).partition(",")[0]
                assert attached_to.setdefault(volid, guest.vmid) == guest.vmid, volid


async def _once(phase: Phase, run: ScenarioRun) -> None:
    await phase(run)


async def run_once(
    folder: Path,
    scenario: Scenario,
    process_runs: tuple[MakeCounter, ...] = (),
    *,
    gives_up: bool = False,
) -> list[str]:
    """Run a scenario once; returns the effects of the last ``act``."""
    run, file = ScenarioRun(CsiEnvironment(folder)), folder / "journal.json"
    run.env.as_root = scenario.root
    await _process_run(run, file, EffectCounter(), scenario.prepare, again=False)
    last = EffectCounter()
    for effects in (*(make() for make in process_runs), last):
        if await _process_run(run, file, effects, scenario.act, again=True):
            break
        if gives_up:
            break
    if gives_up and scenario.give_up is not None:
        await _process_run(run, file, EffectCounter(), scenario.give_up, again=True)
    else:
        await _process_run(
            run, file, EffectCounter(), scenario.act, again=True
        )  # a repeated call succeeds
        await asyncio.sleep(120)
        await _process_run(run, file, EffectCounter(), scenario.check, again=False)
    await _process_run(run, file, EffectCounter(), scenario.undo, again=True)
    await asyncio.sleep(120)
    check_nothing_left(run.env, MemoryJournal(file))
    await run.env.close()
    return last.effects


def check_nothing_left(env: CsiEnvironment, journal: MemoryJournal) -> None:
    """Assert that no disk, helper VM, job, task, attachment or journal entry is left."""
    world = env.world()
    assert env.all_disks() == []
    assert env.helper_vms() == []
    assert world.replication == {}
    assert [t.type for t in world.tasks.values() if t.running] == []
    for guest in world.guests.values():
        assert not {k for k in (guest.conf | guest.pending) if k.startswith("scsi")} - {
            "scsi0",
            "scsihw",
        }
        assert "lock" not in guest.conf
    assert journal.keys() == []


def after_each_effect(folder: Path, scenario: Scenario) -> list[str]:
    """Run a scenario with all interruptions; returns the effects of the plain run."""
    plain = run_virtual(run_once(_fresh(folder, "plain"), scenario))
    for number in range(1, len(plain) + 1):
        for what in ("kill", "lost", "give-up"):
            if what == "give-up" and scenario.give_up is None:
                continue
            counted = interrupted(what, number)
            execution = run_once(
                _fresh(folder, f"{what}-{number}"), scenario, (counted,), gives_up=what == "give-up"
            )
            _annotated(
                execution, f"{what} after effect {number} of {len(plain)}: {plain[number - 1]}"
            )
    each = tuple(interrupted("kill", 1) for _ in range(3 * len(plain) + 3))
    _annotated(run_once(_fresh(folder, "each"), scenario, each), "killed after every write")
    return plain


def _fresh(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def interrupted(what: str, number: int) -> MakeCounter:
    """Build the counter inside the running loop, because it contains an event."""
    return lambda: EffectCounter(kill_after=number, ending="lost" if what == "lost" else "killed")


def _annotated(execution: Coroutine[Any, Any, Any], when: str) -> None:
    """Run it; a failure gets a note with the interruption."""
    with ExitStack() as stack:
        stack.push(lambda _kind, error, _trace: error.add_note(when) if error else None)
        run_virtual(execution)
