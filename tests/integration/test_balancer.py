"""The balancer in front of the API servers of a tenant, on real sockets and virtual time."""

import asyncio
from pathlib import Path

from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.balancer.balancer import CLOSING_SECONDS, Balancer
from moxwell.embedded.ports import free_port
from moxwell.pki import certificates
from moxwell.task_group import cancel
from moxwell.testing.loop import run_virtual

HOST, BACKEND = "127.0.0.1", "127.0.0.2"


def test_a_silent_client_keeps_no_place_after_its_api_server_has_ended(tmp_path: Path) -> None:
    """kube-apiserver ends a TLS handshake that takes too long; the client need not close."""

    async def gives_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        writer.close()

    async def main() -> None:
        ca, port = tmp_path / "ca.pem", free_port()
        ca.write_bytes(certificates.create_ca("test", SystemClock().now()).certificate)
        balancer = Balancer(HOST, port, str(ca), [BACKEND])
        async with await asyncio.start_server(gives_up, BACKEND, port):
            running = asyncio.create_task(balancer.run())
            reader, writer = await _connected(port)
            assert await reader.read() == b"x"
            (backend,) = balancer.backends
            assert backend.connections == 1
            await asyncio.sleep(CLOSING_SECONDS + 1)
            assert backend.connections == 0
            writer.close()
            await cancel(running)

    run_virtual(main())


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the balancer listens."""
    for _ in range(100):
        try:
            return await asyncio.open_connection(HOST, port)
        except ConnectionError:
            await asyncio.sleep(0.1)
    raise AssertionError("the balancer does not listen")
