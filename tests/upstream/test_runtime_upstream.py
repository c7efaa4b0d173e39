"""The runtime on a genuine apiserver: the contract, caches, leases, events and our webhooks."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from moxwell.api.conditions import Condition
from moxwell.clock import SystemClock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.errors import ApiServerAnswer
from moxwell.kube.reader import Reader
from moxwell.kube.transport import KubeTransport
from moxwell.runtime.cache import Cache
from moxwell.runtime.events import EVENTS
from moxwell.runtime.leadership import lease_name
from moxwell.runtime.lease import LEASES
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.objects import key_of, version_of
from moxwell.runtime.reconciler import Controller, Note, Reconciler
from moxwell.runtime.reflector import Reflector
from moxwell.runtime.settings import LeaseTimes, Listen, ManagerSettings
from moxwell.runtime.webhook_ca import VALIDATING, WebhookCA, WebhookTargets
from moxwell.runtime.webhooks import Admission, Allow, Deny, Webhooks
from moxwell.testing import kube_contract
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus, thing

pytestmark = pytest.mark.genuine
NS = kube_contract.NS
PATIENCE_SECONDS = 240


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*PROGRAMS)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as control_plane:
        yield control_plane.start()


@pytest.fixture
async def transport(plane: ControlPlane) -> AsyncIterator[KubeTransport]:
    access = kubeconfig.load([Path(plane.kubeconfig)]).access(SystemClock(), {})
    async with KubeTransport(access) as made:
        await kube_contract.install(Kube(made))
        yield made
        await kube_contract.clear(Kube(made))


class Telling(Reconciler[Thing, None, Done, ThingStatus]):
    """Sets Ready on each thing and reports each pass to the test."""

    kind = Thing
    finalizer = "test.moxwell.dev/seen"

    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def see(self, obj: Thing, reader: Reader) -> None:
        self.seen.put_nowait(f"{obj.name} {'gone' if obj.deleting else obj.spec.size}")

    def plan(self, obj: Thing, seen: None) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        raise AssertionError("Done is not executed")

    def describe(self, obj: Thing, seen: None, move: Done) -> ThingStatus:
        ready = Condition(type="Ready", status="True", reason="Seen")
        return ThingStatus(ready=True, conditions=(ready,))

    def events(self, obj: Thing, seen: None, move: Done) -> Sequence[Note]:
        return (Note("Seen", "so"),)


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[None]:
    task = asyncio.create_task(runtime.manager.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await runtime.manager.wait_ready()
            yield
    finally:
        runtime.manager.stop()
        await task


async def test_a_genuine_apiserver_keeps_the_contract(transport: KubeTransport) -> None:
    await kube_contract.check(transport)


async def test_a_controller_holds_a_lease_writes_status_and_events_and_lets_go(
    transport: KubeTransport,
) -> None:
    kube, telling = Kube(transport), Telling()
    settings = ManagerSettings(
        identity="me", namespace=NS, lease_name="runtime", lease_times=LeaseTimes()
    )
    runtime = assemble(transport, SystemClock(), settings, rng=random.Random(1))
    runtime.manager.add(Controller(name="test.tell", reconciler=telling, owns=("Ready",)))
    async with running(runtime):
        await kube.create(thing("seen", namespace=NS, size=1), THINGS)
        assert await telling.seen.get() == "seen 1"
        lease = await kube.get(LEASES, "runtime", NS)
        assert lease["spec"]["holderIdentity"] == "me"
        await kube.merge(THINGS, "seen", {"spec": {"size": 2}}, NS)
        while await telling.seen.get() != "seen 2":
            continue
        await kube.delete(THINGS, "seen", NS)
        while await telling.seen.get() != "seen gone":
            continue
        await gone(kube, "seen")
    events = [e for e in (await kube.list(EVENTS, NS)).items if e["reason"] == "Seen"]
    assert sum(e["count"] for e in events) >= 1
    assert (await kube.get(LEASES, "runtime", NS))["spec"]["holderIdentity"] == ""


async def gone(kube: Kube, name: str) -> None:
    found = await kube.find(THINGS, name, NS)
    if found is None:
        return
    version = version_of(found)
    async for event in kube.watch(THINGS, NS, resource_version=version):
        if getattr(event, "type", "") == "DELETED":
            return


@pytest.mark.parametrize("streaming", [False, True], ids=["paged", "streamed"])
async def test_a_cache_is_what_the_apiserver_has(transport: KubeTransport, streaming: bool) -> None:
    kube, cache = Kube(transport), Cache[Any](THINGS)
    for number in range(7):
        await kube.create(thing(f"c{number}", namespace=NS), THINGS)
    last = asyncio.Event()
    cache.subscribe(lambda old, new, _: last.set() if new and key_of(new).name == "last" else None)
    reflector = Reflector(kube, SystemClock(), cache, page_size=2, streaming=streaming)
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await cache.wait_synced()
        await kube.merge(THINGS, "c2", {"spec": {"size": 9}}, NS)
        await kube.delete(THINGS, "c3", NS)
        await kube.create(thing("last", namespace=NS), THINGS)
        await last.wait()
    there = {key_of(o): version_of(o) for o in (await kube.list(THINGS)).items}
    assert {key_of(o): version_of(o) for o in cache.list()} == there
    task.cancel()
    await asyncio.wait([task])
    await kube.delete_collection(THINGS, NS)


def admit(asked: Admission) -> Allow | Deny:
    if asked.object is not None and asked.object["spec"].get("size", 0) > 10:
        return Deny("size 10 is the largest there is")
    return Allow()


def configuration(port: int) -> dict[str, Any]:
    """A validating webhook that the apiserver reaches on loopback; the bundle is put in by us."""
    rule = {
        "apiGroups": ["test.moxwell.dev"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["things"],
    }
    hook = {
        "name": "things.test.moxwell.dev",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/validate"},
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "runtime"},
        "webhooks": [hook],
    }


async def test_our_webhook_is_trusted_and_asked(transport: KubeTransport) -> None:
    kube = Kube(transport)
    settings = ManagerSettings(elect=False, webhooks=Listen(), namespace=NS)
    runtime = assemble(transport, SystemClock(), settings, rng=random.Random(1))
    trust = WebhookCA(
        runtime.plain,
        SystemClock(),
        namespace=NS,
        secret="runtime-certs",
        names=("127.0.0.1",),
        trusting=WebhookTargets(validating=("runtime",)),
    )
    runtime.manager.serve_webhooks(Webhooks({"/validate": admit}), trust)
    async with running(runtime):
        await kube.create(configuration(runtime.manager.ports["webhooks"]), VALIDATING)
        try:
            kept = await trust.ensure()
            await trust.announce(kept.bundle)
            assert await refusal(kube) == (
                'admission webhook "things.test.moxwell.dev" denied the request: '
                "size 10 is the largest there is"
            )
            await kube.create(thing("small", namespace=NS, size=1), THINGS)
        finally:
            await kube.delete(VALIDATING, "runtime")
            await forgotten(kube)


async def refusal(kube: Kube) -> str:
    """What the apiserver says once it has learned of the webhook."""
    while True:
        try:
            await kube.create(thing("large", namespace=NS, size=11), THINGS)
        except ApiServerAnswer as error:
            if "denied the request" in str(error):
                return str(error)
        else:
            await kube.delete(THINGS, "large", NS)
        await asyncio.sleep(0.2)


async def forgotten(kube: Kube) -> None:
    """Until the apiserver asks the webhook no more: whoever comes next has none that answers."""
    while True:
        try:
            await kube.create(thing("large", namespace=NS, size=11), THINGS, dry_run=True)
        except ApiServerAnswer:
            await asyncio.sleep(0.2)
        else:
            return


class Regional(Telling):
    """Tells which replica worked on which thing."""

    finalizer = ""


async def test_a_killed_replica_gives_its_regions_to_the_other(transport: KubeTransport) -> None:
    kube = Kube(transport)
    regions = ("east", "north", "south", "west")
    times = LeaseTimes(lease_duration=3, renew_deadline=2.0, retry_period=0.5)
    for region in regions:
        await kube.create(thing(region, namespace=NS, size=1), THINGS)
    replicas: dict[str, Regional] = {}
    tasks: dict[str, asyncio.Task[None]] = {}
    for name in ("one", "two"):
        settings = ManagerSettings(
            identity=name, namespace=NS, lease_name="shards", lease_times=times, shards=True
        )
        runtime = assemble(
            transport, SystemClock(), settings, rng=random.Random(name), regions=lambda: regions
        )
        replicas[name] = Regional()
        runtime.manager.add(
            Controller(
                name="test.shard",
                reconciler=replicas[name],
                shard=lambda obj: obj.name if obj.name in regions else "",
                owns=("Ready",),
            )
        )
        tasks[name] = asyncio.create_task(runtime.manager.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len({h for h in (await holders(kube, regions)).values() if h}) < 2:
                await asyncio.sleep(0.2)  # dealt out over both
            tasks["one"].cancel()  # as kill -9: nothing is given back
            await asyncio.wait([tasks["one"]])
            while set((await holders(kube, regions)).values()) != {"two"}:
                await asyncio.sleep(0.2)
            for region in regions:
                await kube.merge(THINGS, region, {"spec": {"size": 7}}, NS)
            seen: set[str] = set()
            while not {f"{region} 7" for region in regions} <= seen:
                seen.add(await replicas["two"].seen.get())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(list(tasks.values()))
        await kube.delete_collection(THINGS, NS)


async def holders(kube: Kube, regions: Sequence[str]) -> dict[str, str]:
    """Who holds the lease of each region."""
    found: dict[str, str] = {}
    for region in regions:
        lease = await kube.find(LEASES, lease_name("shards", "region", region), NS)
        found[region] = (lease or {"spec": {}})["spec"].get("holderIdentity") or ""
    return found
