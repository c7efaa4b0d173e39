"""The transport against a server in this process: sockets, TLS, certificates, tokens, watches."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.api.requests import Request
from moxwell.errors import Denied, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.credentials import ApiIdentity, SecretText, StaticCredentials, token
from moxwell.kube.discovery import AGGREGATED
from moxwell.kube.errors import Gone, Unauthorized
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.kube.subresources import PODS
from moxwell.kube.transport import (
    ApiServerUnreachable,
    BadClientCertificate,
    KubeTransport,
    UntrustedApiServer,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": request.rel_url.raw_path,
            "query": list(request.query.items()),
            "auth": request.headers.get("authorization", ""),
            "type": request.headers.get("content-type", ""),
            "body": (await request.read()).decode(),
        }
    )


async def ask(server: str, request: Request, **more: Any) -> dict[str, Any]:
    async with KubeTransport(ApiAccess(server=server, **more)) as transport:
        response = await transport.handle(request)
    found: dict[str, Any] = msgspec.json.decode(response.body)
    return found


async def test_a_request_arrives_as_it_was_meant() -> None:
    request = Request(
        method="PATCH",
        path="/api/v1/a b/ü:x",
        query=(("labelSelector", "a in (b,c)"), ("labelSelector", "x=1&y")),
        headers={"content-type": "application/merge-patch+json"},
        body=b"{}",
    )
    async with serving(echo) as server:
        found = await ask(server + "/prefix/", request, credentials=StaticCredentials(token("t0p")))
    assert found["path"] == "/prefix/api/v1/a%20b/%C3%BC:x"
    assert found["query"] == [["labelSelector", "a in (b,c)"], ["labelSelector", "x=1&y"]]
    assert (found["auth"], found["type"], found["body"]) == (
        "Bearer t0p",
        "application/merge-patch+json",
        "{}",
    )


async def test_a_refused_identity_is_fetched_again_once() -> None:
    class Rotating:
        turn = 0

        async def identity(self) -> ApiIdentity:
            return token(f"t{self.turn}")

        def forget(self) -> None:
            self.turn += 1

    async def guard(request: web.Request) -> web.Response:
        if request.headers["authorization"] != "Bearer t1":
            return web.json_response({"code": 401}, status=401)
        return await echo(request)

    async with serving(guard) as server:
        found = await ask(server, Request(method="GET", path="/x"), credentials=Rotating())
        assert found["auth"] == "Bearer t1"
        async with KubeTransport(
            ApiAccess(server=server, credentials=StaticCredentials(token("no")))
        ) as t:
            with pytest.raises(Unauthorized):
                await Kube(t).get(PODS, "x", "n")


async def test_nobody_there_is_unreachable() -> None:
    async with serving(echo) as server:
        pass
    with pytest.raises(ApiServerUnreachable, match=r"cannot reach http://127\.0\.0\.1"):
        await ask(server, Request(method="GET", path="/"))
    assert issubclass(ApiServerUnreachable, Unreachable)


async def test_an_answer_cut_short_is_unreachable() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport
        request.transport.close()
        return response

    async with serving(cut) as server:
        with pytest.raises(ApiServerUnreachable):
            await ask(server, Request(method="GET", path="/"))


EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"%s","resourceVersion":"%d"}}}\n'


async def test_a_watch_flows_and_its_connection_is_given_back() -> None:
    gone = asyncio.Event()

    async def flow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for number in range(10**6):
                await response.write(EVENT % (b"p", number))
                await asyncio.sleep(0)
        except (ConnectionError, asyncio.CancelledError):
            gone.set()
        return response

    async with serving(flow) as server, KubeTransport(ApiAccess(server=server)) as transport:
        watch = aiter(Kube(transport).watch(PODS))
        seen = [await anext(watch) for _ in range(3)]
        await watch.aclose()
        async with asyncio.timeout(60):
            await gone.wait()
    assert [e.object["metadata"]["resourceVersion"] for e in seen] == ["0", "1", "2"]  # type: ignore[union-attr]


async def test_a_watch_that_breaks_off_is_unreachable_and_can_be_resumed() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(EVENT % (b"p", 7))
        assert request.transport
        request.transport.close()
        return response

    async with serving(broken) as server, KubeTransport(ApiAccess(server=server)) as transport:
        watch = Kube(transport).watch(PODS)
        with pytest.raises(ApiServerUnreachable):
            [e async for e in watch]
        assert watch.resource_version == "7"


async def test_a_refused_watch_raises_its_error() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"reason": "Expired"}, status=410)

    async with serving(refuse) as server, KubeTransport(ApiAccess(server=server)) as transport:
        with pytest.raises(Gone):
            [e async for e in Kube(transport).watch(PODS, resource_version="1")]


async def test_warnings_of_several_headers_all_arrive() -> None:
    async def warn(request: web.Request) -> web.Response:
        response = web.json_response({"metadata": {}})
        response.headers.add("Warning", '299 - "one"')
        response.headers.add("Warning", '299 - "two"')
        return response

    heard: list[str] = []
    async with serving(warn) as server, KubeTransport(ApiAccess(server=server)) as transport:
        await Kube(transport, warn=heard.append).get(PODS, "x")
    assert heard == ["one", "two"]


class Pki:
    """One authority, made in memory."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca, _ = self.issue("ca", ca=True)

    def issue(self, name: str, ca: bool = False) -> tuple[str, str]:
        key = self.key if ca else ec.generate_private_key(ec.SECP256R1())
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        start = datetime.now(UTC) - timedelta(hours=1)
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(alternative, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return made.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
def tls(pki: Pki, tmp_path: Path) -> ssl.SSLContext:
    certificate, key = pki.issue("kube.example")
    (tmp_path / "server").write_text(certificate + key)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=pki.ca)
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(tmp_path / "server")
    return made


