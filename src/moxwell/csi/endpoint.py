"""
The HTTP server for ``/metrics`` and health checks, and graceful shutdown on SIGTERM.

Calls in progress are answered before the process exits, within the grace period of the server.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from moxwell.errors import Busy, Invalid

log = structlog.get_logger(__name__)
Checks = Mapping[str, Callable[[], bool]]


class AddressInUse(Busy):
    """The address is in use or not permitted."""

    reason = "AddressInUse"


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``:8080`` or ``127.0.0.1:8080``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"{text!r} is not a listen address: use host:port or :port")
    return host.strip("[]") or "0.0.0.0", int(port)


@asynccontextmanager
async def metrics_page(
    address: str, registry: CollectorRegistry, checks: Checks
) -> AsyncIterator[int]:
    """
    Serve ``/metrics``, ``/healthz``, ``/livez`` and ``/readyz``; yields the port, 0 if no address.
    """
    if not address:
        yield 0
        return
    from aiohttp import web

    from moxwell.runtime.http import health_app

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
            raise AddressInUse(f"cannot listen on {address}: {error.strerror}") from error
        real = int(runner.addresses[0][1])
        log.info("metrics served", address=f"{host}:{real}")
        yield real
    finally:
        await runner.cleanup()


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run until SIGTERM or SIGINT; errors of the work are raised unchanged."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped = asyncio.Event()

    def stop(name: str) -> None:
        log.info("signal received", signal=name)
        stopped.set()
        task.cancel()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop, one.name)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
    finally:
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)
