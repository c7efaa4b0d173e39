"""The manager as a whole, on a small API in memory and virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.conditions import Condition
from moxwell.api.requests import Request
from moxwell.errors import Busy, Conflict, Denied, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.errors import PermissionDenied
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.objects import PAUSED_ANNOTATION
from moxwell.runtime.pause import CLUSTERS
from moxwell.runtime.reconciler import Controller, Note, Reconciler
from moxwell.runtime.settings import ManagerSettings
from moxwell.runtime.watches import Watch
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus, thing

FINALIZER = "test.moxwell.dev/thing"


@dataclass(frozen=True)
class Grow:
    uid: str
    size: int


@dataclass(eq=False)
class Growing(Reconciler[Thing, int, "Grow | Done", ThingStatus]):
    """Changes a size outside Kubernetes towards the size of its object, by one per pass."""

    world: dict[str, int] = field(default_factory=dict)
    passes: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    kind = Thing
    finalizer = FINALIZER
    watches: Sequence[Watch] = ()

    async def see(self, obj: Thing, reader: Reader) -> int:
        self.passes.append(obj.name)
        if self.errors:
            raise self.errors.pop(0)
        return self.world.get(obj.uid, 0)

    def plan(self, obj: Thing, seen: int) -> "Grow | Done":
        goal = 0 if obj.deleting else obj.spec.size
        return Done() if seen == goal else Grow(obj.uid, seen + (1 if goal > seen else -1))

    async def act(self, move: "Grow | Done") -> None:
        assert isinstance(move, Grow)
        self.world[move.uid] = move.size
        if not move.size:
            del self.world[move.uid]

    def describe(self, obj: Thing, seen: int, move: "Grow | Done") -> ThingStatus:
        done = isinstance(move, Done)
        ready = Condition(
            type="Ready", status="True" if done else "False", reason="Grown" if done else "Growing"
        )
        return ThingStatus(ready=done, size=obj.spec.size, conditions=(ready,))

    def events(self, obj: Thing, seen: int, move: "Grow | Done") -> Sequence[Note]:
        return (Note("Grown", "size reached"),) if isinstance(move, Done) else ()

    def requeue_after(self, obj: Thing, seen: int, move: "Grow | Done") -> float | None:
        return None if isinstance(move, Done) else 5.0


def make(fake: FakeKube, growing: Growing, *, pausable: bool = False, **settings: Any) -> Runtime:
    chosen = ManagerSettings(**{"elect": False, **settings})
    runtime = assemble(fake, LoopClock(), chosen, rng=random.Random(1))
    runtime.manager.add(
        Controller(
            name="test.thing",
            reconciler=growing,
            shard=lambda thing: str(thing.spec.region),
            pausable=pausable,
        )
    )
    return runtime


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[None]:
    task = asyncio.create_task(runtime.manager.run())
    try:
        yield
    finally:
        runtime.manager.stop()
        await task


async def see(fake: FakeKube, name: str) -> Thing:
    return await Kube(fake).get(Thing, name, "ns")


def ready(obj: Thing) -> tuple[str, str]:
    (found,) = (c for c in obj.status.conditions if c.type == "Ready")
    return found.status, found.reason


def truths(obj: Thing) -> dict[str, str]:
    return {c.type: c.status for c in obj.status.conditions}


def status_writes(fake: FakeKube) -> int:
    return sum(r.path.endswith("/status") for r in fake.writes())


def test_an_object_is_grown_described_and_ungrown() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        kube = Kube(fake)
        async with running(make(fake, growing)):
            made = await kube.create(thing("one", size=3), THINGS)
            await asyncio.sleep(60)
            one = await see(fake, "one")
            assert growing.world == {made["metadata"]["uid"]: 3}
            assert ready(one) == ("True", "Grown")
            assert one.metadata.finalizers == (FINALIZER,)
            assert len(growing.passes) == 4
            assert status_writes(fake) == 2
            await kube.delete(THINGS, "one", "ns")
            await asyncio.sleep(60)
            assert growing.world == {}
            assert fake.objects("things", "test.moxwell.dev") == []

    run_virtual(story())


def test_the_finalizer_is_on_before_the_first_effect() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        fake.fail(lambda r: r.method == "PATCH", 500)
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=1), THINGS)
            await asyncio.sleep(0.01)
            assert growing.passes == []
            await asyncio.sleep(10)
            assert growing.passes

    run_virtual(story())


def test_an_own_status_write_does_not_cause_a_pass() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=0), THINGS)
            await asyncio.sleep(60)
            assert (len(growing.passes), status_writes(fake)) == (1, 1)
            await Kube(fake).merge(THINGS, "one", {"metadata": {"labels": {"a": "b"}}}, "ns")
            await asyncio.sleep(60)
            assert (len(growing.passes), status_writes(fake)) == (2, 1)

    run_virtual(story())


@pytest.mark.parametrize(
    "error, truth, reason",
    [
        pytest.param(Unreachable("region r1 is away"), "Unknown", "Unreachable", id="unreachable"),
        pytest.param(Busy("the guest is locked"), "False", "Busy", id="busy"),
        pytest.param(Denied("no right"), "False", "Denied", id="denied"),
        pytest.param(ZeroDivisionError("secret=hunter2"), "Unknown", "InternalError", id="a bug"),
    ],
)
def test_an_error_becomes_a_condition_and_an_event_and_then_heals(
    error: Exception, truth: str, reason: str
) -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing(errors=[error])
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=0), THINGS)
            await asyncio.sleep(0.01)
            one = await see(fake, "one")
            assert ready(one) == (truth, reason)
            assert "hunter2" not in str(one)
            events = fake.objects("events")
            assert [(e["type"], e["reason"], e["count"]) for e in events] == [
                ("Warning", reason, 1)
            ]
            await asyncio.sleep(400)
            assert ready(await see(fake, "one")) == ("True", "Grown")

    run_virtual(story())


def test_a_terminal_error_waits_for_a_change() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing(errors=[Denied("no")])
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=0), THINGS)
            await asyncio.sleep(200)
            assert len(growing.passes) == 1
            await Kube(fake).merge(THINGS, "one", {"spec": {"size": 1}}, "ns")
            await asyncio.sleep(1)
            assert len(growing.passes) == 2

    run_virtual(story())


def test_a_denied_privilege_is_tried_again_every_minute() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        growing = Growing(errors=[PermissionDenied("no"), PermissionDenied("no")])
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=0), THINGS)
            await asyncio.sleep(59)
            assert len(growing.passes) == 1
            await asyncio.sleep(75)
            assert ready(await see(fake, "one")) == ("True", "Grown")

    run_virtual(story())


def test_a_first_conflict_is_nobodys_business() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing(errors=[Conflict("first"), Conflict("2nd")])
        async with running(make(fake, growing)):
            await Kube(fake).create(thing("one", size=0), THINGS)
            await asyncio.sleep(30)
            assert ready(await see(fake, "one")) == ("True", "Grown")
            assert [e["reason"] for e in fake.objects("events")] == ["Grown"]

    run_virtual(story())


def test_a_pass_that_lost_a_race_begins_again_at_once_from_what_is_there() -> None:
    class Racing(Growing):
        async def see(self, obj: Thing, reader: Reader) -> int:
            if not self.passes:  # a write under the version it was shown, which is old by now
                await kube.merge(THINGS, "one", {"spec": {"size": 1}}, "ns")
                self.passes.append("lost")
                stale = {"metadata": {"resourceVersion": obj.metadata.resource_version}}
                await kube.merge(THINGS, "one", stale, "ns")
            return await super().see(obj, reader)

    async def story() -> None:
        async with running(make(fake, racing)):
            await kube.create(thing("one", meta={"finalizers": [FINALIZER]}, size=0), THINGS)
            await asyncio.sleep(0.01)
            assert racing.passes[:2] == ["lost", "one"]
            assert list(racing.world.values()) == [1], "it saw the newer size"
            assert "Conflict" not in [e["reason"] for e in fake.objects("events")]

    fake, racing = FakeKube(LoopClock()), Racing()
    kube = Kube(fake)
    run_virtual(story())


def test_others_conditions_and_fields_survive() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        kube = Kube(fake)
        await kube.create(thing("one", size=0), THINGS)
        other = {"type": "Drained", "status": "True", "reason": "R", "message": ""}
        theirs = {"conditions": [other], "note": "theirs"}
        await kube.merge_status(THINGS, "one", {"status": theirs}, "ns")
        async with running(make(fake, growing)):
            await asyncio.sleep(30)
            found = await kube.get(THINGS, "one", "ns")
            assert found["status"]["note"] == "theirs"
            assert [c["type"] for c in found["status"]["conditions"]] == ["Drained", "Ready"]

    run_virtual(story())


def test_a_status_write_that_lost_a_race_is_merged_into_the_newer_object() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        kube = Kube(fake)
        await kube.create(thing("one", meta={"finalizers": [FINALIZER]}, size=0), THINGS)
        raced: list[Request] = []

        def race(request: Request) -> bool:
            if request.path.endswith("/status") and not raced:
                raced.append(request)
                return True
            return False

        fake.fail(race, 409, "Conflict")
        async with running(make(fake, growing)):
            await asyncio.sleep(30)
            assert ready(await see(fake, "one")) == ("True", "Grown")
            assert len(growing.passes) == 1

    run_virtual(story())


@pytest.mark.parametrize("by", ["annotation", "cluster"])
def test_a_paused_object_is_left_alone_and_says_so(by: str) -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        kube = Kube(fake)
        cluster = {
            "apiVersion": "cluster.x-k8s.io/v1beta1",
            "kind": "Cluster",
            "metadata": {"name": "c1", "namespace": "ns"},
            "spec": {"paused": by == "cluster"},
        }
        await kube.create(cluster, CLUSTERS)
        meta: dict[str, Any] = {"labels": {"cluster.x-k8s.io/cluster-name": "c1"}}
        if by == "annotation":
            meta["annotations"] = {PAUSED_ANNOTATION: ""}
        await kube.create(thing("one", meta=meta, size=1), THINGS)
        async with running(make(fake, growing, pausable=True)):
            await asyncio.sleep(60)
            assert growing.passes == []
            assert truths(await see(fake, "one"))["Paused"] == "True"
            await kube.merge(CLUSTERS, "c1", {"spec": {"paused": False}}, "ns")
            gone = {"metadata": {"annotations": {PAUSED_ANNOTATION: None}}}
            await kube.merge(THINGS, "one", gone, "ns")
            await asyncio.sleep(60)
            assert truths(await see(fake, "one")) == {"Paused": "False", "Ready": "True"}

    run_virtual(story())


def test_a_change_of_another_kind_wakes_its_objects() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        growing = Growing(watches=(Watch(CLUSTERS, lambda c: [Key("ns", c["spec"]["thing"])]),))
        kube = Kube(fake)
        await kube.create(thing("one", size=0), THINGS)
        async with running(make(fake, growing)):
            await asyncio.sleep(10)
            before = len(growing.passes)
            head = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster"}
            meta = {"name": "c", "namespace": "ns"}
            await kube.create({**head, "metadata": meta, "spec": {"thing": "one"}}, CLUSTERS)
            await asyncio.sleep(10)
            assert len(growing.passes) == before + 1

    run_virtual(story())


def test_stopping_lets_passes_finish_and_gives_the_lease_back() -> None:
    async def story() -> None:
        fake, slow = FakeKube(LoopClock()), Slow()
        runtime = make(fake, slow, elect=True, identity="a")
        await Kube(fake).create(thing("one", size=1), THINGS)
        async with running(runtime):
            await asyncio.sleep(3)
            assert slow.started == 1
        assert slow.finished == 1
        lease = fake.find("leases", "moxwell", "moxwell-system", "coordination.k8s.io")
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == ""

    run_virtual(story())


@dataclass(eq=False)
class Slow(Growing):
    started: int = 0
    finished: int = 0

    async def see(self, obj: Thing, reader: Reader) -> int:
        self.started += 1
        await asyncio.sleep(5)
        self.finished += 1
        return 0 if obj.deleting else obj.spec.size


def test_a_loop_of_a_share_runs_only_while_it_is_held() -> None:
    async def story() -> None:
        fake, beats = FakeKube(LoopClock()), Counter[str]()
        runtime = make(fake, Growing(), elect=True, identity="a")

        async def beat(name: str) -> None:
            while True:
                beats[name] += 1
                await asyncio.sleep(1)

        runtime.manager.add_loop("always", lambda: beat("always"))
        runtime.manager.add_loop("leader", lambda: beat("leader"), shard="")
        async with running(runtime):
            await asyncio.sleep(9.5)
            assert beats["leader"] == 10
            fake.unreachable = True
            await asyncio.sleep(30)
            fake.unreachable = False
            stopped = beats["leader"]
            assert stopped < 23
            await asyncio.sleep(30)
            assert beats["leader"] > stopped + 10
            assert beats["always"] == 70

    run_virtual(story())


def test_a_loop_that_breaks_is_started_again_and_stops_nobody() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        runtime = make(fake, growing)
        beats: list[float] = []

        async def break_off() -> None:
            beats.append(LoopClock().monotonic())
            raise ZeroDivisionError if len(beats) % 2 else Busy("not now")

        runtime.manager.add_loop("breaks", break_off)
        async with running(runtime):
            await Kube(fake).create(thing("one", size=1), THINGS)
            await asyncio.sleep(40)
            assert ready(await see(fake, "one")) == ("True", "Grown")
            assert beats == [0, 1, 3, 7, 15, 31]

    run_virtual(story())


def test_a_broken_map_or_share_stops_no_cache() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        growing = Growing(watches=(Watch(CLUSTERS, lambda c: [Key("ns", c["spec"]["thing"])]),))
        runtime = assemble(fake, LoopClock(), ManagerSettings(elect=False), rng=random.Random(1))
        broken = Controller(name="t", reconciler=growing, shard=lambda t: str(t.spec.nowhere))
        runtime.manager.add(broken)
        head = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster"}
        await Kube(fake).create({**head, "metadata": {"name": "c", "namespace": "ns"}}, CLUSTERS)
        async with running(runtime):
            await Kube(fake).create(thing("one", size=1), THINGS)
            await asyncio.sleep(20)
            assert ready(await see(fake, "one")) == ("True", "Grown")

    run_virtual(story())


def test_an_object_that_moves_to_a_region_held_elsewhere_is_left_to_its_holder() -> None:
    async def story() -> None:
        fake, growing = FakeKube(LoopClock()), Growing()
        settings = ManagerSettings(elect=False)
        runtime = assemble(fake, LoopClock(), settings, rng=random.Random(1))
        controller = Controller(name="t", reconciler=growing, shard=lambda t: str(t.spec.region))
        runtime.manager.add(controller)
        queue = runtime.manager.worker("t").queue
        queue.gate = lambda shard: shard == ""
        async with running(runtime):
            await Kube(fake).create(thing("one", size=9), THINGS)
            await asyncio.sleep(11)
            assert len(growing.passes) == 3
            await Kube(fake).merge(THINGS, "one", {"spec": {"region": "r1"}}, "ns")
            await asyncio.sleep(60)
            assert len(growing.passes) == 3
            assert queue.statistics().ready_by_share["r1"] == 1

    run_virtual(story())
