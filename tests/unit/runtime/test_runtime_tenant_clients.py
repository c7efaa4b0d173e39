"""Clients of tenants: kept while the Secret is the same, which is read at most once a second."""

import asyncio
import base64
from typing import Any

from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import FRESH_SECONDS, TenantClients
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
