"""The runtime on the embedded API: the same contract, the same stories, virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.conditions import Condition
from moxwell.api.requests import Handler
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.lease import LEASES
from moxwell.runtime.manager import Manager, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.objects import key_of, version_of
from moxwell.runtime.reconciler import Controller, Note, Reconciler
from moxwell.runtime.reflector import Reflector
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing import kube_contract
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.reconcile import SETTINGS, crash_after_each_effect, staged
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus, thing

NS = kube_contract.NS


def test_the_small_api_of_the_tests_keeps_the_contract() -> None:
    async def story() -> None:
        await kube_contract.check(FakeKube(LoopClock()))

    run_virtual(story())


def test_the_embedded_api_keeps_the_contract() -> None:
    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as store:
            await kube_contract.check(store)

    run_virtual(story())


@dataclass(frozen=True)
class Copy:
    uid: str
    size: int | None  # None removes the copy


class Copying(Reconciler[Thing, int | None, Copy | Done, ThingStatus]):
    """Copies the size of each thing to a dict outside Kubernetes, one step per pass."""

    kind = Thing
    finalizer = "test.moxwell.dev/note"

    def __init__(self, notes: dict[str, int]) -> None:
        self._notes = notes

    async def see(self, obj: Thing, reader: Reader) -> int | None:
        return self._notes.get(obj.uid)

    def plan(self, obj: Thing, seen: int | None) -> Copy | Done:
        goal = None if obj.deleting else obj.spec.size
        return Done() if seen == goal else Copy(obj.uid, goal)

    async def act(self, move: Copy | Done) -> None:
        assert isinstance(move, Copy)
        if move.size is None:
            del self._notes[move.uid]
        else:
            self._notes[move.uid] = move.size

    def describe(self, obj: Thing, seen: int | None, move: Copy | Done) -> ThingStatus | None:
        if obj.deleting:
            return None
        done = isinstance(move, Done)
        ready = Condition(
            type="Ready",
            status="True" if done else "False",
            reason="Written" if done else "Writing",
        )
        return ThingStatus(ready=done, conditions=(ready,))

    def events(self, obj: Thing, seen: int | None, move: Copy | Done) -> Sequence[Note]:
        return (Note("Written", "done"),) if isinstance(move, Done) and not obj.deleting else ()

    def requeue_after(self, obj: Thing, seen: int | None, move: Copy | Done) -> float | None:
        return None if isinstance(move, Done) else 1.0


@asynccontextmanager
async def stored() -> AsyncIterator[tuple[EmbeddedApiServer, Kube]]:
    async with EmbeddedApiServer(clock=LoopClock()) as store:
        kube = Kube(store)
        await kube_contract.install(kube)
        yield store, kube


def test_an_object_is_tended_on_the_embedded_api() -> None:
    async def story() -> None:
        notes: dict[str, int] = {}
        controller = Controller(name="test.copy", reconciler=Copying(notes))
        async with stored() as (store, kube), staged(store, LoopClock(), [controller]) as stage:
            made = await kube.create(thing("one", namespace=NS, size=3), THINGS)
            await stage.settle()
            assert notes == {made["metadata"]["uid"]: 3}
            one = await kube.get(Thing, "one", NS)
            assert one.status.ready
            assert one.status.conditions[0].last_transition_time is not None
            events = await kube.list(kube_events(), NS)
            assert [(e["reason"], e["count"]) for e in events.items] == [("Written", 1)]
            await kube.delete(THINGS, "one", NS)
            await stage.settle()
            assert notes == {}
            assert (await kube.list(THINGS, NS)).items == ()

    run_virtual(story())


def kube_events() -> Any:
    from moxwell.runtime.events import EVENTS

    return EVENTS


def test_leader_election_works_on_the_embedded_api() -> None:
    async def story() -> None:
        async with stored() as (store, kube):
            settings = [ManagerSettings(identity=who, namespace=NS) for who in "ab"]
            runtimes = [assemble(store, LoopClock(), s, rng=random.Random(1)) for s in settings]
            tasks = [asyncio.create_task(r.manager.run()) for r in runtimes]
            await asyncio.sleep(10)
            lease = await kube.get(LEASES, "moxwell", NS)
            held = [runtime.fence.holds("") for runtime in runtimes]
            assert lease["spec"]["holderIdentity"] == "ab"[held.index(True)]
            runtimes[held.index(True)].manager.stop()
            await asyncio.sleep(10)
            assert [runtime.fence.holds("") for runtime in runtimes] == held[::-1]
            for runtime in runtimes:
                runtime.manager.stop()
            await asyncio.wait(tasks)

    run_virtual(story())


@pytest.mark.parametrize("streaming", [False, True], ids=["paged", "streamed"])
def test_a_cache_equals_the_embedded_api(streaming: bool) -> None:
    async def story() -> None:
        async with stored() as (store, kube):
            cache = Cache[Any](THINGS)
            for number in range(7):
                await kube.create(thing(f"t{number}", namespace=NS), THINGS)
            reflector = Reflector(Kube(store), LoopClock(), cache, page_size=2, streaming=streaming)
            task = asyncio.create_task(reflector.run())
            await cache.wait_synced()
            for number in range(0, 7, 2):
                await kube.merge(THINGS, f"t{number}", {"spec": {"size": 5}}, NS)
            await kube.delete(THINGS, "t1", NS)
            await kube.create(thing("t8", namespace=NS), THINGS)
            await asyncio.sleep(1)
            here = {key_of(o): version_of(o) for o in cache.list()}
            there = {key_of(o): version_of(o) for o in (await kube.list(THINGS, NS)).items}
            assert here == there
            assert len(here) == 7
            task.cancel()
            await asyncio.wait([task])

    run_virtual(story())


@dataclass
class World:
    api: Handler
    notes: dict[str, int] = field(default_factory=dict)


class OneThing:
    """Made, changed, deleted; beside it one that stays."""

    async def world(self) -> World:
        store = EmbeddedApiServer(clock=LoopClock())
        await store.__aenter__()
        await kube_contract.install(Kube(store))
        return World(store)

    def program(self, world: World, wires: EffectCounter) -> Manager:
        runtime = assemble(wires.kube(world.api), LoopClock(), SETTINGS)
        controller = Controller(name="test.copy", reconciler=Copying(world.notes))
        runtime.manager.add(controller)
        return runtime.manager

    async def act(self, world: World) -> None:
        kube = Kube(world.api)
        await kube.create(thing("goes", namespace=NS, size=1), THINGS)
        await kube.create(thing("stays", namespace=NS, size=2), THINGS)
        await asyncio.sleep(10)
        await kube.merge(THINGS, "stays", {"spec": {"size": 3}}, NS)
        await kube.delete(THINGS, "goes", NS)

    async def check(self, world: World) -> None:
        assert list(world.notes.values()) == [3]
        left = await Kube(world.api).list(Thing, NS)
        assert [(t.name, t.status.ready) for t in left.items] == [("stays", True)]


def test_a_kill_after_any_write_to_the_embedded_api_costs_a_pass() -> None:
    effects = crash_after_each_effect(OneThing())
    assert len(effects) >= 6
