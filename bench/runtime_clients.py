"""
The contestants of bench/runtime.py: each lists all objects and watches all events into a copy.

Each is one process. CPU is measured from before its first request until the last event is in its
copy, without imports; memory is the growth of the process.
"""

import asyncio
import importlib
import json
import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from moxwell.api.conditions import Condition
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value

GROUP, VERSION, PLURAL = "bench.moxwell.dev", "v1", "machines"


class Disk(Value, frozen=True, kw_only=True):
    name: str
    size_gib: int = field(name="sizeGiB")
    storage: str = ""


class Net(Value, frozen=True, kw_only=True):
    name: str
    bridge: str
    model: str = "virtio"
    mtu: int = 1500


class Address(Value, frozen=True, kw_only=True):
    type: str
    address: str


class Spec(Value, frozen=True, kw_only=True):
    region: str = ""
    cores: int = 1
    memory_mib: int = field(name="memoryMiB", default=512)
    template: int = 0
    virtual_machine_id: int | None = field(name="virtualMachineID", default=None)
    provider_id: str = field(name="providerID", default="")
    disks: tuple[Disk, ...] = ()
    network: tuple[Net, ...] = ()


class Status(Value, frozen=True, kw_only=True):
    ready: bool = False
    addresses: tuple[Address, ...] = ()
    conditions: tuple[Condition, ...] = ()


@kind(group=GROUP, version=VERSION, plural=PLURAL, name="Machine", status=True)
class Machine(Object, frozen=True, kw_only=True):
    spec: Spec = field(default_factory=Spec)
    status: Status = field(default_factory=Status)


class Usage:
    """CPU and memory of this process, from ``start`` on."""

    def __init__(self, count: int, events: int) -> None:
        self.last = str(count + events)
        self._count = count
        self._cpu = self._rss = self._filled = 0.0
        self._copy = 0.0

    def start(self) -> None:
        self._cpu, self._rss = cpu(), rss()

    def filled(self) -> None:
        """Record that the list is in the copy."""
        self._filled = cpu()
        self._copy = rss() - self._rss

    def finish(self) -> None:
        """Record that the last event is in the copy; print the figures and exit."""
        end = cpu()
        found = {
            "list": self._filled - self._cpu,
            "watch": end - self._filled,
            "total": end - self._cpu,
            "kib_per_object": self._copy / self._count / 1024,
            "rss_mib": rss() / 2**20,
        }
        print(json.dumps(found), flush=True)
        sys.stdout.flush()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


class _List(msgspec.Struct):
    items: list[Machine]


class _Event(msgspec.Struct):
    type: str
    object: Machine


async def bare(url: str, usage: Usage) -> None:
    """aiohttp and msgspec only: a dict of typed objects."""
    import aiohttp

    path = f"{url}/apis/{GROUP}/{VERSION}/{PLURAL}"
    decode = msgspec.json.Decoder(_Event).decode
    usage.start()
    copy: dict[tuple[str, str], Machine] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        async with session.get(path) as response:
            for obj in msgspec.json.decode(await response.read(), type=_List).items:
                copy[obj.metadata.namespace, obj.metadata.name] = obj
        usage.filled()
        query = {"watch": "true", "resourceVersion": str(len(copy))}
        async with session.get(path, params=query, read_bufsize=1 << 18) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = decode(line)
                    meta = event.object.metadata
                    if event.type == "DELETED":
                        copy.pop((meta.namespace, meta.name), None)
                    else:
                        copy[meta.namespace, meta.name] = event.object
                    if meta.resource_version == usage.last:
                        return


async def ours(url: str, usage: Usage, *, indexed: bool = False) -> None:
    """The runtime's cache on the client of ``kube``, with or without indexes and a queue."""
    import random

    from moxwell.clock import SystemClock
    from moxwell.kube.client import Kube
    from moxwell.kube.kubeconfig import ApiAccess
    from moxwell.kube.transport import KubeTransport
    from moxwell.runtime import index
    from moxwell.runtime.backoff import Backoff, BackoffSettings
    from moxwell.runtime.cache import Cache
    from moxwell.runtime.objects import key_of
    from moxwell.runtime.queue import Queue
    from moxwell.runtime.reflector import Reflector

    clock, rng, done = SystemClock(), random.Random(1), asyncio.Event()
    indexes = {"owner": index.by_owner, "provider": index.by_provider_id} if indexed else {}
    usage.start()
    cache: Cache[Machine] = Cache(Machine, indexes)
    queue = Queue(clock, Backoff(clock, BackoffSettings(), rng))

    def heard(old: Any, new: Any, listed: bool) -> None:
        if indexed:
            queue.add(key_of(new), shard=new.spec.region)
        if new is not None and new.metadata.resource_version == usage.last:
            done.set()

    cache.subscribe(heard)
    async with KubeTransport(ApiAccess(server=url)) as transport:
        reflector = Reflector(Kube(transport), clock, cache, rng=rng, page_size=0)
        task = asyncio.create_task(reflector.run())
        await cache.wait_synced()
        usage.filled()
        last = asyncio.create_task(done.wait())
        await asyncio.wait({task, last}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()  # it never returns; this raises its error
        task.cancel()
        await asyncio.wait([task])


async def with_kopf(url: str, usage: Usage) -> None:
    """kopf with one handler that only stores the object."""
    import kopf

    logging.disable(logging.CRITICAL)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    copy: dict[tuple[str, str], Any] = {}
    done, count = asyncio.Event(), int(usage.last)
    listed = usage._count

    @kopf.on.login(registry=registry)  # type: ignore[arg-type, unused-ignore]
    def login(**_: Any) -> Any:
        return kopf.ConnectionInfo(server=url)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def seen(body: Any, **_: Any) -> None:
        meta = body["metadata"]
        copy[meta["namespace"], meta["name"]] = dict(body)
        if len(copy) == listed and meta["resourceVersion"] == str(listed):
            usage.filled()
        if int(meta["resourceVersion"]) >= count:
            done.set()

    usage.start()
    task = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True)
    )
    await done.wait()
    usage.finish()
    task.cancel()
    os._exit(0)  # its shutdown is slow and not part of the measurement


def official(url: str, usage: Usage) -> None:
    """The official client: custom objects as dicts, with its own watch."""
    import kubernetes  # type: ignore[import-untyped, unused-ignore]

    client: Any = kubernetes.client
    watch: Any = importlib.import_module("kubernetes.watch")
    configuration = client.Configuration()
    configuration.host = url
    api = client.CustomObjectsApi(client.ApiClient(configuration))
    place = (GROUP, VERSION, PLURAL)
    usage.start()
    copy: dict[tuple[str, str], Any] = {}
    for obj in api.list_cluster_custom_object(*place)["items"]:
        copy[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj
    usage.filled()
    stream = watch.Watch().stream
    for event in stream(api.list_cluster_custom_object, *place, resource_version=str(len(copy))):
        meta = event["object"]["metadata"]
        copy[meta["namespace"], meta["name"]] = event["object"]
        if meta["resourceVersion"] == usage.last:
            return


def main(who: str, url: str, count: int, events: int) -> None:
    """Run one contestant."""
    usage = Usage(count, events)
    match who:
        case "bare":
            asyncio.run(bare(url, usage))
        case "cache":
            asyncio.run(ours(url, usage))
        case "cache+indexes+queue":
            asyncio.run(ours(url, usage, indexed=True))
        case "kopf":
            asyncio.run(with_kopf(url, usage))
            return
        case "official":
            official(url, usage)
    usage.finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
