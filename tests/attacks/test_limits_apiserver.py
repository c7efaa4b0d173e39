"""
One client of the embedded API server tries to use the time, memory or connections of all.

Timeouts are shortened; every test waits for an event, such as the end of a connection.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moxwell.api.requests import Request, UserInfo
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver import connections, flow_control, limits, watches
from moxwell.embedded.apiserver.hooks import AdmissionAttributes, Hooks
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.pki.folder import CertificateAuthority
from moxwell.testing.api_calls import CM, JSON_PATCH, ApiClient, configmap
from moxwell.testing.loop import LoopClock, run_virtual

TOKENS = {name: UserInfo(name=name) for name in ("mallory", "jane")}
TOKENS["root"] = UserInfo(name="root", groups=("system:masters",))
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WAIT = 30.0


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "BODY_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(connections, name, 0.3)


def fail(review: AdmissionAttributes) -> Any:
    if review.name == "unexpected":
        raise ZeroDivisionError("x" * 10_000)
    return review.object


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HttpServer]:
    clock = SystemClock()
    authority = CertificateAuthority(tmp_path, clock.now)
    async with (
        EmbeddedApiServer(clock=clock, hooks=Hooks(mutate=fail)) as api_server,
        HttpServer(
            api_server, authority, folder=tmp_path, tokens=TOKENS, max_connections=40
        ) as http,
    ):
        yield http


class RawClient:
    """A TLS connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Read until the server closes the connection."""
        try:
            async with asyncio.timeout(WAIT):
                return await self.reader.read()
        except ConnectionError:
            return b""

    async def head(self) -> bytes:
        async with asyncio.timeout(WAIT):
            return await self.reader.readuntil(b"\r\n\r\n")


Connect = Callable[[], Awaitable[RawClient]]


@pytest.fixture
async def connect(server: HttpServer, tmp_path: Path) -> AsyncIterator[Connect]:
    """Open connections, which are closed at the end."""
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    port = int(server.url.rpartition(":")[2])
    clients: list[RawClient] = []

    async def one() -> RawClient:
        pair = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1024)
        clients.append(RawClient(*pair))
        return clients[-1]

    yield one
    for client in clients:
        client.writer.transport.abort()


def session(server: HttpServer, folder: Path, token: str) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=WAIT)
    return aiohttp.ClientSession(
        server.url, connector=aiohttp.TCPConnector(ssl=tls), headers=headers, timeout=timeout
    )


def slow_post(token: str) -> bytes:
    """The head of a request whose body does not arrive."""
    lines = [f"POST {REVIEW} HTTP/1.1", "Host: x", "Content-Length: 100"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_slow_headers_end_the_connection(sent: bytes, connect: Connect) -> None:
    client = await connect()
    await client.send(sent)
    assert await client.rest() == b""


@pytest.mark.usefixtures("short")
async def test_an_idle_connection_ends(connect: Connect) -> None:
    client = await connect()
    await client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.usefixtures("short")
async def test_a_slow_body_gets_408(connect: Connect) -> None:
    client = await connect()
    await client.send(slow_post("mallory") + b'{"a":')
    assert b" 408 " in await client.head()


async def test_slow_bodies_of_one_user_do_not_delay_another(
    connect: Connect, server: HttpServer, tmp_path: Path
) -> None:
    clients = [await connect() for _ in range(20)]
    for client in clients:
        await client.send(slow_post("mallory"))
    async with session(server, tmp_path, "jane") as jane:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        assert (await jane.post(REVIEW, json=body)).status == 201


async def test_a_full_queue_gets_429_with_retry_after(
    connect: Connect, server: HttpServer, tmp_path: Path
) -> None:
    room = flow_control.CATCH_ALL.flow_seats + flow_control.CATCH_ALL.queue_length
    clients = [await connect() for _ in range(room)]
    for client in clients:
        await client.send(slow_post(""))
    async with session(server, tmp_path, "") as stranger:
        answer = await stranger.get("/healthz")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert await answer.text() == "Too many requests, please try again later.\n"


async def test_connections_above_the_limit_are_closed(connect: Connect) -> None:
    clients = [await connect() for _ in range(40)]
    for client in clients:  # all are counted when they are answered
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await client.head()
    assert await (await connect()).rest() == b""


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("watch", ["", "watch=1&"])
async def test_a_client_that_does_not_read_is_disconnected(
    watch: str, connect: Connect, server: HttpServer, tmp_path: Path
) -> None:
    async with session(server, tmp_path, "root") as root:
        for number in range(16):
            body = configmap(f"big{number}", text="x" * 1_000_000)
            async with root.post(CM, json=body) as made:
                assert (made.status, bool(await made.read())) == (201, True)
    client = await connect()
    request = f"GET {CM}?{watch}timeoutSeconds=3600 HTTP/1.1\r\nHost: x\r\n"
    await client.send(request.encode() + b"Authorization: Bearer root\r\n\r\n")
    async with asyncio.timeout(WAIT):
        while not client.writer.transport.is_closing():
            await asyncio.sleep(0.1)
            await _notice(client)


async def _notice(client: RawClient) -> None:
    """Write a byte, because a client that does not read notices a reset only when it writes."""
    try:
        await client.send(b"x")
    except ConnectionError:
        client.writer.close()


def test_a_watch_that_is_not_read_ends_and_frees_its_buffer() -> None:
    async def main() -> tuple[bool, int]:
        async with EmbeddedApiServer(clock=LoopClock()) as api_server:
            client = ApiClient(api_server)
            request = Request(method="GET", path=CM, query=(("watch", "1"),))
            response = await api_server.handle(request)
            assert response.chunks is not None
            cache = api_server.core.watch_caches.watch_cache("configmaps")
            [stream] = cache.streams
            size = 1_000_000
            for number in range(2 + watches.MAX_BUFFERED_BYTES // size):
                made = await client.post(CM, configmap(f"c{number}", text="x" * size))
                assert made.status == 201
            read = [chunk async for chunk in response.chunks]
            return stream.closed, sum(map(len, read))

    assert run_virtual(main()) == (True, 0)


def test_initial_events_are_not_buffered() -> None:
    """A watch of many objects starts within the limit: events are rendered when they are read."""

    async def main() -> tuple[int, int, int]:
        async with EmbeddedApiServer(clock=LoopClock()) as api_server:
            client = ApiClient(api_server)
            for number in range(20):
                await client.post(CM, configmap(f"c{number}", text="x" * 1_000_000))
            request = Request(
                method="GET", path=CM, query=(("watch", "1"), ("timeoutSeconds", "1"))
            )
            response = await api_server.handle(request)
            assert response.chunks is not None
            [stream] = api_server.core.watch_caches.watch_cache("configmaps").streams
            buffered = sum(map(len, stream.buffer))
            events = b"".join([chunk async for chunk in response.chunks]).splitlines()
            return len(events), buffered, json.loads(events[-1])["type"] == "ADDED"

    count, buffered, ordered = run_virtual(main())
    assert (count, ordered) == (20, True)
    assert buffered < 2_000_000


async def test_malformed_http_gets_a_status_with_security_headers(connect: Connect) -> None:
    client = await connect()
    await client.send(b"\x00\x01 / HTTP/9\r\n\r\n")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"X-Content-Type-Options: nosniff" in answer
    assert json.loads(answer.rpartition(b"\r\n")[2])["reason"] == "BadRequest"


async def test_an_unexpected_error_gets_a_status_without_a_traceback(
    server: HttpServer, tmp_path: Path
) -> None:
    async with session(server, tmp_path, "root") as root:
        answer = await root.post(CM, json=configmap("unexpected"))
        text = await answer.text()
        assert (answer.status, json.loads(text)["reason"]) == (500, "InternalError")
        assert "ZeroDivision" not in text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (await root.get(CM)).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/nothing", CM, "/api/v1/%ff"])
async def test_every_answer_has_security_headers(
    path: str, server: HttpServer, tmp_path: Path
) -> None:
    async with session(server, tmp_path, "") as stranger:
        answer = await stranger.get(path)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-cache, private"


async def test_a_compressed_body_is_not_expanded(server: HttpServer, tmp_path: Path) -> None:
    async with session(server, tmp_path, "root") as root:
        headers = {"Content-Encoding": "deflate", "Content-Type": "application/json"}
        answer = await root.post(CM, data=b"x\x9c\xab\xae\x05\x00\x01u\x00\xf9", headers=headers)
        assert answer.status == 400


async def test_warnings_cannot_break_or_fill_the_header(server: HttpServer, tmp_path: Path) -> None:
    unknown = {f"line\r\nX-Evil: {number}" + "x" * 500: 1 for number in range(200)}
    async with session(server, tmp_path, "root") as root:
        answer = await root.post(CM, json={**configmap("warned"), **unknown})
        assert answer.status == 201
        found = answer.headers.getall("Warning")
        assert 1 < len(found) < 20
        assert sum(map(len, found)) < 6000
        assert "X-Evil" not in answer.headers


# objects


def play(operations: list[dict[str, Any]], size: int = 0) -> tuple[int, str]:
    async def main() -> tuple[int, str]:
        async with EmbeddedApiServer(clock=LoopClock()) as api_server:
            client = ApiClient(api_server)
            await client.post(CM, configmap("a", a="b", text="x" * size))
            found = await client.patch(f"{CM}/a", operations, kind=JSON_PATCH)
            return found.status, found.object.get("message", "")

    found: tuple[int, str] = run_virtual(main())
    return found


def test_copies_of_a_json_patch_cannot_double_an_object() -> None:
    copies = [{"op": "copy", "from": "", "path": f"/x{number}"} for number in range(60)]
    assert play(copies, 1000)[0] == 422


def test_a_json_patch_has_at_most_10000_operations() -> None:
    test = {"op": "test", "path": "/data/a", "value": "b"}
    assert play([test] * limits.MAX_PATCH_OPERATIONS)[0] == 200
    code, text = play([test] * (limits.MAX_PATCH_OPERATIONS + 1))
    assert (code, text) == (
        413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000,"
        " got 10001",
    )


def test_an_object_larger_than_etcd_accepts_is_not_stored() -> None:
    async def main() -> list[tuple[int, str]]:
        async with EmbeddedApiServer(clock=LoopClock()) as api_server:
            client = ApiClient(api_server)
            path = "/apis/apps/v1/namespaces/default/controllerrevisions"
            found = []
            for size in (1_500_000, 1_600_000):
                body = {"metadata": {"name": f"r{size}"}, "revision": 1, "data": {"a": "x" * size}}
                answer = await client.post(path, body)
                found.append((answer.status, answer.object.get("message", "")))
            assert (await client.get(f"{path}/r1600000")).status == 404
            return found

    assert run_virtual(main()) == [(201, ""), (500, "etcdserver: request is too large")]
