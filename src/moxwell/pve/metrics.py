"""
Transport wrapper that reports each request to a callback: method, path, seconds, failed or not.
"""

from collections.abc import Callable

from moxwell.clock import Clock
from moxwell.pve.forwarding_transport import ForwardingTransport, SendTo
from moxwell.pve.transport import Transport

ReportRequest = Callable[[str, str, float, bool], None]


class CountedTransport(ForwardingTransport):
    """Wraps a transport and reports its requests."""

    def __init__(self, inner: Transport, report: ReportRequest, clock: Clock) -> None:
        super().__init__(inner)
        self._report, self._clock = report, clock

    async def _forward(self, method: str, path: str, send: SendTo) -> bytes:
        began, failed = self._clock.monotonic(), True
        try:
            answer = await send(self._inner)
            failed = False
            return answer
        finally:
            self._report(method, path, self._clock.monotonic() - began, failed)
