"""
Running controllers in a test: until settled, and through a crash after every single effect.

``staged`` runs controllers over any Kubernetes handler on the running (virtual) loop::

    async with staged(store, LoopClock(), controllers) as stage:
        await Kube(store).create(machine)
        await stage.settle()                # until nothing has had an effect for a while
        assert ...

``crash_after_each_effect(Story)`` proves that a kill at any instant costs one pass, nothing else.
A story says what survives a crash, how the program is started on it, what a user does, and what
must be true in the end::

    class MachineIsMade(Story[World]):
        async def world(self) -> World:              # fresh: the API, the simulator; survives kills
            clock = LoopClock()
            return World(clock, FakeKube(clock), Engine(..., clock))

        def program(self, world, wires) -> Manager:  # one life; every wire goes through ``wires``
            runtime = assemble(wires.kube(world.api), world.clock, SETTINGS)
            pve = Pve(wires.pve(InProcess(world.engine, "r1")))
            runtime.manager.add(Controller(name="infra.machine", reconciler=..., ...))
            return runtime.manager

        async def act(self, world) -> None:          # what the user does, beside the program
            await Kube(world.api).create(MACHINE)

        async def check(self, world) -> None:        # on the settled world
            assert len(world.engine.guests) == 1

    def test_a_kill_after_any_effect_leaks_nothing():
        crash_after_each_effect(MachineIsMade())

The story runs undisturbed and its effects are counted: every write to Kubernetes and to Proxmox
that was not refused (events and leases aside). After each effect a copy of the process goes on from
there (see ``branches``), in which it ends in one of three ways: ``killed``, the write has happened
on the server, its answer never arrives and the whole program is cancelled; ``answered``, the
program dies when it has the answer; ``lost``, the program lives and is told that the connection
broke. After a death a new program is started on the same world. Last, it runs with every life
ending after one effect. Each time the world must settle and ``check`` must pass. The server side of
a request always finishes, as it does when a real client dies. A world is quiet when nothing has had
an effect for ``quiet_seconds``: choose more than the longest ``again`` or task. Time is virtual, a
hundred lives take seconds, and ``part`` cuts the effects into parts that can be tried side by side.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeVar

from moxwell.api.requests import Handler, Request, Response
from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.kube.transport import NotReached
from moxwell.pve.errors import Uncertain
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Settings
from moxwell.testing.loop import run_virtual
from moxwell.testing.process_fork import Branches

T = TypeVar("T")
W = TypeVar("W")
READS = frozenset({"GET", "HEAD", "OPTIONS"})
QUIET_SECONDS = 120.0
LIMIT_SECONDS = 4 * 3600.0
NOT_COUNTED = ("/events", "/leases")
SETTINGS = Settings(elect=False, identity="test")
Ending = Literal["killed", "answered", "lost"]
ENDINGS: tuple[Ending, ...] = ("answered", "lost")  # "killed" leaves the world as "answered" does


class Unsettled(AssertionError):
    """The world did not come to rest."""


class Wires:
    """Every way out of one life of a program; counts effects and cuts the program off after one."""

    def __init__(
        self,
        *,
        kill_after: int | None = None,
        ending: Ending = "killed",
        branches: Branches | None = None,
    ) -> None:
        self.effects: list[str] = []
        self.killed = asyncio.Event()
        self._kill_after, self._ending = kill_after, ending
        self._branches = branches or Branches()
        self._changed = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()

    def kube(self, handler: Handler) -> Handler:
        """The same API, counted."""
        return _CountedKube(handler, self)

    def pve(self, transport: Any) -> Any:
        """The same transport to a region, counted."""
        return _CountedPve(transport, self)

    async def effect(
        self,
        name: str,
        act: Callable[[], Awaitable[T]],
        *,
        refused: Callable[[T], bool],
        lost: MoxwellError,
    ) -> T:
        """Do it on the server, count it, and perhaps never come back."""
        if self.killed.is_set():
            await _forever()
        task = asyncio.ensure_future(act())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        result = await asyncio.shield(task)
        if not refused(result):
            self.effects.append(name)
            self._changed.set()
            if self._is_last(name):
                await self._end(lost)
        return result

    def _is_last(self, name: str) -> bool:
        number = len(self.effects)
        when = f"{self._ending} after effect {number}: {name}"
        return number == self._kill_after or self._branches.take(number, when)

    async def _end(self, lost: MoxwellError) -> None:
        if self._ending == "lost":
            raise lost
        self.killed.set()
        if self._ending == "killed":
            await _forever()

    async def quiet(self, seconds: float) -> bool:
        """Wait until nothing has had an effect for so long; False if killed first."""
        while not self.killed.is_set():
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return True
        return False

    async def served(self) -> None:
        """Wait until the servers have finished what they had begun."""
        while self._serving:
            await asyncio.wait(tuple(self._serving))


async def _forever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("the dead do not wake")


@dataclass(frozen=True, slots=True)
class _CountedKube:
    inner: Handler
    wires: Wires

    async def handle(self, request: Request) -> Response:
        if request.method in READS or any(part in request.path for part in NOT_COUNTED):
            return await self.inner.handle(request)
        return await self.wires.effect(
            f"{request.method} {request.path}",
            lambda: self.inner.handle(request),
            refused=lambda response: response.status >= 400,
            lost=NotReached("the connection broke; it may have happened"),
        )


class _CountedPve:
    """A transport to one region whose writes are counted; everything else is passed through."""

    def __init__(self, inner: Any, wires: Wires) -> None:
        self._inner, self._wires = inner, wires

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, method: str, path: str, params: Any = None, **more: Any) -> Any:
        if method in READS:
            return await self._inner.request(method, path, params, **more)
        return await self._effect(
            f"{method} {path}", lambda: self._inner.request(method, path, params, **more)
        )

    async def upload(self, path: str, params: Any, file: Any, **more: Any) -> Any:
        return await self._effect(
            f"UPLOAD {path}", lambda: self._inner.upload(path, params, file, **more)
        )

    async def _effect(self, name: str, act: Callable[[], Awaitable[Any]]) -> Any:
        # A refusal is raised, so whatever comes back has happened.
        full = f"{self._inner.region}: {name}"
        lost = Uncertain("no answer; it may have happened", where=full)
        return await self._wires.effect(full, act, refused=lambda _: False, lost=lost)


@dataclass(frozen=True, slots=True)
class Stage:
    """Controllers that run."""

    runtime: Runtime
    wires: Wires

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
    settings: Settings = SETTINGS,
    seed: int = 1,
) -> AsyncIterator[Stage]:
    """Run controllers, or those a function makes of the runtime, while the block runs."""
    wires = Wires()
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
    """What survives, how a program starts on it, what a user does, what must be true in the end."""

    async def world(self) -> W: ...
    def program(self, world: W, wires: Wires) -> Manager: ...
    async def act(self, world: W) -> None: ...
    async def check(self, world: W) -> None: ...


@dataclass(slots=True)
class Told(Generic[W]):
    """How one telling of a story went."""

    world: W
    lives: int = 0
    effects: list[str] = field(default_factory=list)


async def tell(
    story: Story[W],
    kills: Iterable[int],
    *,
    quiet_seconds: float,
    ending: Ending = "killed",
    branches: Branches | None = None,
) -> Told[W]:
    """
    One telling on the running loop: the first life ends after ``kills[0]`` effects, the next after
    ``kills[1]``, and so on; the last one lives on until the world has settled. ``branches`` says
    after which effects of the last one a copy goes on with a new life.
    """
    told = Told(await story.world())
    acting = asyncio.create_task(story.act(told.world))
    ends, settled = iter(kills), False
    while not settled:
        told.lives += 1
        wires = Wires(kill_after=next(ends, None), ending=ending, branches=branches)
        settled = await _live(story, told, acting, wires, quiet_seconds)
    await acting
    await story.check(told.world)
    return told


def crash_after_each_effect(
    story: Story[W],
    *,
    quiet_seconds: float = QUIET_SECONDS,
    ending: Ending = "killed",
    part: tuple[int, int] = (0, 1),
) -> list[str]:
    """
    Tell a story undisturbed and, from there, with an end after each effect; then with all of them.

    Returns the effects of the undisturbed telling. ``part=(2, 5)`` tries every fifth one from
    the third on; the first part also ends every life. To be called outside a loop: every telling
    gets its own virtual one.
    """
    branches = Branches(lambda number: (number - 1 - part[0]) % part[1] == 0)

    async def plainly() -> list[str]:
        with branches:
            told = await tell(
                story, (), quiet_seconds=quiet_seconds, ending=ending, branches=branches
            )
        return told.effects

    plain = run_virtual(plainly())
    if part[0] == 0 and ending != "lost":
        each = [1] * (3 * len(plain) + 3)
        with _Noted(f"every life {ending} after one effect"):
            run_virtual(tell(story, each, quiet_seconds=quiet_seconds, ending=ending))
    return plain


@dataclass(frozen=True, slots=True)
class _Noted:
    """Says with a failure when it happened."""

    when: str

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note(self.when)


async def _live(
    story: Story[W],
    told: Told[W],
    acting: asyncio.Task[None],
    wires: Wires,
    quiet_seconds: float,
) -> bool:
    """One life; whether the user was done and the world settled in it."""
    life = asyncio.create_task(story.program(told.world, wires).run())
    settling = asyncio.create_task(_settle_after(acting, wires, quiet_seconds))
    try:
        return await _settle_or_die(wires, life, settling)
    finally:
        life.cancel()
        await asyncio.wait([life])
        await wires.served()
        told.effects.extend(wires.effects)


async def _settle_after(acting: asyncio.Task[None], wires: Wires, quiet_seconds: float) -> None:
    await asyncio.wait([acting])
    acting.result()
    await _settle(wires, quiet_seconds, LIMIT_SECONDS)


async def _settle_or_die(
    wires: Wires, life: asyncio.Task[None], settling: asyncio.Task[None]
) -> bool:
    """Until the world is quiet (True) or the program killed (False); a crash of its own raises."""
    killed = asyncio.create_task(wires.killed.wait())
    try:
        await asyncio.wait({settling, killed, life}, return_when=asyncio.FIRST_COMPLETED)
        if wires.killed.is_set():
            return False
        if life.done():
            life.result()
            raise Unsettled("the program ended by itself")
        settling.result()
        return True
    finally:
        settling.cancel()
        killed.cancel()
        await asyncio.wait({settling, killed})


async def _settle(wires: Wires, quiet_seconds: float, limit_seconds: float) -> None:
    try:
        async with asyncio.timeout(limit_seconds):
            await wires.quiet(quiet_seconds)
    except TimeoutError as error:
        last = ", ".join(wires.effects[-5:])
        raise Unsettled(f"effects for {limit_seconds:.0f} s without end, such as {last}") from error
