"""
The HTTP servers of the manager: health and metrics, and webhooks.

``/healthz`` and ``/livez`` answer without a check, ``/readyz`` runs every named check (``?verbose``
lists them), ``/metrics`` serves Prometheus text; with TLS where probes expect it. The webhook
server loads its certificate from memory and can replace it while it runs; the temporary file that
the TLS library needs has mode 0600.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from moxwell.runtime.metrics import Metrics
from moxwell.runtime.settings import Listen
from moxwell.runtime.webhooks import BadReview, Webhooks

if TYPE_CHECKING:  # most processes issue no certificate, and the library needs 9 MiB
    from moxwell.pki.certificates import KeyPair

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Checks = Mapping[str, Callable[[], bool]]
LARGEST_REVIEW = 16 * 1024 * 1024

log = structlog.get_logger(__name__)


def health_app(
    checks: Checks, registry: CollectorRegistry, sample: Callable[[], None]
) -> web.Application:
    """Health, readiness and metrics; ``sample`` sets the gauges before each scrape."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(request: web.Request) -> web.Response:
        results = {name: check() for name, check in checks.items()}
        good = all(results.values())
        text = "ok" if good else "not ready"
        if "verbose" in request.query or not good:
            lines = [f"[{'+' if ok else '-'}]{name}" for name, ok in sorted(results.items())]
            text = "\n".join((*lines, text))
        return web.Response(text=text, status=200 if good else 500)

    async def metrics(_: web.Request) -> web.Response:
        sample()
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    app = web.Application()
    served = {"/healthz": healthz, "/livez": healthz, "/readyz": readyz, "/metrics": metrics}
    for path, handler in served.items():
        app.router.add_get(path, handler)
    return app


def webhook_app(webhooks: Webhooks, metrics: Metrics) -> web.Application:
    """Admission and conversion reviews, counted by path."""

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path if webhooks.answers(request.path) else "<unknown>"
        code = 500
        with (
            metrics.review_seconds.labels(path).time(),
            metrics.reviewing.labels(path).track_inprogress(),
        ):
            try:
                answer = await handler(request)
                code = answer.status
            except web.HTTPException as refused:
                code = refused.status
                raise
            finally:
                metrics.reviews.labels(path, str(code)).inc()
        return answer

    async def review(request: web.Request) -> web.Response:
        try:
            answer = webhooks.answer(request.path, await request.read())
        except BadReview as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        if answer is None:
            raise web.HTTPNotFound
        return web.Response(body=answer, content_type="application/json")

    app = web.Application(client_max_size=LARGEST_REVIEW, middlewares=[counted])
    app.router.add_post("/{path:.*}", review)
    return app


class Tls:
    """A server TLS context whose certificate can be replaced while it serves."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    def load(self, pair: "KeyPair") -> None:
        """Use this certificate for new connections."""
        with tempfile.NamedTemporaryFile(prefix="moxwell-", suffix=".pem") as file:  # mode 0600
            file.write(pair.key + pair.certificate)
            file.flush()
            self.context.load_cert_chain(Path(file.name))


def own_tls(listen: Listen, now: datetime) -> ssl.SSLContext | None:
    """A TLS context with a self-signed certificate, as probes accept it; None without TLS."""
    if not listen.tls:
        return None
    from moxwell.pki import certificates
    from moxwell.pki import serving as serving_certificates

    tls = Tls()
    ca = certificates.create_ca("moxwell", now)
    tls.load(serving_certificates.issue(ca, ("localhost", "127.0.0.1"), now))
    return tls.context


@asynccontextmanager
async def serving(
    app: web.Application, listen: Listen, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listen.host, listen.port, ssl_context=tls)
        await site.start()
        port = int(runner.addresses[0][1])
        log.info("listening", host=listen.host, port=port, tls=tls is not None)
        yield port
    finally:
        open_ = [c.transport for c in runner.server.connections] if runner.server else []
        await runner.cleanup()
        for transport in open_:
            if transport is not None:
                transport.abort()  # a TLS close_notify would wait for the peer
        for _ in range(3):  # TLS over TCP: each layer needs one iteration of the loop to close
            await asyncio.sleep(0)
