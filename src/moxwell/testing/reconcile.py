"""
Runs controllers in a test, until nothing changes, and with a crash after every effect.

``staged`` runs controllers over any Kubernetes handler on the running (virtual) loop::

    async with staged(store, LoopClock(), controllers) as stage:
        await Kube(store).create(machine)
        await stage.settle()                # until nothing has had an effect for a while
        assert ...

``crash_after_each_effect(Story)`` checks that a kill at any time costs one pass and nothing else.
A story defines what survives a crash, how the program starts, what a user does, and what must be
true at the end::

    class MachineIsMade(Story[World]):
        async def world(self) -> World:              # new: the API, the simulator; survives kills
            clock = LoopClock()
            return World(clock, FakeKube(clock), Engine(..., clock))

        def program(self, world, wires) -> Manager:  # one run; transports go through ``wires``
            runtime = assemble(wires.kube(world.api), world.clock, SETTINGS)
            pve = Pve(wires.pve(InProcess(world.engine, "r1")))
            runtime.manager.add(Controller(name="infra.machine", reconciler=..., ...))
            return runtime.manager

        async def act(self, world) -> None:          # what the user does meanwhile
            await Kube(world.api).create(MACHINE)

        async def check(self, world) -> None:        # at the end
            assert len(world.engine.guests) == 1

    def test_a_kill_after_any_effect_leaks_nothing():
        crash_after_each_effect(MachineIsMade())

The story runs once without interruption and its effects are counted: every accepted write to
Kubernetes and to Proxmox, without events and leases. After each effect a fork of the process
continues (see ``process_fork``) with one of three interruptions: ``killed`` (the server executed
the write, the response never arrives, the program is cancelled), ``answered`` (the program is
cancelled after the response) and ``lost`` (the program goes on and sees a broken connection).

After a kill a new program starts on the same world. At the end the story runs with a kill after
every effect. Each time the world must come to rest and ``check`` must pass. The server always
finishes a request. The world is at rest when nothing had an effect for ``quiet_seconds``: choose
more than the longest ``requeue_after`` or task. Time is virtual; ``part`` splits the effects for
parallel tests.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.loop import run_virtual
from moxwell.testing.process_fork import Branches

W = TypeVar("W")
QUIET_SECONDS = 120.0
LIMIT_SECONDS = 4 * 3600.0
SETTINGS = ManagerSettings(elect=False, identity="test")
ENDINGS: tuple[Ending, ...] = ("answered", "lost")  # "killed" leaves the same world as "answered"


class NotSettled(AssertionError):
    """The world did not come to rest."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Running controllers."""

    runtime: Runtime
    wires: EffectCounter

    @property
    def manager(self) -> Manager:
        return self.runtime.manager

    async def settle(
        self, quiet_seconds: float = QUIET_SECONDS, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        """Wait until nothing has had an effect for ``quiet_seconds``."""
        await _settle(self.wires, quiet_seconds, limit_seconds)


@asynccontextmanager
async def staged(
    handler: Handler,
    clock: Clock,
    controllers: Iterable[Controller] | Callable[[Runtime], Iterable[Controller]],
    *,
    settings: ManagerSettings = SETTINGS,
    seed: int = 1,
) -> AsyncIterator[Stage]:
    """Run controllers, or those that a function creates from the runtime, while the block runs."""
    wires = EffectCounter()
    runtime = assemble(wires.kube(handler), clock, settings, rng=random.Random(seed))
    for controller in controllers(runtime) if callable(controllers) else controllers:
        runtime.manager.add(controller)
    life = asyncio.create_task(runtime.manager.run())
    try:
        yield Stage(runtime, wires)
    finally:
        runtime.manager.stop()
        await life


class Story(Protocol[W]):
    """What survives a crash, how the program starts, what a user does, and what must be true."""

    async def world(self) -> W: ...
    def program(self, world: W, wires: EffectCounter) -> Manager: ...
    async def act(self, world: W) -> None: ...
    async def check(self, world: W) -> None: ...


@dataclass(slots=True)
class StoryRun(Generic[W]):
    """The result of one run of a story."""

    world: W
    lives: int = 0
    effects: list[str] = field(default_factory=list)


async def run_story(
    story: Story[W],
    kills: Iterable[int],
    *,
    quiet_seconds: float,
    ending: Ending = "killed",
    branches: Branches | None = None,
) -> StoryRun[W]:
    """
    Run a story on the current loop: the first program ends after ``kills[0]`` effects, the next
    after ``kills[1]``, and so on; the last one runs until the world is at rest. ``branches`` says
    after which effects of the last one a fork continues with a new program.
    """
    run = StoryRun(await story.world())
    acting = asyncio.create_task(story.act(run.world))
    ends, settled = iter(kills), False
    while not settled:
        run.lives += 1
        wires = EffectCounter(kill_after=next(ends, None), ending=ending, branches=branches)
        settled = await _live(story, run, acting, wires, quiet_seconds)
    await acting
    await story.check(run.world)
    return run


def crash_after_each_effect(
    story: Story[W],
    *,
    quiet_seconds: float = QUIET_SECONDS,
    ending: Ending = "killed",
    part: tuple[int, int] = (0, 1),
) -> list[str]:
    """
    Run a story without interruption and, from each effect, with an interruption; then with all.

    Returns the effects of the run without interruption. ``part=(2, 5)`` tries every fifth effect
    from the third on; the first part also runs with a kill after every effect. Call it outside a
    loop: every run gets its own virtual loop.
    """
    branches = Branches(lambda number: (number - 1 - part[0]) % part[1] == 0)

    async def plainly() -> list[str]:
        with branches:
            run = await run_story(
                story, (), quiet_seconds=quiet_seconds, ending=ending, branches=branches
            )
        return run.effects

    plain = run_virtual(plainly())
    if part[0] == 0 and ending != "lost":
        each = [1] * (3 * len(plain) + 3)
        with _Noted(f"every life {ending} after one effect"):
            run_virtual(run_story(story, each, quiet_seconds=quiet_seconds, ending=ending))
    return plain


@dataclass(frozen=True, slots=True)
class _Noted:
    """Adds the interruption to a failure."""

    when: str

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note(self.when)


async def _live(
    story: Story[W],
    run: StoryRun[W],
    acting: asyncio.Task[None],
    wires: EffectCounter,
    quiet_seconds: float,
) -> bool:
    """One program; returns whether the user was done and the world at rest."""
    life = asyncio.create_task(story.program(run.world, wires).run())
    settling = asyncio.create_task(_settle_after(acting, wires, quiet_seconds))
    try:
        return await _settle_or_die(wires, life, settling)
    finally:
        life.cancel()
        await asyncio.wait([life])
        await wires.served()
        run.effects.extend(wires.effects)


async def _settle_after(
    acting: asyncio.Task[None], wires: EffectCounter, quiet_seconds: float
) -> None:
    await asyncio.wait([acting])
    acting.result()
    await _settle(wires, quiet_seconds, LIMIT_SECONDS)


async def _settle_or_die(
    wires: EffectCounter, life: asyncio.Task[None], settling: asyncio.Task[None]
) -> bool:
    """
    Wait until the world is at rest (True) or the program was killed (False); its crash raises.
    """
    killed = asyncio.create_task(wires.killed.wait())
    try:
        await asyncio.wait({settling, killed, life}, return_when=asyncio.FIRST_COMPLETED)
        if wires.killed.is_set():
            return False
        if life.done():
            life.result()
            raise NotSettled("the program ended by itself")
        settling.result()
        return True
    finally:
        settling.cancel()
        killed.cancel()
        await asyncio.wait({settling, killed})


async def _settle(wires: EffectCounter, quiet_seconds: float, limit_seconds: float) -> None:
    try:
        async with asyncio.timeout(limit_seconds):
            await wires.quiet(quiet_seconds)
    except TimeoutError as error:
        last = ", ".join(wires.effects[-5:])
        raise NotSettled(
            f"effects for {limit_seconds:.0f} s without end, such as {last}"
        ) from error
