"""HTTP/1.1 connections on real sockets: complete, fragmented, cut and chunked responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.pve.http import KEEPALIVE_SECONDS, Connection, NotSent, Origin
from moxwell.pve.http_response import ConnectionLost, HttpResponse
from moxwell.testing.loop import run_virtual
from moxwell.testing.scripted_proxmox import closed_url

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
GET = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"


class Server:
    """Sends given bytes for each request, in given pieces; counts its connections."""

    def __init__(self, *says: bytes, pieces: int = 0, close: bool = False) -> None:
        self.says = list(says)
        self.pieces = pieces
        self.close = close
        self.connections = 0
        self.asked = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        while self.says:
            try:
                self.asked = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break  # the client closed the connection
            await self.say(self.says.pop(0), writer)
            if self.close:
                break
        writer.close()

    async def say(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        step = self.pieces or max(1, len(data))
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)

    @asynccontextmanager
    async def origin(self) -> AsyncIterator[Origin]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        origin = Origin(f"http://127.0.0.1:{port}", None)
        try:
            yield origin
        finally:
            origin.close()
            server.close()
            for writer in self.writers:
                writer.transport.abort()
            await asyncio.sleep(0.01)  # let both sides notice


async def ask(origin: Origin, head: bytes = GET, seconds: float = 9) -> HttpResponse:
    return await origin.exchange(head, None, asyncio.get_running_loop().time() + seconds)


def once(server: Server) -> HttpResponse:
    async def play() -> HttpResponse:
        async with server.origin() as origin:
            return await ask(origin)

    return run_virtual(play())


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        pytest.param(OK, HttpResponse(200, "OK", b"hi"), id="with a length"),
        pytest.param(b"HTTP/1.1 595 Connection refused\r\nContent-Length: 0\r\n\r\n",
                     HttpResponse(595, "Connection refused", b""), id="a reason and no body"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", HttpResponse(204, "No Content", b""),
                     id="no content has no length"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, HttpResponse(200, "OK", b"hi"),
                     id="an interim answer before it"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     b"2;x=y\r\nhi\r\n3\r\n all\r\n0\r\n\r\n".replace(b"3\r\n all", b"4\r\n all"),
                     HttpResponse(200, "OK", b"hi all"), id="in chunks"),
        pytest.param(b"HTTP/1.1 200\r\ncontent-LENGTH:2\r\n\r\nhi", HttpResponse(200, "", b"hi"),
                     id="no reason, odd case"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pieces", [0, 1, 7])
def test_a_response_is_parsed(said: bytes, answer: HttpResponse, pieces: int) -> None:
    assert once(Server(said, pieces=pieces)) == answer


def test_the_end_of_the_connection_ends_a_body_without_length() -> None:
    said = b"HTTP/1.0 200 OK\r\n\r\nall of it"
    assert once(Server(said, close=True)) == HttpResponse(200, "OK", b"all of it")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        pytest.param(b"", "closed", id="nothing"),
        pytest.param(OK[:-1], "closed", id="a body cut short"),
        pytest.param(OK[:20], "closed", id="a head cut short"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP response", id="another protocol"),
        pytest.param(b"HTTP/1.1 nine\r\n\r\n", "not an HTTP response", id="a status that is none"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                     "not an HTTP response", id="a chunk size that is none"),
        pytest.param(b"X" * 70_000, "not an HTTP response", id="an endless head"),
    ],
)  # fmt: skip
def test_an_incomplete_or_invalid_response_is_an_error(said: bytes, message: str) -> None:
    with pytest.raises(ConnectionLost, match=message):
        once(Server(said, close=True))


def test_a_silent_server_times_out() -> None:
    async def play() -> None:
        async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = Server()
        server.serve = mute  # type: ignore[method-assign]
        async with server.origin() as origin:
            start = asyncio.get_running_loop().time()
            with pytest.raises(ConnectionLost, match="in time"):
                await ask(origin, seconds=20)
            assert asyncio.get_running_loop().time() - start == pytest.approx(20, abs=1)

    run_virtual(play())


def test_a_refused_connection_is_not_sent() -> None:
    async def play() -> None:
        with pytest.raises(NotSent):
            await ask(Origin(closed_url(), None))

    run_virtual(play())


def test_a_connection_is_reused_until_it_is_too_old() -> None:
    async def play() -> int:
        server = Server(OK, OK, OK)
        async with server.origin() as origin:
            await ask(origin)
            await ask(origin)
            assert server.connections == 1
            await asyncio.sleep(KEEPALIVE_SECONDS + 1)
            await ask(origin)
        return server.connections

    assert run_virtual(play()) == 2


def test_a_connection_is_not_reused_after_connection_close() -> None:
    async def play() -> int:
        said = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        server = Server(said, said)
        async with server.origin() as origin:
            await ask(origin)
            await ask(origin)
        return server.connections

    assert run_virtual(play()) == 2


def test_a_cancelled_request_closes_its_connection() -> None:
    async def play() -> int:
        server = Server(OK[:-1], OK)
        async with server.origin() as origin:
            task = asyncio.create_task(ask(origin))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await ask(origin)).body == b"hi"
        return server.connections

    assert run_virtual(play()) == 2


def test_an_early_response_ends_an_upload() -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1
            yield b"x" * 65536

    async def play() -> None:
        server = Server(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n")
        async with server.origin() as origin:
            until = asyncio.get_running_loop().time() + 60
            head = b"POST /x HTTP/1.1\r\nContent-Length: 655360000\r\n\r\n"
            answer = await origin.exchange(head, pieces(), until)
            assert answer.status == 403

    run_virtual(play())
    assert sent < 10_000


class Pipe(asyncio.Transport):
    """A transport that discards everything."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: object) -> None:
        return None

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@given(st.binary(max_size=2000), st.integers(1, 400), st.booleans(), st.integers(1, 300))
def test_any_body_in_any_fragments_is_parsed(
    body: bytes, pieces: int, chunked: bool, size: int
) -> None:
    if chunked:
        parts = [body[n : n + size] for n in range(0, len(body), size)]
        coded = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + coded
    else:
        said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def play() -> HttpResponse:
        connection = Connection()
        connection.connection_made(Pipe())
        asked = asyncio.create_task(connection.exchange(GET, None, 60))
        await asyncio.sleep(0)
        for start in range(0, len(said), pieces):
            connection.data_received(said[start : start + pieces])
        return await asked

    assert run_virtual(play()).body == body


def test_an_unrequested_response_closes_the_connection() -> None:
    async def play() -> None:
        connection, pipe = Connection(), Pipe()
        connection.connection_made(pipe)
        connection.data_received(OK)
        assert pipe.closed

    run_virtual(play())
