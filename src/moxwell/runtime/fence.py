"""
The last check before a write: this replica still holds the lease of the pass's shard.

Losing a lease cancels passes. The fence stops what cancellation cannot reach, for example a process
that was suspended for a minute in the middle of a request. Every transport with effects is wrapped:
Kubernetes' by ``assemble``, Proxmox's by ``app``. Reads pass. The shard of a running pass is a
context variable.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from moxwell.api.requests import Handler, Request, Response
from moxwell.errors import Retryable

_SHARD: ContextVar[str] = ContextVar("moxwell_shard", default="")
READS = frozenset({"GET", "HEAD", "OPTIONS"})


class NotHeld(Retryable):
    """The lease of this shard is not held; nothing was sent."""

    reason = "NotHeld"


def enter(shard: str) -> None:
    """Set the shard of the current task."""
    _SHARD.set(shard)


def current() -> str:
    """The shard of the current task."""
    return _SHARD.get()


class Fence:
    """Checked before every write; ``holds`` asks the leases."""

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self.holds = holds

    def check(self) -> None:
        """Raise NotHeld unless the current pass holds its shard."""
        shard = current()
        if not self.holds(shard):
            raise NotHeld(f"the lease for {shard or 'this work'} is not held")


class FencedTransport:
    """
    A Proxmox transport whose writes require the lease.

    It has the methods of ``pve.transport.Transport``, which this package must not import.
    """

    def __init__(self, transport: Any, fence: Fence) -> None:
        self._transport, self._fence = transport, fence

    @property
    def region(self) -> str:
        return str(self._transport.region)

    async def request(self, method: str, path: str, params: Any = None, **more: Any) -> bytes:
        """Send the request; a write only while the shard is held."""
        if method not in READS:
            self._fence.check()
        answer: bytes = await self._transport.request(method, path, params, **more)
        return answer

    async def upload(self, path: str, params: Any, file: Any, **more: Any) -> bytes:
        """Send the upload while the shard is held."""
        self._fence.check()
        answer: bytes = await self._transport.upload(path, params, file, **more)
        return answer

    async def close(self) -> None:
        await self._transport.close()


class FencedHandler:
    """A Kubernetes transport whose writes require the lease."""

    def __init__(self, handler: Handler, fence: Fence) -> None:
        self._handler, self._fence = handler, fence

    async def handle(self, request: Request) -> Response:
        """Send the request; a write only while the shard is held."""
        if request.method not in READS:
            self._fence.check()
        return await self._handler.handle(request)
