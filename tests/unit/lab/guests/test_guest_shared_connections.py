"""Which connections the guests of a cluster share, and as whom their requests arrive."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.api.requests import Request, Response
from moxwell.kube import credentials
from moxwell.kube.credentials import ApiIdentity, SecretText, StaticCredentials
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.pod_watch import PodWatch
from moxwell.lab.guests.shared_connections import SharedConnections
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig
from moxwell.testing.loop import LoopClock, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = ApiAccess(server="https://10.0.0.1:6443", ca="CA")
REQUEST = Request(method="GET", path="/api/v1/nodes/n1")


@dataclass
class FakeConnections:
    """Records who opened connections and what was sent over them."""

    access: ApiAccess
    sent: list[Request] = field(default_factory=list)
    closed: bool = False
    body: bytes = b""

    async def handle(self, request: Request) -> Response:
        self.sent.append(request)
        return Response(status=200, body=self.body)

    async def close(self) -> None:
        self.closed = True


class Lab:
    """Shared connections over fakes."""

    def __init__(self, *, proxied: bool) -> None:
        self.opened: list[FakeConnections] = []
        proxy = ApiIdentity(certificate="lab") if proxied else None
        self.connections = SharedConnections(
            self._dial,
            LoopClock(),
            asyncio.ensure_future,
            lambda access: proxy,
        )

    def _dial(self, access: ApiAccess) -> FakeConnections:
        self.opened.append(FakeConnections(access))
        return self.opened[-1]


def access(identity: ApiIdentity) -> ApiAccess:
    return ApiAccess(server=SERVER.server, ca=SERVER.ca, credentials=StaticCredentials(identity))


@pytest.fixture(scope="module")
def kubelets() -> dict[str, ApiAccess]:
    ca = certificates.create_ca("ca", NOW)
    found = {}
    for name in ("n1", "n2"):
        config = CertificateConfig(
            common_name=f"system:node:{name}", organizations=("system:nodes",)
        )
        pair = certificates.issue(config, ca, NOW, certificates.CA_LIFETIME)
        identity = ApiIdentity(
            certificate=pair.certificate.decode(), key=SecretText(pair.key.decode())
        )
        found[name] = access(identity)
    return found


async def test_kubelets_share_connections_and_keep_their_names(
    kubelets: dict[str, ApiAccess],
) -> None:
    lab = Lab(proxied=True)
    handlers = {name: lab.connections.dial(kubelet) for name, kubelet in kubelets.items()}
    for handler in handlers.values():
        await handler.handle(REQUEST)
    (shared,) = lab.opened
    assert (await shared.access.credentials.identity()).certificate == "lab"
    assert [r.headers["impersonate-user"] for r in shared.sent] == [
        "system:node:n1",
        "system:node:n2",
    ]
    assert {r.headers["impersonate-group"] for r in shared.sent} == {"system:nodes"}
    await handlers["n1"].close()
    await handlers["n1"].close()  # idempotent
    assert not shared.closed
    await handlers["n2"].close()
    assert shared.closed


async def test_tokens_share_connections_without_a_certificate() -> None:
    lab = Lab(proxied=True)
    for token in ("abcdef.0123456789abcdef", "fedcba.0123456789abcdef"):
        await lab.connections.dial(access(credentials.token(token))).handle(REQUEST)
    (shared,) = lab.opened
    assert await shared.access.credentials.identity() == ApiIdentity()
    assert [r.headers["authorization"] for r in shared.sent] == [
        "Bearer abcdef.0123456789abcdef",
        "Bearer fedcba.0123456789abcdef",
    ]


async def test_a_kubelet_has_its_own_connections_where_the_lab_has_no_identity(
    kubelets: dict[str, ApiAccess],
) -> None:
    lab = Lab(proxied=False)
    for kubelet in kubelets.values():
        handler = lab.connections.dial(kubelet)
        await handler.handle(REQUEST)
        assert lab.connections.pods(kubelet) is None
        await handler.close()
    assert [c.access for c in lab.opened] == list(kubelets.values())
    assert all(c.closed and "impersonate-user" not in c.sent[0].headers for c in lab.opened)


def pod(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"nodeName": node}}


class ScriptedPods:
    """A client whose list and watch are given."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self._pages = list(pages)

    async def list(self, resource: Any) -> Any:
        items = self._pages.pop(0)
        return type("Page", (), {"items": items, "resource_version": "1"})

    async def watch(self, resource: Any, resource_version: str) -> Any:
        if not self._pages:
            await asyncio.Event().wait()
        for _ in ():
            yield


async def test_the_shared_watch_delivers_the_pods_of_each_node() -> None:
    class Instant(LoopClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    a, b, late = pod("a", "n1"), pod("b", "n2"), pod("late", "n1")
    kube: Any = ScriptedPods([a, b], [b, late])
    watch, got = PodWatch(kube, Instant()), []
    watch.subscribe("n1", lambda p, deleted: got.append((p["metadata"]["name"], deleted)))
    running = asyncio.create_task(watch.run())
    while len(got) < 3:
        await asyncio.sleep(0)
    assert got == [("a", False), ("a", True), ("late", False)]
    known: list[str] = []
    watch.subscribe("n2", lambda p, deleted: known.append(p["metadata"]["name"]))
    assert known == ["b"]  # a kubelet that comes later gets what exists
    running.cancel()


@pytest.mark.parametrize(
    "body", [b"", b'{"items": 5}', b'{"items": [{"metadata": {"name": "p", "uid": "u"}}]}']
)
def test_pods_that_cannot_be_read_are_read_again(
    kubelets: dict[str, ApiAccess], body: bytes
) -> None:
    async def watch() -> int:
        lab = Lab(proxied=True)
        await lab.connections.dial(kubelets["n1"]).open()
        (shared,) = lab.opened
        shared.body = body
        assert lab.connections.pods(kubelets["n1"]) is not None
        await asyncio.sleep(60)
        return len(shared.sent)

    assert run_virtual(watch()) > 2
