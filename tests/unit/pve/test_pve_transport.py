"""HTTP transport on real sockets: credentials, failover, deadlines, TLS, uploads, redaction."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.transport import CertificateRefused, FileUpload, PveHttpTransport
from moxwell.pve.values import SecretValue
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_proxmox import (
    ReceivedRequest,
    Reply,
    ScriptedServer,
    always_reply,
    closed_url,
    serve_script,
)

VERSION = Reply(body='{"data":{"version":"8.4.21"}}')
TOKEN = TokenAuth("u@pve!t", SecretValue("hunter2-token"))
UPID = "UPID:pve1:000039FE:0007D90C:6AFA23F8:qmstart:100:u@pve!t:"


def config(*urls: str, auth: TokenAuth | PasswordAuth = TOKEN, **more: object) -> RegionConfig:
    return RegionConfig(region="r1", urls=urls, auth=auth, **more)  # type: ignore[arg-type]


def connect(*urls: str, **more: object) -> PveHttpTransport:
    return PveHttpTransport(config(*urls, **more), LoopClock())  # type: ignore[arg-type]


async def with_server(
    reply: Reply, use: Callable[[PveHttpTransport, ScriptedServer], Awaitable[None]], **more: object
) -> None:
    async with serve_script(always_reply(reply)) as server:
        transport = connect(server.url, **more)
        await use(transport, server)
        await transport.close()


def test_every_request_carries_the_token() -> None:
    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        assert (await PveWriter(transport).version()).major == 8
        (received,) = server.received
        assert received.headers["authorization"] == "PVEAPIToken=u@pve!t=hunter2-token"
        assert (received.method, received.path) == ("GET", "/version")

    run_virtual(with_server(VERSION, use))


def test_parameters_of_get_and_delete_are_a_query_of_post_and_put_a_form() -> None:
    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        for method in ("GET", "DELETE", "POST", "PUT"):
            await transport.request(method, "/x", {"a": "1 2&ä", "b": True, "c": None})
        assert all(seen.fields == {"a": "1 2&ä", "b": "1"} for seen in server.received)
        assert [bool(seen.body) for seen in server.received] == [False, False, True, True]

    run_virtual(with_server(Reply(), use))


def test_an_error_response_is_classified_and_names_the_request() -> None:
    async def use(transport: PveHttpTransport, _: ScriptedServer) -> None:
        with pytest.raises(errors.Locked, match="region r1: PUT /x: VM is locked") as caught:
            await transport.request("PUT", "/x")
        assert "hunter2" not in str(caught.value) + repr(caught.value)

    run_virtual(with_server(Reply(500, '{"data":null,"message":"VM is locked (backup)\\n"}'), use))


def test_a_refusal_that_quotes_a_secret_is_not_repeated() -> None:
    async def use(transport: PveHttpTransport, _: ScriptedServer) -> None:
        with pytest.raises(errors.InvalidParameter) as caught:
            await transport.request("PUT", "/x", {"cipassword": "hunter2", "cores": 1})
        assert "hunter2" not in str(caught.value)
        assert caught.value.fields == {}

    body = json.dumps({"message": "bad", "errors": {"cipassword": "'hunter2' is too short"}})
    run_virtual(with_server(Reply(400, body), use))


async def first_then_second(
    first: Reply | None, method: str = "GET"
) -> tuple[str, int, int, PveHttpTransport]:
    """Send one request to two URLs; the first fails in some way (None: nothing listens)."""
    async with (
        serve_script(always_reply(first or Reply())) as a,
        serve_script(always_reply(Reply(body='{"data":"b"}'))) as b,
    ):
        transport = connect(a.url if first else closed_url(), b.url)
        try:
            answer = (await transport.request(method, "/nodes/x/y")).decode()
        except errors.PveError as error:
            answer = type(error).__name__
        await transport.close()
        return answer, len(a.received), len(b.received), transport


@pytest.mark.parametrize(
    ("first", "method", "outcome", "asked"),
    [
        pytest.param(None, "GET", "b", 1, id="refused, a read: the next URL"),
        pytest.param(None, "POST", "b", 1, id="refused, a change was never sent: the next URL"),
        pytest.param(Reply(cut=True), "GET", "b", 1, id="cut, a read: the next URL"),
        pytest.param(Reply(cut=True), "POST", "OutcomeUnknown", 0, id="cut, a change: never twice"),
        pytest.param(Reply(cut=True), "PUT", "OutcomeUnknown", 0, id="cut, a PUT: never twice"),
        pytest.param(
            Reply(cut=True), "DELETE", "OutcomeUnknown", 0, id="cut, a DELETE: never twice"
        ),
        pytest.param(Reply(silent=True), "GET", "b", 1, id="silence, a read: the next URL"),
        pytest.param(
            Reply(silent=True), "POST", "OutcomeUnknown", 0, id="silence, a change: never twice"
        ),
        pytest.param(Reply(595, ""), "GET", "b", 1, id="595, a read: another way to the host"),
        pytest.param(Reply(595, ""), "POST", "b", 1, id="595, a change that was not delivered"),
        pytest.param(Reply(596, ""), "GET", "b", 1, id="596, a read: another way"),
        pytest.param(Reply(596, ""), "POST", "HostUnreachable", 0, id="596, a change: never twice"),
        pytest.param(Reply(500, "{}"), "GET", "UnknownPveError", 0, id="an answer is an answer"),
    ],
)
def test_failover(first: Reply | None, method: str, outcome: str, asked: int) -> None:
    answer, _, asked_second, _ = run_virtual(first_then_second(first, method))
    assert outcome in answer
    assert asked_second == asked


def test_a_read_is_retried_once_after_a_broken_connection() -> None:
    async def story() -> None:
        replies = [
            Reply(cut=True),
            Reply(),
            Reply(cut=True),
            Reply(),
            Reply(cut=True),
            Reply(cut=True),
        ]
        async with serve_script(lambda _: replies.pop(0)) as server:
            transport = connect(server.url)
            await transport.request("GET", "/x")
            with pytest.raises(errors.OutcomeUnknown):
                await transport.request("POST", "/x")
            await transport.request("GET", "/x")
            with pytest.raises(errors.RegionUnreachable):
                await transport.request("GET", "/x")
            assert len(server.received) == 6
            await transport.close()

    run_virtual(story())


def test_requests_return_to_the_preferred_url_after_its_recovery() -> None:
    async def story() -> None:
        url = closed_url()
        port = int(url.rpartition(":")[2])
        async with serve_script(always_reply(Reply())) as second:
            transport = connect(url, second.url)
            for _ in range(3):
                await transport.request("GET", "/x")
            assert len(second.received) == 3
            assert transport.statistics().unanswered == 1  # the others did not try it
            async with serve_script(always_reply(Reply()), port=port) as first:
                await asyncio.sleep(31)
                for _ in range(3):
                    await transport.request("GET", "/x")
                assert (len(first.received), len(second.received)) == (3, 3)
            await transport.close()

    run_virtual(story())


def test_a_dead_host_opens_no_breaker() -> None:
    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        for _ in range(10):
            with pytest.raises(errors.HostUnreachable):
                await transport.request("GET", "/nodes/dead/status")
        assert len(server.received) == 10
        assert not transport.statistics().breaker_open

    run_virtual(with_server(Reply(595, "", reason="Connection refused"), use))


def test_a_dead_region_fails_at_once_and_recovers() -> None:
    async def story() -> None:
        url = closed_url()
        transport = connect(url)
        for _ in range(3):
            with pytest.raises(errors.RegionUnreachable, match="no URL answers"):
                await transport.request("GET", "/x")
        sent = transport.statistics().sent
        with pytest.raises(errors.RegionUnreachable, match="next attempt in 2 s"):
            await transport.request("GET", "/x")
        assert transport.statistics().sent == sent
        assert transport.statistics().breaker_open
        async with serve_script(always_reply(Reply()), port=int(url.rpartition(":")[2])):
            await asyncio.sleep(2)
            await transport.request("GET", "/x")
            assert not transport.statistics().breaker_open
        await transport.close()

    run_virtual(story())


def test_a_request_ends_at_its_deadline() -> None:
    async def use(transport: PveHttpTransport, _: ScriptedServer) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(errors.RegionUnreachable):
            await transport.request("GET", "/x", deadline_seconds=7)
        assert loop.time() - start == pytest.approx(7, abs=0.5)

    run_virtual(with_server(Reply(silent=True), use))


def test_concurrent_requests_are_limited() -> None:
    async def story() -> None:
        now = most = 0

        async def slowly(_: ReceivedRequest) -> Reply:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(1)
            now -= 1
            return Reply()

        async with serve_script(slowly) as server:
            transport = connect(server.url, concurrency=3)
            async with asyncio.TaskGroup() as group:
                for _ in range(9):
                    group.create_task(transport.request("GET", "/x"))
            assert (most, len(server.received)) == (3, 9)
            await transport.close()

    run_virtual(story())


def test_the_time_in_the_queue_counts() -> None:
    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        first = asyncio.create_task(transport.request("GET", "/x", deadline_seconds=60))
        await asyncio.sleep(1)
        with pytest.raises(errors.Overloaded, match="1 other requests"):
            await transport.request("GET", "/x", deadline_seconds=5)
        assert len(server.received) == 1
        first.cancel()

    run_virtual(with_server(Reply(silent=True), use, concurrency=1))


def test_a_cancelled_request_frees_its_slot() -> None:
    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        for _ in range(3):
            task = asyncio.create_task(transport.request("GET", "/x"))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not transport.statistics().breaker_open
        assert len(server.received) == 3

    run_virtual(with_server(Reply(silent=True), use, concurrency=1))


# ------------------------------------------------------------------ tickets


class SkipClock(LoopClock):
    """The clock of the loop, which the test can advance."""

    skipped = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


class Door:
    """A server that issues tickets and accepts only the newest."""

    def __init__(self) -> None:
        self.tickets = 0
        self.logins: list[dict[str, str]] = []

    def __call__(self, received: ReceivedRequest) -> Reply:
        if received.path == "/access/ticket":
            if received.fields["password"] != "hunter2":
                return Reply(401, "", reason="authentication failure")
            self.tickets += 1
            self.logins.append(received.fields)
            data = {"ticket": f"PVE:t{self.tickets}", "CSRFPreventionToken": f"c{self.tickets}"}
            return Reply(body=json.dumps({"data": data}))
        if received.headers.get("cookie") != f"PVEAuthCookie=PVE:t{self.tickets}":
            return Reply(401, "", reason="No ticket")
        csrf = received.headers.get("csrfpreventiontoken")
        if received.method != "GET" and csrf != f"c{self.tickets}":
            return Reply(401, "", reason="Permission denied - invalid csrf token")
        return Reply()


def test_a_ticket_is_fetched_once_used_with_csrf_and_renewed() -> None:
    async def story() -> None:
        door = Door()
        async with serve_script(door) as server:
            clock = SkipClock()
            auth = PasswordAuth("root@pam", SecretValue("hunter2"))
            transport = PveHttpTransport(config(server.url, auth=auth), clock)
            async with asyncio.TaskGroup() as group:
                for method in ("GET", "POST", "PUT", "DELETE", "GET"):
                    group.create_task(transport.request(method, "/x"))
            assert door.tickets == 1
            clock.skipped += 3601
            await transport.request("GET", "/x")
            assert door.tickets == 2
            door.tickets += 1  # the server discards the ticket
            await transport.request("POST", "/x")
            assert door.tickets == 4
            await transport.close()

    run_virtual(story())


def test_the_error_of_a_wrong_password_does_not_contain_it() -> None:
    async def story() -> None:
        async with serve_script(Door()) as server:
            transport = connect(
                server.url, auth=PasswordAuth("root@pam", SecretValue("wrong-hunter3"))
            )
            with pytest.raises(errors.CredentialsRefused) as caught:
                await transport.request("GET", "/x")
            assert "hunter3" not in f"{caught.value!r}{caught.value}"
            await transport.close()

    run_virtual(story())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"ticket": "x", "NeedTFA": 1}, "second factor"),
        ({"username": "x"}, "contains no ticket"),
    ],
)
def test_a_login_without_usable_ticket_is_an_error(data: dict[str, object], error: str) -> None:
    async def use(transport: PveHttpTransport, _: ScriptedServer) -> None:
        with pytest.raises(Exception, match=error):
            await transport.request("GET", "/x")

    auth = PasswordAuth("root@pam", SecretValue("p"))
    run_virtual(with_server(Reply(body=json.dumps({"data": data})), use, auth=auth))


# ------------------------------------------------------------------ uploads


def test_an_upload_is_streamed_with_its_length_and_the_file_last() -> None:
    taken: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for n in range(64):
            taken.append(n)
            yield bytes([n]) * 16384

    async def use(transport: PveHttpTransport, server: ScriptedServer) -> None:
        file = FileUpload("a.iso", 64 * 16384, chunks)
        upid = await PveWriter(transport).storage.upload("pve1", "local", file, checksum="c")
        assert upid == UPID
        (received,) = server.received
        assert received.path == "/nodes/pve1/storage/local/upload"
        assert int(received.headers["content-length"]) == len(received.body)
        assert "transfer-encoding" not in received.headers
        head, _, rest = received.body.partition(b'filename="a.iso"')
        assert b'name="content"\r\n\r\niso\r\n' in head
        assert b'name="checksum"\r\n\r\nc\r\n' in head
        assert b"".join(bytes([n]) * 16384 for n in range(64)) in rest
        assert rest.endswith(b"--\r\n")

    run_virtual(with_server(Reply(body=json.dumps({"data": UPID})), use))
    assert taken == list(range(64))


# ------------------------------------------------------------------ TLS


def certificate(folder: Path) -> tuple[ssl.SSLContext, str, str]:
    """Make a self-signed certificate for 127.0.0.1: server context, PEM, SHA-256 fingerprint."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pve")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = cert.public_bytes(serialization.Encoding.PEM)
    (folder / "cert.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    der = cert.public_bytes(serialization.Encoding.DER)
    return context, pem.decode(), hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize(
    ("how", "trusted"),
    [
        pytest.param("nothing", False, id="verified by default"),
        pytest.param("ca", True, id="by its CA"),
        pytest.param("fingerprint", True, id="by its fingerprint"),
        pytest.param("wrong", False, id="not by another fingerprint"),
        pytest.param("insecure", True, id="not verified if insecure"),
    ],
)
def test_tls(how: str, trusted: bool, tmp_path: Path) -> None:
    context, pem, fingerprint = certificate(tmp_path)
    ways: dict[str, dict[str, Any]] = {
        "nothing": {}, "ca": {"ca_pem": pem}, "fingerprint": {"fingerprint": fingerprint},
        "wrong": {"fingerprint": "00" * 32}, "insecure": {"insecure": True},
    }  # fmt: skip

    async def story() -> None:
        async with serve_script(always_reply(VERSION), tls=context) as server:
            transport = connect(server.url, **ways[how])
            if trusted:
                assert (await PveWriter(transport).version()).version == "8.4.21"
            else:
                with pytest.raises(CertificateRefused, match="set ca_file or fingerprint"):
                    await transport.request("POST", "/x")
                assert server.received == []
            await transport.close()

    with asyncio.Runner() as runner:
        runner.run(story())


def test_the_error_of_a_body_that_is_no_json_does_not_quote_it() -> None:
    async def use(transport: PveHttpTransport, _: ScriptedServer) -> None:
        with pytest.raises(errors.UnknownPveError, match="cannot decode the answer") as caught:
            await PveWriter(transport).version()
        assert "hunter2" not in str(caught.value)

    run_virtual(with_server(Reply(body="<html>hunter2</html>"), use))
