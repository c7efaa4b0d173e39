"""
The proxy that passes TLS connections on by name: genuine TLS on real sockets, virtual time.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlane
from moxwell.embedded.controlplanes.sni.exposure import SniExposure
from moxwell.embedded.controlplanes.sni.proxy import ProxyLimits, SniProxy, client_of
from moxwell.embedded.controlplanes.sni.settings import SniSettings
from moxwell.embedded.ports import free_port
from moxwell.kube import kubeconfig_writer
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair
from moxwell.testing.control_planes_contract import Stage
from moxwell.testing.inprocess_control_planes import InProcessControlPlanes
from moxwell.testing.loop import LoopClock, run_virtual

HOST = "127.0.0.1"
LIMITS = ProxyLimits(connections=6, connections_per_address=4, idle_seconds=60)


@dataclass
class Proxied:
    """A proxy, and TLS servers that answer with their name."""

    folder: Path
    ca: KeyPair
    routes: dict[str, tuple[str, int]] = field(default_factory=dict)
    servers: list[asyncio.Server] = field(default_factory=list)
    proxy: SniProxy = field(init=False)

    def __post_init__(self) -> None:
        self.proxy = SniProxy(HOST, 0, self.routes, LIMITS)

    async def serve(self, name: str) -> asyncio.Server:
        """Start a TLS server and route its name to it."""
        config = CertificateConfig(common_name=name, alt_names=(name,))
        pair = certificates.issue(config, self.ca, SystemClock().now())
        file = self.folder / f"{name}.pem"
        file.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while line := await reader.readline():
                    writer.write(name.encode() + b" " + line)
                    await writer.drain()
            except OSError:
                return
            finally:
                writer.close()

        server = await asyncio.start_server(answer, HOST, 0, ssl=context, limit=1 << 20)
        self.servers.append(server)
        self.routes[name] = server.sockets[0].getsockname()[:2]
        return server

    async def connect(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=self.ca.certificate.decode())
        return await asyncio.open_connection(
            HOST, self.proxy.port, ssl=context, server_hostname=name, limit=1 << 20
        )

    async def ask(self, name: str, text: str = "hello") -> str:
        reader, writer = await self.connect(name)
        try:
            writer.write(f"{text}\n".encode())
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()

    async def plain(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.proxy.port)


def hello(name: str) -> bytes:
    """The first message of a TLS client."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[Proxied]:
    made = Proxied(folder, certificates.create_ca("test", SystemClock().now()))
    running = asyncio.create_task(made.proxy.run())
    while not made.proxy.port:
        await asyncio.sleep(0.01)
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        for server in made.servers:
            server.close()
        await asyncio.sleep(1)  # until the connections are closed


def played(folder: Path, story: Callable[[Proxied], Awaitable[None]]) -> None:
    async def main() -> None:
        async with proxied(folder) as made:
            await story(made)

    run_virtual(main())


def test_each_name_leads_to_its_server_and_tls_is_not_terminated(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        for name in ("a.default.k8s", "b.default.k8s"):
            await world.serve(name)
        assert await world.ask("a.default.k8s") == "a.default.k8s hello"
        assert await world.ask("b.default.k8s", "x" * 50_000) == "b.default.k8s " + "x" * 50_000

    played(tmp_path, story)


def test_an_unknown_name_gets_an_alert(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
            await world.ask("other.k8s")

    played(tmp_path, story)


def test_a_route_may_change_and_end(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        await world.serve("a")
        assert await world.ask("a") == "a hello"
        await world.serve("a")
        assert await world.ask("a") == "a hello"
        del world.routes["a"]
        with pytest.raises(ssl.SSLError):
            await world.ask("a")

    played(tmp_path, story)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"\x16\x03"])
def test_a_silent_client_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    async def story(world: Proxied) -> None:
        reader, writer = await world.plain()
        writer.write(sent)
        began = asyncio.get_running_loop().time()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert asyncio.get_running_loop().time() - began <= LIMITS.hello_seconds + 1
        assert world.proxy.connections == 0

    played(tmp_path, story)


def test_garbage_is_disconnected_at_once(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        await world.serve("a")
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), b"\x16\x03\x01\xff\xff" * 10):
            reader, writer = await world.plain()
            writer.write(data)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert await world.ask("a") == "a hello"

    played(tmp_path, story)


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        await world.serve("a")
        held = [await world.connect("a") for _ in range(LIMITS.connections_per_address)]
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await world.ask("a")
        for _, writer in held:
            writer.close()
        while world.proxy.connections:
            await asyncio.sleep(0.01)
        assert await world.ask("a") == "a hello"

    played(tmp_path, story)


