"""Clients of tenants: kept while the Secret is the same, which is read at most once a second."""

import asyncio
import base64
from typing import Any

import pytest

from moxwell.api.requests import Request, Response
from moxwell.kube.errors import ApiServerAnswer
from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import FRESH_SECONDS, SECRETS, TenantClients
from moxwell.testing.loop import LoopClock, run_virtual

CLUSTER = Key("team", "a")
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
"""


class SecretReader:
    """Answers with the present Secret and counts the reads."""

    def __init__(self) -> None:
        self.version: str | None = "1"
        self.reads = 0

    async def find(self, kind: Any, name: str, namespace: str) -> dict[str, Any] | None:
        self.reads += 1
        if self.version is None:
            return None
        text = base64.b64encode(KUBECONFIG.encode()).decode()
        return {"metadata": {"resourceVersion": self.version}, "data": {"value": text}}


class ClosableHandler:
    """Counts how many are open."""

    def __init__(self, opened: list["ClosableHandler"]) -> None:
        self._opened = opened
        opened.append(self)

    async def close(self) -> None:
        self._opened.remove(self)


def test_a_client_is_kept_until_its_secret_changes_or_goes() -> None:
    async def story() -> None:
        reader: Any = SecretReader()
        opened: list[ClosableHandler] = []
        connect: Any = lambda access: ClosableHandler(opened)  # noqa: E731
        clients = TenantClients(reader, connect, LoopClock())
        first = await clients.find(CLUSTER)
        assert [await clients.find(CLUSTER) for _ in range(50)] == [first] * 50
        assert reader.reads == 1
        await asyncio.sleep(FRESH_SECONDS)
        assert await clients.find(CLUSTER) is first
        assert reader.reads == 2
        reader.version = "2"
        await asyncio.sleep(FRESH_SECONDS)
        second = await clients.find(CLUSTER)
        assert second is not None
        assert second is not first
        assert len(opened) == 1
        reader.version = None
        await asyncio.sleep(FRESH_SECONDS)
        assert await clients.find(CLUSTER) is None
        assert opened == []

    run_virtual(story())


class Page:
    """Answers every request with the same error."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def handle(self, request: Request) -> Response:
        return Response(status=500, body=self._body)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(b'{"kind": "Status", "message": "etcd is away"}', True, id="a Status"),
        pytest.param(b"password of the database: etcd is away", False, id="a page"),
        pytest.param(b'{"message": "etcd is away"}', False, id="other JSON"),
        pytest.param(b'["etcd is away"]', False, id="a list"),
        pytest.param(b"\xff etcd is away", False, id="no text"),
    ],
)
def test_errors_of_a_server_that_a_user_chose_show_a_status_only(body: bytes, shown: bool) -> None:
    async def story() -> None:
        reader: Any = SecretReader()
        connect: Any = lambda access: Page(body)  # noqa: E731
        client = await TenantClients(reader, connect, LoopClock()).get(CLUSTER)
        with pytest.raises(ApiServerAnswer) as caught:
            await client.get(SECRETS, "a", "team")
        assert ("etcd is away" in str(caught.value)) is shown

    run_virtual(story())
