"""
Watches the pods of all nodes of a cluster once and delivers each to the kubelet of its node.

A kubelet that subscribes gets the pods that exist. After a broken watch the pods are listed again,
and those that are gone are delivered as deleted.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Denied, Retryable
from moxwell.kube.client import Kube
from moxwell.kube.codec import WatchEvent
from moxwell.kube.errors import Gone

Json = dict[str, Any]
Deliver = Callable[[Json, bool], None]  # a pod, and whether it was deleted
PODS = Resource("", "v1", "pods", "Pod")
RETRY_SECONDS = 3


class PodWatch:
    """The pods of a cluster by node; ``run`` keeps them current."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._pods: dict[str, dict[str, Json]] = {}  # by node and UID
        self._kubelets: dict[str, Deliver] = {}

    def subscribe(self, node: str, deliver: Deliver) -> None:
        """Deliver the pods of a node from now on, first those that exist."""
        self._kubelets[node] = deliver
        for pod in list(self._pods.get(node, {}).values()):
            deliver(pod, False)

    def unsubscribe(self, node: str, deliver: Deliver) -> None:
        if self._kubelets.get(node) is deliver:
            del self._kubelets[node]

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            with suppress(Retryable, Denied, Gone):
                await self._watch()
            await self._clock.sleep(RETRY_SECONDS)

    async def _watch(self) -> None:
        page = await self._kube.list(PODS)
        found = {pod["metadata"]["uid"] for pod in page.items}
        for pod in [p for pods in self._pods.values() for p in pods.values()]:
            if pod["metadata"]["uid"] not in found:
                self._put(pod, deleted=True)
        for pod in page.items:
            self._put(pod)
        async for event in self._kube.watch(PODS, resource_version=page.resource_version):
            if isinstance(event, WatchEvent):
                self._put(event.object, deleted=event.type == "DELETED")

    def _put(self, pod: Json, *, deleted: bool = False) -> None:
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node:
            return
        pods = self._pods.setdefault(node, {})
        if deleted:
            pods.pop(uid, None)
        else:
            pods[uid] = pod
        if not pods:
            del self._pods[node]
        if (deliver := self._kubelets.get(node)) is not None:
            deliver(pod, deleted)


async def own_watch(kube: Kube, node: str, clock: Clock, deliver: Deliver) -> None:
    """Watch the pods of one node with its own credentials until cancelled."""
    fields = {"spec.nodeName": node}
    while True:
        try:
            page = await kube.list(PODS, fields=fields)
            for pod in page.items:
                deliver(pod, False)
            version = page.resource_version
            async for event in kube.watch(PODS, fields=fields, resource_version=version):
                if isinstance(event, WatchEvent):
                    deliver(event.object, event.type == "DELETED")
        except (Retryable, Denied, Gone):
            await clock.sleep(RETRY_SECONDS)


async def shared_watch(watch: PodWatch, node: str, deliver: Deliver) -> None:
    """Get the pods of one node from the shared watch until cancelled."""
    watch.subscribe(node, deliver)
    try:
        await asyncio.Event().wait()
    finally:
        watch.unsubscribe(node, deliver)