def test_an_idle_connection_ends(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        await world.serve("a")
        reader, writer = await world.connect("a")
        for _ in range(3):
            await asyncio.sleep(LIMITS.idle_seconds * 0.7)
            writer.write(b"still here\n")
            assert await reader.readline() == b"a still here\n"
        await asyncio.sleep(LIMITS.idle_seconds * 1.5)
        writer.close()
        assert world.proxy.connections == 0

    played(tmp_path, story)


def test_a_client_keeps_no_place_after_its_server_has_ended(tmp_path: Path) -> None:
    """A silent client whose TLS handshake the API server gives up does not hold its connection."""

    async def story(world: Proxied) -> None:
        async def gives_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1 << 16)
            writer.close()

        server = await asyncio.start_server(gives_up, HOST, 0)
        world.servers.append(server)
        world.routes["b"] = server.sockets[0].getsockname()[:2]
        _, writer = await world.plain()
        writer.write(hello("b"))
        await asyncio.sleep(LIMITS.closing_seconds / 2)
        assert world.proxy.connections == 1
        await asyncio.sleep(LIMITS.closing_seconds)
        assert world.proxy.connections == 0
        writer.close()

    played(tmp_path, story)


@pytest.mark.parametrize(
    "address, client",
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_ipv6_network_are_one_client(address: str, client: str) -> None:
    assert client_of(address) == client


def test_a_server_that_does_not_answer_costs_only_its_connection(tmp_path: Path) -> None:
    async def story(world: Proxied) -> None:
        await world.serve("a")
        world.routes["dead"] = (HOST, free_port())
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await world.ask("dead")
        assert await world.ask("a") == "a hello"

    played(tmp_path, story)


def test_a_port_that_is_taken_is_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        taken = await asyncio.start_server(lambda reader, writer: writer.close(), HOST, 0)
        proxy = SniProxy(HOST, taken.sockets[0].getsockname()[1], {})
        running = asyncio.create_task(proxy.run())
        await asyncio.sleep(12)
        assert not running.done()
        taken.close()
        await taken.wait_closed()
        await asyncio.sleep(12)
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        writer.write(b"GET")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run_virtual(main())


async def _get(plane: HostedControlPlane, port: int, path: str) -> str:
    """An HTTP request by name through the proxy; the certificate must be valid for the name."""
    context = ssl.create_default_context(cadata=plane.ca)
    reader, writer = await asyncio.open_connection(
        HOST, port, ssl=context, server_hostname=plane.host
    )
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {plane.host}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def test_tenants_are_reached_by_name_with_valid_certificates(tmp_path: Path) -> None:
    async def main() -> None:
        clock = LoopClock()
        exposure = SniExposure(SniSettings("k8s.example", free_port()), HOST)
        stage = Stage(
            lambda: InProcessControlPlanes(tmp_path, clock, new_port=free_port),
            clock,
            "v1.34.1",
            "",
        )
        running = asyncio.create_task(exposure.proxy.run())
        await stage.begin()
        for name in ("a", "b"):
            spec = stage.spec(name)
            plane = exposure.expose(spec.key, await stage.up(exposure.inner_spec(spec)))
            expected = f"{name}.{spec.key.namespace}.k8s.example"
            assert plane.host == expected
            url = f"https://{expected}:{exposure.proxy.port}"
            assert kubeconfig_writer.server(plane.admin_kubeconfig) == url
            info = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
            answer = await _get(plane, exposure.proxy.port, info)
            assert " 200 " in answer.splitlines()[0]
            assert url in answer
        exposure.withdraw(stage.spec("b").key)
        with pytest.raises(ssl.SSLError):
            await _get(plane, exposure.proxy.port, "/readyz")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await stage.end()

    run_virtual(main())
