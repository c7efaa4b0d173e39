"""
Counts the effects of a program under test, and ends the program at one of them.

An effect is an accepted write. The transports of Kubernetes and Proxmox are wrapped by the
methods ``kube`` and ``pve``; :mod:`.reconcile` runs stories with them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from moxwell.api.requests import Handler, Request, Response
from moxwell.errors import MoxwellError
from moxwell.kube.transport import ApiServerUnreachable
from moxwell.pve.errors import OutcomeUnknown
from moxwell.testing.process_fork import Branches

T = TypeVar("T")
READS = frozenset({"GET", "HEAD", "OPTIONS"})
NOT_COUNTED = ("/events", "/leases")
Ending = Literal["killed", "answered", "lost"]


class EffectCounter:
    """
    The transports of one run of a program; counts effects and interrupts the program after one.
    """

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
        """The same Kubernetes API, counted."""
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
        """
        Execute the write on the server, count it, and interrupt the program if this was its last.
        """
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
        """Wait until nothing had an effect for that time; False if the program was killed first."""
        while not self.killed.is_set():
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return True
        return False

    async def served(self) -> None:
        """Wait until the servers have finished the requests they received."""
        while self._serving:
            await asyncio.wait(tuple(self._serving))


async def _forever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("the dead do not wake")


@dataclass(frozen=True, slots=True)
class _CountedKube:
    inner: Handler
    wires: EffectCounter

    async def handle(self, request: Request) -> Response:
        if request.method in READS or any(part in request.path for part in NOT_COUNTED):
            return await self.inner.handle(request)
        return await self.wires.effect(
            f"{request.method} {request.path}",
            lambda: self.inner.handle(request),
            refused=lambda response: response.status >= 400,
            lost=ApiServerUnreachable("the connection broke; it may have happened"),
        )


class _CountedPve:
    """A transport to one region whose writes are counted; everything else is passed through."""

    def __init__(self, inner: Any, wires: EffectCounter) -> None:
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
        # a rejected write raises, so a response means that it was executed
        full = f"{self._inner.region}: {name}"
        lost = OutcomeUnknown("no answer; it may have happened", where=full)
        return await self._wires.effect(full, act, refused=lambda _: False, lost=lost)
