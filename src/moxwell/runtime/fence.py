"""
The last check before a write: do we still hold the share this pass works for?

Losing a lease cancels passes; the fence is for what cancelling cannot reach, such as a process that
was stopped for a minute and wakes in the middle of a request. Every transport that has effects is
wrapped: here the Kubernetes one, in ``app`` the one of Proxmox. Reads pass. The share of a running
pass is kept in its context, so nothing has to be handed through controllers.
"""

from collections.abc import Callable
from contextvars import ContextVar

from moxwell.api.wire import Handler, Request, Response
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


class FencedHandler:
    """A Kubernetes API whose writes stop when the lease does."""

    def __init__(self, handler: Handler, fence: Fence) -> None:
        self._handler, self._fence = handler, fence

    async def handle(self, request: Request) -> Response:
        """Pass the request on; a write only while the share is held."""
        if request.method not in READS:
            self._fence.check()
        return await self._handler.handle(request)
