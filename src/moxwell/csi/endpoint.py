"""
The edges of the driver's two programs: the metrics page, and an end that finishes what it began.

In: an address such as ``:8080`` and a registry; or work to be done until a signal comes. Out:
``/metrics``, ``/healthz``, ``/livez`` and ``/readyz`` over HTTP. The surprise: SIGTERM is not an
error; calls under way are answered first, for as long as the server's grace allows.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry

from moxwell.errors import Busy, Invalid
from moxwell.runtime.http import health_app

log = structlog.get_logger(__name__)
Checks = Mapping[str, Callable[[], bool]]


class AddressTaken(Busy):
    """Somebody else listens there, or nobody may."""

    reason = "AddressTaken"


def parse_address(text: str) -> tuple[str, int]:
    """``:8080`` and ``127.0.0.1:8080``, as flags of other drivers have them."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"{text!r} is no address to listen on: write host:port or :port")
    return host.strip("[]") or "0.0.0.0", int(port)


@asynccontextmanager
async def metrics_page(
    address: str, registry: CollectorRegistry, checks: Checks
) -> AsyncIterator[int]:
    """The page at an address; nothing where none is given. Answers the port."""
    if not address:
        yield 0
        return
    host, port = parse_address(address)
    runner = web.AppRunner(
        health_app(checks, registry, lambda: None), access_log=None, shutdown_timeout=1
    )
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        try:
            await site.start()
        except OSError as error:
            raise AddressTaken(f"cannot listen on {address}: {error.strerror}") from error
        real = int(runner.addresses[0][1])
        log.info("metrics", address=f"{host}:{real}")
        yield real
    finally:
        await runner.cleanup()


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until SIGTERM or SIGINT; errors of the work are told as they are."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    told = asyncio.Event()

    def stop(name: str) -> None:
        log.info("stopping", signal=name)
        told.set()
        task.cancel()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop, one.name)
    try:
        await task
    except asyncio.CancelledError:
        if not told.is_set():
            raise
    finally:
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)
