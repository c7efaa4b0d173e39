"""Bad HTTP responses on a real socket: each fails its own request, with a typed error."""

import asyncio

import pytest

from moxwell.pve import errors, http_response
from moxwell.pve.client import PveReader
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.http_response import MAX_OVERHEAD_BYTES, BadResponse, ResponseReader
from moxwell.pve.transport import PveHttpTransport
from moxwell.pve.values import SecretValue
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_proxmox import ReceivedRequest, Reply, Script, serve_script

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
VERSION = '{"data":{"version":"8.4.21"}}'
LENGTH = b"Content-Length: 5\r\n"


def connect(url: str) -> PveHttpTransport:
    auth = TokenAuth("u@pve!t", SecretValue("hunter2"))
    return PveHttpTransport(RegionConfig(region="r1", urls=(url,), auth=auth), LoopClock())


def script(bad: Reply) -> Script:
    def reply(request: ReceivedRequest) -> Reply:
        return bad if request.path == "/bad" else Reply(body=VERSION)

    return reply


BAD = [
    pytest.param(CHUNKED + b"-6\r\nabc", "not an HTTP response", id="negative chunk size"),
    pytest.param(CHUNKED + b"zz\r\nabc", "not an HTTP response", id="chunk size is no number"),
    pytest.param(CHUNKED + b"f" * 40 + b"\r\n", "not an HTTP response", id="huge chunk size"),
    pytest.param(CHUNKED + b"1\r\na\r\n" * 40_000, "too large", id="tiny chunks"),
    pytest.param(CHUNKED + b"1;" + b"x" * 400_000, "chunks .* too large", id="chunk extension"),
    pytest.param(CHUNKED + b"0\r\nT: " + b"x" * 400_000, "too large", id="endless trailer"),
    pytest.param(HEAD + b"Content-Length: -5\r\n\r\n", "not an HTTP", id="negative length"),
    pytest.param(HEAD + LENGTH + b"Content-Length: 6\r\n\r\n", "not an HTTP", id="two lengths"),
    pytest.param(HEAD + b"X: " + b"y" * 400_000, "headers .* too large", id="one endless header"),
    pytest.param(HEAD + b"X: y\r\n" * 60_000, "headers .* too large", id="many headers"),
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, "interim", id="thousands of 1xx"),
    pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                 "not an HTTP response", id="upgrade"),
    pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", "not an HTTP response", id="another protocol"),
    pytest.param(HEAD + b"Content-Length: 9000\r\n\r\n" + b"x" * 9000, "body .* too large",
                 id="body over the limit"),
    pytest.param(CHUNKED + b"2328\r\n" + b"x" * 9000, "body .* too large",
                 id="chunked body over the limit"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "text"), BAD)
def test_a_bad_response_fails_its_own_request_only(
    raw: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_response, "MAX_BODY_BYTES", 8000)

    async def story() -> None:
        async with serve_script(script(Reply(raw=raw))) as server:
            transport = connect(server.url)
            for _ in range(4):  # more often than the circuit breaker tolerates
                with pytest.raises(errors.UnreadableResponse, match=text) as caught:
                    await transport.request("GET", "/bad")
                assert "region r1: GET /bad" in str(caught.value)
            assert len(server.received) == 4  # not repeated
            with pytest.raises(errors.OutcomeUnknown):
                await transport.request("POST", "/bad")
            assert (await PveReader(transport).version()).major == 8
            await transport.close()

    run_virtual(story())


def test_a_slowly_dripping_response_ends_at_the_deadline() -> None:
    async def story() -> None:
        raw = CHUNKED + b"1\r\na\r\n" * 1000
        reply = Reply(raw=raw, drip_seconds=2)
        async with serve_script(script(reply)) as server:
            transport, loop = connect(server.url), asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(errors.RegionUnreachable, match="in time"):
                await transport.request("GET", "/bad", deadline_seconds=20)
            assert loop.time() - began == pytest.approx(20, abs=1)
            assert (await PveReader(transport).version()).major == 8
            await transport.close()

    run_virtual(story())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_not_followed(status: int) -> None:
    async def story() -> None:
        reply = Reply(status, "", "Moved")
        async with serve_script(script(reply)) as server:
            transport = connect(server.url)
            with pytest.raises(errors.Redirected, match="Moved"):
                await transport.request("GET", "/bad")
            assert [request.path for request in server.received] == ["/bad"]
            await transport.close()

    run_virtual(story())


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("status", [200, 500])
def test_a_deeply_nested_body_is_a_typed_error(opening: str, status: int) -> None:
    async def story() -> None:
        body = '{"data":{"version":"8","unknown":' + opening * 10_000
        async with serve_script(lambda _: Reply(status, body)) as server:
            transport = connect(server.url)
            with pytest.raises(errors.UnknownPveError):
                await PveReader(transport).version()
            await transport.close()

    run_virtual(story())


def test_bytes_after_a_response_are_no_response_to_the_next_request() -> None:
    reader = ResponseReader()
    response = HEAD + b"Content-Length: 2\r\n\r\nhi"
    found = reader.feed(response + response.replace(b"hi", b"xx"))
    assert found is not None
    assert found.body == b"hi"
    assert not reader.keep_alive


def test_chunks_are_parsed_in_linear_time() -> None:
    reader = ResponseReader()
    reader.feed(CHUNKED)
    piece = b"40\r\n" + b"x" * 64 + b"\r\n"
    for _ in range(50_000):
        assert reader.feed(piece) is None
    found = reader.feed(b"0\r\n\r\n")
    assert found is not None
    assert len(found.body) == 64 * 50_000


def test_an_overhead_below_the_limit_is_accepted() -> None:
    reader = ResponseReader()
    head = HEAD + b"X: " + b"y" * (MAX_OVERHEAD_BYTES - 200) + b"\r\nContent-Length: 0\r\n\r\n"
    assert reader.feed(head) is not None
    with pytest.raises(BadResponse):
        ResponseReader().feed(HEAD + b"X: " + b"y" * MAX_OVERHEAD_BYTES)
