"""
Transport wrapper that reports each request to a callback: method, path, seconds, failed or not.
"""

from collections.abc import Awaitable, Callable

from moxwell.clock import Clock
from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params

ReportRequest = Callable[[str, str, float, bool], None]


class CountedTransport:
    """Wraps a transport and reports its requests."""

    def __init__(self, inner: Transport, report: ReportRequest, clock: Clock) -> None:
        self._inner, self._report, self._clock = inner, report, clock

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
        sent = self._inner.request(method, path, params, deadline_seconds=deadline_seconds)
        return await self._timed(method, path, sent)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        sent = self._inner.upload(path, params, file, deadline_seconds=deadline_seconds)
        return await self._timed("POST", path, sent)

    async def _timed(self, method: str, path: str, sent: Awaitable[bytes]) -> bytes:
        began, failed = self._clock.monotonic(), True
        try:
            answer = await sent
            failed = False
            return answer
        finally:
            self._report(method, path, self._clock.monotonic() - began, failed)

    async def close(self) -> None:
        await self._inner.close()