async def whoami(request: web.Request) -> web.Response:
    assert request.transport
    peer = request.transport.get_extra_info("peercert")
    return web.json_response({"name": dict(part[0] for part in peer["subject"])["commonName"]})


def as_user(pki: Pki, name: str) -> ApiIdentity:
    certificate, key = pki.issue(name)
    return ApiIdentity(SecretText(""), certificate, SecretText(key))


class Changing:
    """Credentials that somebody changes under us."""

    def __init__(self, value: ApiIdentity) -> None:
        self.value = value

    async def identity(self) -> ApiIdentity:
        return self.value

    def forget(self) -> None: ...


async def test_a_client_certificate_proves_who_asks_and_a_new_one_is_taken_up(
    pki: Pki, tls: ssl.SSLContext
) -> None:
    source = Changing(as_user(pki, "anna"))
    async with serving(whoami, tls) as server:
        access = ApiAccess(server=server, ca=pki.ca, server_name="kube.example", credentials=source)
        async with KubeTransport(access) as transport:
            first = await transport.handle(Request(method="GET", path="/"))
            source.value = as_user(pki, "bert")
            second = await transport.handle(Request(method="GET", path="/"))
    assert (first.body, second.body) == (b'{"name": "anna"}', b'{"name": "bert"}')


async def test_a_watch_outlives_the_certificate_it_began_with(
    pki: Pki, tls: ssl.SSLContext
) -> None:
    go_on = asyncio.Event()

    async def serve(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return await whoami(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT % (b"p", 1))
        await go_on.wait()
        await response.write(EVENT % (b"p", 2))
        return response

    source = Changing(as_user(pki, "anna"))
    async with serving(serve, tls) as server:
        access = ApiAccess(server=server, ca=pki.ca, server_name="kube.example", credentials=source)
        async with KubeTransport(access) as transport:
            watch = aiter(Kube(transport).watch(PODS))
            await anext(watch)
            source.value = as_user(pki, "bert")
            answer = await transport.handle(Request(method="GET", path="/"))
            go_on.set()
            assert len([e async for e in watch]) == 1
            assert transport.open_sessions == (False, True)
    assert answer.body == b'{"name": "bert"}'


async def test_a_server_of_another_authority_is_not_trusted(pki: Pki, tls: ssl.SSLContext) -> None:
    async with serving(whoami, tls) as server:
        access = ApiAccess(server=server, ca=Pki().ca, server_name="kube.example")
        async with KubeTransport(access) as transport:
            with pytest.raises(UntrustedApiServer, match="not trusted"):
                await transport.handle(Request(method="GET", path="/"))
        wrong_name = replace(access, ca=pki.ca, server_name="")
        async with KubeTransport(wrong_name) as transport:
            with pytest.raises(UntrustedApiServer):
                await transport.handle(Request(method="GET", path="/"))
    assert issubclass(UntrustedApiServer, Denied)


async def test_insecure_trusts_anybody(pki: Pki, tls: ssl.SSLContext) -> None:
    async with serving(whoami, tls) as server:
        access = ApiAccess(
            server=server, insecure=True, credentials=StaticCredentials(as_user(pki, "anna"))
        )
        async with KubeTransport(access) as transport:
            assert (await transport.handle(Request(method="GET", path="/"))).status == 200


async def test_a_bad_key_is_told_without_showing_it(pki: Pki) -> None:
    certificate, _ = pki.issue("anna")
    identity = ApiIdentity(SecretText(""), certificate, SecretText("-----BEGIN NONSENSE-----"))
    access = ApiAccess(server="https://127.0.0.1:1", credentials=StaticCredentials(identity))
    async with KubeTransport(access) as transport:
        with pytest.raises(BadClientCertificate) as error:
            await transport.handle(Request(method="GET", path="/"))
    assert "NONSENSE" not in str(error.value)


POD_ROW = {"resource": "pods", "scope": "Namespaced", "verbs": ["get"], "shortNames": ["po"]}
MODERN = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            **POD_ROW,
                            "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
                            "subresources": [{"subresource": "eviction"}],
                        }
                    ],
                }
            ],
        }
    ],
}
OLD: dict[str, Any] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [
            {"name": "down", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}
        ],
    },
    "/api/v1": {
        "resources": [
            {
                "name": "pods",
                "kind": "Pod",
                "namespaced": True,
                "verbs": ["get"],
                "shortNames": ["po"],
            },
            {"name": "pods/eviction", "kind": "Eviction", "namespaced": True, "verbs": ["create"]},
        ]
    },
}


@pytest.mark.parametrize("modern", [True, False], ids=["aggregated", "group by group"])
async def test_discovery_tells_the_same_either_way(modern: bool) -> None:
    async def serve(request: web.Request) -> web.Response:
        if modern and request.headers["accept"] == AGGREGATED:
            empty = {"kind": "APIGroupDiscoveryList", "items": []}
            return web.json_response(MODERN if request.path == "/api" else empty)
        if request.path not in OLD:
            return web.json_response({}, status=503)
        return web.json_response(OLD[request.path])

    async with serving(serve) as server, KubeTransport(ApiAccess(server=server)) as transport:
        [pods] = await Kube(transport).discover()
    assert pods.resource == PODS
    assert (pods.short, pods.verbs, pods.subresources) == (("po",), ("get",), ("eviction",))
    assert pods.preferred
