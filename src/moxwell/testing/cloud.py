"""
The cloud controllers with one simulated region and an embedded API server, on virtual time.

Tests write nodes and guests through a ``CloudEnvironment`` and wait for the controllers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.api.requests import Request, Response
from moxwell.controllers.cloud import features as settings
from moxwell.controllers.cloud.loops import LOOPS
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.values import SecretValue
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import SimStage

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
SETTINGS = ManagerSettings(elect=False, identity="test")


@dataclass
class CloudEnvironment:
    """A running region, API server and cloud controllers."""

    stage: SimStage
    kube: Kube
    regions: Regions
    handler: "RecordingHandler"
    runtime: Runtime

    async def until(self, check: Callable[[], Any], seconds: int = 900) -> Any:
        for _ in range(seconds):
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await self.stage.clock.sleep(1)
        raise AssertionError(f"the condition was not met within {seconds} seconds")

    async def stays(
        self, check: Callable[[], Coroutine[Any, Any, Any]], seconds: int = 600
    ) -> None:
        for _ in range(seconds // 10):
            assert await check()
            await self.stage.clock.sleep(10)

    def uuid(self, vmid: int = 100) -> str:
        smbios = str(self.stage.conf(vmid)["smbios1"])
        return next(p for p in smbios.split(",") if p.startswith("uuid=")).removeprefix("uuid=")

    def add_guest(self, vmid: int, name: str, uuid: str, host: str = "pve1") -> None:
        """Create a guest that no controller knows."""
        self.stage.mischief("take-vmid", vmid=vmid, name=name, node=host)
        self.rewrite(vmid, smbios1=f"uuid={uuid}")

    def rewrite(self, vmid: int, **changes: str) -> None:
        """Change the configuration of a guest without an API request."""
        self.stage.conf(vmid).update(changes)
        self.stage.region.changed.add(vmid)

    async def join(
        self,
        name: str = "ours",
        vmid: int = 100,
        *,
        ready: bool = True,
        uuid: str = "",
        **spec: Any,
    ) -> None:
        """Register a node as a kubelet with ``--cloud-provider=external`` does."""
        annotations = spec.pop("annotations", {})
        taint = {"key": plan.TAINT, "value": "true", "effect": "NoSchedule"}
        meta = {"name": name, "annotations": annotations}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        await self.kube.create(node | {"spec": {"taints": [taint]} | spec}, Node.resource)
        info = {"systemUUID": uuid or self.uuid(vmid)}
        status = {"nodeInfo": info, "conditions": [condition(ready, self.stage.clock.now())]}
        await self.kube.merge(Node.resource, name, {"status": status}, subresource="status")

    async def set_ready(self, name: str, ready: bool) -> None:
        change = {"status": {"conditions": [condition(ready, self.stage.clock.now())]}}
        await self.kube.merge(Node.resource, name, change, subresource="status")

    async def node(self, name: str = "ours") -> Node:
        return await self.kube.get(Node, name)

    async def initialized(self, name: str = "ours") -> Any:
        found = await self.kube.find(Node, name)
        return found is not None and not plan.is_new(found) and found

    async def exists(self, name: str = "ours") -> bool:
        return await self.kube.find(Node, name) is not None

    async def gone(self, name: str = "ours") -> bool:
        return not await self.exists(name)

    async def has_event(self, text: str) -> bool:
        rows = (await self.kube.list(EVENTS)).items
        return any(text in f"{e.get('reason')} {e.get('note')}" for e in rows)


def condition(ready: bool, at: datetime) -> dict[str, str]:
    return {"type": "Ready", "status": str(ready), "lastTransitionTime": f"{at:%FT%TZ}"}


@dataclass
class RecordingHandler:
    """A handler that records the requests it forwards."""

    store: EmbeddedApiServer
    seen: list[Request] = field(default_factory=list)

    async def handle(self, request: Request) -> Response:
        self.seen.append(request)
        return await self.store.handle(request)


@asynccontextmanager
async def world(
    version: str = "8.4.21", *, loops: tuple[str, ...] = LOOPS, **features: Any
) -> AsyncIterator[CloudEnvironment]:
    stage = SimStage(version)
    store = EmbeddedApiServer(clock=stage.clock)
    await store.start()
    handler = RecordingHandler(store)
    config = RegionConfig(region="r1", urls=("https://x",), auth=TokenAuth("t", SecretValue("s")))
    regions = Regions([config], stage.clock, connect=lambda _: stage.transport)
    runtime = assemble(handler, stage.clock, SETTINGS)
    add_cloud(runtime, stage.clock, regions, settings.from_mapping(features), loops=loops)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(runtime.manager.run()), group.create_task(regions.run())]
        await regions["r1"].inventory.wait_synced()
        yield CloudEnvironment(stage, Kube(store), regions, handler, runtime)
        for task in tasks:
            task.cancel()
    await store.stop()


@asynccontextmanager
async def joined(version: str = "8.4.21", **features: Any) -> AsyncIterator[CloudEnvironment]:
    """The same, with the node ``ours`` already initialized."""
    async with world(version, **features) as w:
        await w.join()
        await w.until(w.initialized)
        yield w


def story(tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on virtual time."""
    run_virtual(tell())


async def boot(w: CloudEnvironment) -> None:
    """Start the guest with a kernel whose agent answers."""
    w.stage.conf(100)["args"] = "-kernel /boot/vmlinuz -initrd /boot/initrd"
    await w.stage.settle(await w.stage.pve.qemu.start("pve1", 100))
