"""The HTTPS server: TLS, certificates, tokens, streams, anonymous access."""

import io
import json
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from moxwell.api.requests import UserInfo
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.pki.folder import CertificateAuthority
from moxwell.testing.api_calls import CM, configmap

Ask = aiohttp.ClientSession


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[HttpServer]:
    clock = SystemClock()
    authority = CertificateAuthority(tmp_path / "pki", clock.now)
    ca = authority.certificate.decode()
    jane = UserInfo(name="jane", groups=("team",))
    async with (
        EmbeddedApiServer(clock=clock, root_ca=ca, token_key=authority.token_key) as api_server,
        HttpServer(
            api_server, authority, folder=tmp_path / "pki", tokens={"let-me-in": jane}
        ) as http,
    ):
        yield http


def client(tmp_path: Path, pair: Any = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tmp_path / "pki" / "ca.crt"))
    if pair is not None:
        for name, data in (("c.crt", pair.certificate), ("c.key", pair.key)):
            (tmp_path / name).write_bytes(data)
        context.load_cert_chain(tmp_path / "c.crt", tmp_path / "c.key")
    return context


def session(server: HttpServer, tls: ssl.SSLContext, **headers: str) -> Ask:
    connector = aiohttp.TCPConnector(ssl=tls)
    return aiohttp.ClientSession(server.url, connector=connector, headers=headers)


def admin(server: HttpServer, tmp_path: Path) -> Ask:
    pair = CertificateAuthority(tmp_path / "pki", SystemClock().now).client(
        "root", ["system:masters"]
    )
    return session(server, client(tmp_path, pair))


async def test_a_certificate_authenticates_its_user(server: HttpServer, tmp_path: Path) -> None:
    async with admin(server, tmp_path) as ask:
        made = await ask.post(CM, json=configmap("a", k="v"))
        assert made.status == 201
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        found = await (await ask.post(path, json=review)).json()
    assert found["status"]["userInfo"]["username"] == "root"
    assert "system:masters" in found["status"]["userInfo"]["groups"]


@pytest.mark.parametrize(
    "headers, path, status",
    [
        pytest.param({}, "/healthz", 200, id="strangers see health"),
        pytest.param({}, "/version", 200, id="strangers see the version"),
        pytest.param({}, CM, 403, id="strangers see nothing else"),
        pytest.param({"Authorization": "Bearer let-me-in"}, "/api", 200, id="a token discovers"),
        pytest.param({"Authorization": "Bearer let-me-in"}, CM, 403, id="a token is held to RBAC"),
        pytest.param({"Authorization": "Bearer wrong"}, "/healthz", 401, id="a wrong token"),
        pytest.param({"Authorization": "Basic eDp5"}, CM, 401, id="another scheme"),
    ],
)
async def test_anonymous_and_invalid_credentials(
    server: HttpServer, tmp_path: Path, headers: dict[str, str], path: str, status: int
) -> None:
    async with session(server, client(tmp_path), **headers) as ask:
        assert (await ask.get(path)).status == status


async def test_a_service_account_token_works_over_the_wire(
    server: HttpServer, tmp_path: Path
) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    async with admin(server, tmp_path) as ask:
        token = (await (await ask.post(path, json=request)).json())["status"]["token"]
    async with session(server, client(tmp_path), Authorization=f"Bearer {token}") as ask:
        error_response = await ask.get(CM)
        text = (await error_response.json())["message"]
    assert 'User "system:serviceaccount:default:default" cannot list' in text


async def test_impersonation_is_rejected(server: HttpServer, tmp_path: Path) -> None:
    async with admin(server, tmp_path) as ask:
        answer = await ask.get(CM, headers={"Impersonate-User": "jane"})
        assert answer.status == 403


async def test_a_certificate_of_another_ca_is_rejected(server: HttpServer, tmp_path: Path) -> None:
    other = CertificateAuthority(tmp_path / "other", SystemClock().now).client(
        "root", ["system:masters"]
    )
    async with session(server, client(tmp_path, other)) as ask:
        with pytest.raises(aiohttp.ClientError):
            await ask.get(CM)


async def test_a_watch_streams_events(server: HttpServer, tmp_path: Path) -> None:
    async with admin(server, tmp_path) as ask:
        listed = await (await ask.get(CM)).json()
        since = listed["metadata"]["resourceVersion"]
        async with ask.get(CM, params={"watch": "1", "resourceVersion": since}) as stream:
            await ask.post(CM, json=configmap("a"))
            event = json.loads(await stream.content.readline())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_a_too_large_body_is_rejected(server: HttpServer, tmp_path: Path) -> None:
    async with admin(server, tmp_path) as ask:
        answer = await ask.post(CM, data=io.BytesIO(b" " * (4 * 1024 * 1024)))
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_several_warnings_are_several_headers(server: HttpServer, tmp_path: Path) -> None:
    async with admin(server, tmp_path) as ask:
        answer = await ask.post(CM, json={**configmap("a"), "x": 1, "y": 2})
    assert answer.headers.getall("warning") == [
        '299 - "unknown field \\"x\\""',
        '299 - "unknown field \\"y\\""',
    ]


async def test_secret_files_are_private(server: HttpServer, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    for file in (path, *(tmp_path / "pki").iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")


async def test_disconnected_watches_are_removed(
    server: HttpServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(server, tmp_path) as ask, admin(server, tmp_path) as away:
        for number in range(5):
            answer = await away.get(CM, params={"watch": "true"})
            assert answer.connection is not None
            assert answer.connection.transport is not None
            answer.connection.transport.abort()
            for again in range(3):
                made = await ask.post(CM, json=configmap(f"w{number}-{again}", k="v" * 5000))
                assert made.status == 201
    assert [r for r in caplog.records if r.levelname in ("ERROR", "WARNING")] == []
