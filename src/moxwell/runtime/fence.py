"""
The last check before a write: do we still hold the share this pass works for?

Losing a lease cancels passes; the fence is for what cancelling cannot reach, such as a process that
was stopped for a minute and wakes in the middle of a request. Every transport that has effects is
wrapped, the one of Kubernetes by ``assemble``, those of Proxmox by ``app``. Reads pass. The share
of a running pass is kept in its context, so nothing has to be handed through controllers.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from moxwell.api.requests import Handler, Request, Response
from moxwell.errors import Retryable

_SHARE: ContextVar[str] = ContextVar("moxwell_share", default="")
READS = frozenset({"GET", "HEAD", "OPTIONS"})


class NotHeld(Retryable):
    """Another replica may be working on this share: nothing was sent."""

    reason = "NotHeld"


def enter(share: str) -> None:
    """This task works for ``share`` from now on."""
    _SHARE.set(share)


def current() -> str:
    """The share this task works for."""
    return _SHARE.get()


class Fence:
    """Asked before every effect; ``holds`` is the truth about leases."""

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self.holds = holds

    def check(self) -> None:
        """Raise NotHeld unless the running pass may have effects now."""
        share = current()
        if not self.holds(share):
            raise NotHeld(f"the lease for {share or 'this work'} is not held")


class FencedTransport:
    """
    A wire to Proxmox whose writes stop when the lease does.

    It has the methods of ``pve.transport.Transport``, which this package may not know by name.
    """

    def __init__(self, transport: Any, fence: Fence) -> None:
        self._transport, self._fence = transport, fence

    @property
    def region(self) -> str:
        return str(self._transport.region)

    async def request(self, method: str, path: str, params: Any = None, **more: Any) -> bytes:
        """Pass the request on; a write only while the share is held."""
        if method not in READS:
            self._fence.check()
        answer: bytes = await self._transport.request(method, path, params, **more)
        return answer

    async def upload(self, path: str, params: Any, file: Any, **more: Any) -> bytes:
        """Pass the upload on while the share is held."""
        self._fence.check()
        answer: bytes = await self._transport.upload(path, params, file, **more)
        return answer

    async def close(self) -> None:
        await self._transport.close()


class FencedHandler:
    """A Kubernetes API whose writes stop when the lease does."""

    def __init__(self, handler: Handler, fence: Fence) -> None:
        self._handler, self._fence = handler, fence

    async def handle(self, request: Request) -> Response:
        """Pass the request on; a write only while the share is held."""
        if request.method not in READS:
            self._fence.check()
        return await self._handler.handle(request)
