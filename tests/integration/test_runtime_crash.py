"""Killed between any two writes, a program picks up where the world is."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from moxwell.api.conditions import Condition
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.manager import Manager, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Controller, Reconciler
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock
from moxwell.testing.reconcile import SETTINGS, NotSettled, crash_after_each_effect
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus, thing


class Cloud:
    """A tiny Proxmox: guests by id, each with an owner and a size."""

    region = "r1"

    def __init__(self) -> None:
        self.guests: dict[str, dict[str, str]] = {}
        self.made = 0

    async def request(self, method: str, path: str, params: dict[str, str] | None = None) -> object:
        await asyncio.sleep(0.1)
        name = path.rpartition("/")[2]
        match method:
            case "GET":
                return dict(self.guests)
            case "POST":
                self.made += 1
                self.guests[f"g{self.made}"] = dict(params or {})
            case "PUT":
                self.guests[name] |= params or {}
            case "DELETE":
                del self.guests[name]
        return None


@dataclass(frozen=True)
class CloudRequest:
    method: str
    path: str
    body: Mapping[str, str] | None = None


@dataclass(frozen=True)
class ObservedGuest:
    name: str | None = None
    size: str = ""


class Maker(Reconciler[Thing, ObservedGuest, CloudRequest | Done, ThingStatus]):
    """One guest per thing, found again by its owner."""

    kind = Thing
    finalizer = "test.moxwell.dev/guest"

    def __init__(self, cloud: Cloud, *, forgetful: bool = False) -> None:
        self._cloud, self._forgetful = cloud, forgetful

    async def see(self, obj: Thing, reader: Reader) -> ObservedGuest:
        guests = await self._cloud.request("GET", "/guests")
        assert isinstance(guests, dict)
        if self._forgetful and not obj.status.ready:
            return ObservedGuest()  # trusts its own status: the defect that the harness must find
        mine = [n for n, g in guests.items() if g.get("owner") == obj.uid]
        return ObservedGuest(mine[0], guests[mine[0]].get("size", "")) if mine else ObservedGuest()

    def plan(self, obj: Thing, seen: ObservedGuest) -> CloudRequest | Done:
        if obj.deleting:
            return CloudRequest("DELETE", f"/guests/{seen.name}") if seen.name else Done()
        if seen.name is None:
            return CloudRequest("POST", "/guests", {"owner": obj.uid})
        size = str(obj.spec.size)
        if seen.size != size:
            return CloudRequest("PUT", f"/guests/{seen.name}", {"size": size})
        return Done()

    async def act(self, move: CloudRequest | Done) -> None:
        assert isinstance(move, CloudRequest)
        await self._cloud.request(move.method, move.path, dict(move.body or {}))

    def describe(
        self, obj: Thing, seen: ObservedGuest, move: CloudRequest | Done
    ) -> ThingStatus | None:
        if obj.deleting:
            return None
        done = isinstance(move, Done)
        ready = done or self._forgetful
        condition = Condition(
            type="Ready", status="True" if ready else "False", reason="Made" if done else "Making"
        )
        return ThingStatus(ready=ready, conditions=(condition,))

    def requeue_after(
        self, obj: Thing, seen: ObservedGuest, move: CloudRequest | Done
    ) -> float | None:
        return None if isinstance(move, Done) else 1.0


@dataclass
class World:
    clock: LoopClock = field(default_factory=LoopClock)
    cloud: Cloud = field(default_factory=Cloud)
    api: FakeKube = field(init=False)

    def __post_init__(self) -> None:
        self.api = FakeKube(self.clock)


@dataclass
class TwoThings:
    """Two are made, one is changed, one is deleted."""

    forgetful: bool = False

    async def world(self) -> World:
        return World()

    def program(self, world: World, wires: EffectCounter) -> Manager:
        runtime = assemble(wires.kube(world.api), world.clock, SETTINGS)
        maker = Maker(wires.pve(world.cloud), forgetful=self.forgetful)
        runtime.manager.add(Controller(name="test.maker", reconciler=maker))
        return runtime.manager

    async def act(self, world: World) -> None:
        kube = Kube(world.api)
        await kube.create(thing("stays", size=1), THINGS)
        await kube.create(thing("goes", size=1), THINGS)
        await asyncio.sleep(20)
        await kube.merge(THINGS, "stays", {"spec": {"size": 2}}, "ns")
        await kube.delete(THINGS, "goes", "ns")

    async def check(self, world: World) -> None:
        assert [g.get("size") for g in world.cloud.guests.values()] == ["2"]
        (left,) = world.api.objects("things", "test.moxwell.dev")
        assert left["metadata"]["name"] == "stays"
        assert left["status"]["ready"]


def test_a_kill_after_any_write_costs_a_pass_and_nothing_else() -> None:
    effects = crash_after_each_effect(TwoThings())
    assert sum(name.startswith("r1: POST") for name in effects) == 2
    assert len(effects) >= 14


def test_a_controller_that_believes_its_status_is_found_out() -> None:
    with pytest.raises((AssertionError, NotSettled)):
        crash_after_each_effect(TwoThings(forgetful=True))
