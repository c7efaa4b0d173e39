"""The base of transports that forward to another one; a subclass decides how they send."""

from collections.abc import Awaitable, Callable

from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params

SendTo = Callable[[Transport], Awaitable[bytes]]


class ForwardingTransport:
    """Sends every request to another transport."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    @property
    def region(self) -> str:
        return self._inner.region

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        def send(to: Transport) -> Awaitable[bytes]:
            return to.request(method, path, params, deadline_seconds=deadline_seconds)

        return await self._forward(method, path, send)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        def send(to: Transport) -> Awaitable[bytes]:
            return to.upload(path, params, file, deadline_seconds=deadline_seconds)

        return await self._forward("POST", path, send)

    async def _forward(self, method: str, path: str, send: SendTo) -> bytes:
        """Send one request with ``send``; ``method`` and ``path`` are for reports."""
        return await send(self._inner)

    async def close(self) -> None:
        await self._inner.close()
