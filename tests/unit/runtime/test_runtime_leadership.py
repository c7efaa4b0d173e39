"""Who holds what: the lease protocol, loss before the end, and regions shared among replicas."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.requests import Request, Response
from moxwell.errors import Invalid, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.fence import Fence, FencedHandler, FencedTransport, NotHeld, enter
from moxwell.runtime.leadership import deal, lease_name
from moxwell.runtime.lease import LEASES, LeaderLease
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller, Reconciler
from moxwell.runtime.settings import LeaseTimes, ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.sample_kind import THINGS, Thing, thing

TIMES = LeaseTimes()


def lease(fake: FakeKube, identity: str) -> LeaderLease:
    return LeaderLease(
        Kube(fake), LoopClock(), namespace="ns", name="l", identity=identity, times=TIMES
    )


def spec(fake: FakeKube) -> Any:
    found = fake.find("leases", "l", "ns", "coordination.k8s.io")
    assert found is not None
    return found["spec"]


def test_a_lease_is_taken_renewed_and_given_back_as_client_go_does() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        a, b = lease(fake, "a"), lease(fake, "b")
        assert await a.attempt()
        assert spec(fake) == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        }
        assert not await b.attempt()
        await asyncio.sleep(2)
        assert await a.attempt()
        assert spec(fake)["acquireTime"] == "2026-01-01T00:00:00.000000Z"
        assert spec(fake)["renewTime"] == "2026-01-01T00:00:02.000000Z"
        await a.release()
        assert not a.held
        assert await b.attempt()
        assert (spec(fake)["holderIdentity"], spec(fake)["leaseTransitions"]) == ("b", 1)

    run_virtual(story())


def test_a_silent_holder_is_followed_only_after_its_duration_by_our_own_clock() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        a, b = lease(fake, "a"), lease(fake, "b")
        assert await a.attempt()
        await asyncio.sleep(100)  # b comes late and cannot know how old the record is
        assert not await b.attempt()
        await asyncio.sleep(14.9)
        assert not await b.attempt()
        await asyncio.sleep(0.1)
        assert await b.attempt()
        assert not await a.attempt()

    run_virtual(story())


def test_two_who_try_at_once_do_not_both_get_it() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        leases = [lease(fake, name) for name in "abcdef"]
        assert sum(await asyncio.gather(*(one.attempt() for one in leases))) == 1
        assert sum(one.held for one in leases) == 1

    run_virtual(story())


def test_holding_ends_before_anybody_else_may_begin() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        a, b = lease(fake, "a"), lease(fake, "b")
        await a.attempt()
        await b.attempt()
        await asyncio.sleep(TIMES.renew_deadline)
        assert not a.held
        assert not await b.attempt()

    run_virtual(story())


@pytest.mark.parametrize(
    "times",
    [LeaseTimes(renew_deadline=15), LeaseTimes(retry_period=9), LeaseTimes(retry_period=0)],
    ids=["deadline past the end", "no second try", "no pause"],
)
def test_times_that_would_let_two_hold_are_refused(times: LeaseTimes) -> None:
    with pytest.raises(Invalid):
        times.check()


def test_the_fence_stops_writes_and_lets_reads_by() -> None:
    async def story() -> None:
        held = {"r1"}
        kube = Kube(FencedHandler(FakeKube(LoopClock()), Fence(held.__contains__)))
        enter("r1")
        await kube.create(thing("one"), THINGS)
        held.clear()
        assert len((await kube.list(THINGS)).items) == 1
        with pytest.raises(NotHeld):
            await kube.delete(THINGS, "one", "ns")

    run_virtual(story())


class Echoing:
    """A wire to Proxmox that remembers what went over it."""

    region = "r1"

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def request(self, method: str, path: str, params: Any = None, **more: Any) -> bytes:
        self.sent.append(method)
        return b""

    async def upload(self, path: str, params: Any, file: Any, **more: Any) -> bytes:
        self.sent.append("UPLOAD")
        return b""

    async def close(self) -> None:
        self.sent.append("CLOSE")


def test_the_fence_stands_before_proxmox_too() -> None:
    async def story() -> None:
        held, wire = {"r1"}, Echoing()
        fenced = FencedTransport(wire, Fence(held.__contains__))
        enter("r1")
        await fenced.request("POST", "/nodes/pve1/qemu/100/status/start")
        held.clear()
        await fenced.request("GET", "/cluster/resources")
        with pytest.raises(NotHeld):
            await fenced.request("DELETE", "/nodes/pve1/qemu/100")
        with pytest.raises(NotHeld):
            await fenced.upload("/nodes/pve1/storage/local/upload", {}, b"")
        await fenced.close()
        assert (fenced.region, wire.sent) == ("r1", ["POST", "GET", "CLOSE"])

    run_virtual(story())


# ---- replicas


class Wire:
    """One replica's way to the API; ``cut`` it and nothing gets through any more."""

    def __init__(self, fake: FakeKube) -> None:
        self.fake, self.cut = fake, False

    async def handle(self, request: Request) -> Response:
        if self.cut:
            raise Unreachable("no route")
        return await self.fake.handle(request)


@dataclass
class Log:
    """Who had an effect on what, and when."""

    at: list[tuple[float, str, str]] = field(default_factory=list)
    holds: list[Callable[[str], bool]] = field(default_factory=list)
    overlaps: int = 0

    def add(self, who: str, region: str) -> None:
        self.overlaps += sum(holds(region) for holds in self.holds) != 1
        self.at.append((LoopClock().monotonic(), who, region))

    def by(self, replica: str, since: float = 0) -> list[float]:
        return [t for t, who, _ in self.at if who == replica and t >= since]


class Ticking(Reconciler[Thing, None, str, None]):
    """Has an effect on each object every second."""

    kind = Thing

    def __init__(self, name: str, log: Log) -> None:
        self._name, self._log = name, log

    async def see(self, obj: Thing, reader: Reader) -> None:
        return None

    def plan(self, obj: Thing, seen: None) -> str:
        return obj.spec.region

    async def act(self, move: str) -> None:
        self._log.add(self._name, move)

    def describe(self, obj: Thing, seen: None, move: str) -> None:
        return None

    def requeue_after(self, obj: Thing, seen: None, move: str) -> float:
        return 1.0


@dataclass
class Replica:
    name: str
    wire: Wire
    runtime: Runtime
    task: asyncio.Task[None]

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def start(
    name: str, fake: FakeKube, log: Log, regions: Callable[[], list[str]], *, shards: bool
) -> Replica:
    wire = Wire(fake)
    chosen = ManagerSettings(identity=name, shards=shards)
    rng = random.Random(name)
    runtime = assemble(wire, LoopClock(), chosen, rng=rng, regions=regions)
    runtime.manager.add(
        Controller(
            name="test.tick", reconciler=Ticking(name, log), shard=lambda t: str(t.spec.region)
        )
    )
    log.holds.append(runtime.fence.holds)
    return Replica(name, wire, runtime, asyncio.create_task(runtime.manager.run()))


async def make_things(fake: FakeKube, regions: list[str]) -> None:
    for region in regions:
        await Kube(fake).create(thing(f"in-{region or 'none'}", region=region), THINGS)


def test_a_leader_that_cannot_renew_stops_before_its_lease_ends() -> None:
    async def story() -> None:
        fake, log = FakeKube(LoopClock()), Log()
        await make_things(fake, [""])
        a = start("a", fake, log, list, shards=False)
        await asyncio.sleep(0.5)
        b = start("b", fake, log, list, shards=False)
        await asyncio.sleep(30)
        assert log.by("a")
        assert not log.by("b")
        renewed = last_renewal(fake, "moxwell")
        a.wire.cut = True
        cut = LoopClock().monotonic()
        await asyncio.sleep(60)
        assert max(log.by("a")) < renewed + TIMES.lease_duration
        assert max(log.by("a")) < min(log.by("b"))
        assert min(log.by("b")) < cut + TIMES.lease_duration + 3 * TIMES.retry_period
        assert not log.overlaps
        a.wire.cut = False
        await asyncio.sleep(60)
        assert not log.by("a", since=cut + 30)
        await a.kill()
        await b.kill()

    run_virtual(story())


def last_renewal(fake: FakeKube, name: str) -> float:
    """The renewTime of a lease as seconds of the loop."""
    found = fake.find("leases", name, "moxwell-system", "coordination.k8s.io")
    assert found is not None
    minutes, seconds = found["spec"]["renewTime"].rstrip("Z").split(":")[1:]
    return int(minutes) * 60 + float(seconds)


def test_a_pass_under_way_is_cancelled_when_the_lease_is_lost() -> None:
    async def story() -> None:
        fake, ended = FakeKube(LoopClock()), []

        class Hanging(Ticking):
            async def see(self, obj: Thing, reader: Reader) -> None:
                try:
                    await asyncio.sleep(10_000)
                except asyncio.CancelledError:
                    ended.append(LoopClock().monotonic())
                    raise

        await make_things(fake, [""])
        wire = Wire(fake)
        runtime = assemble(wire, LoopClock(), ManagerSettings(identity="a"), rng=random.Random(1))
        runtime.manager.add(Controller(name="test.hang", reconciler=Hanging("a", Log())))
        task = asyncio.create_task(runtime.manager.run())
        await asyncio.sleep(20)
        wire.cut = True
        cut = LoopClock().monotonic()
        await asyncio.sleep(20)
        assert ended
        assert ended[0] < cut + TIMES.lease_duration
        task.cancel()
        await asyncio.wait([task])

    run_virtual(story())


REGIONS = ["r1", "r2", "r3", "r4"]


def test_replicas_share_regions_and_a_dead_ones_move_within_a_lease() -> None:
    async def story() -> None:
        fake, log = FakeKube(LoopClock()), Log()
        await make_things(fake, ["", *REGIONS])
        replicas = [start(n, fake, log, lambda: REGIONS, shards=True) for n in "abc"]
        await asyncio.sleep(60)
        now = LoopClock().monotonic()
        owner = {region: who for t, who, region in log.at if t > now - 2}
        assert set(owner) == {"", *REGIONS}
        assert sorted(Counter(owner.values()).values()) == [1, 2, 2]
        dead = owner["r1"]
        await next(r for r in replicas if r.name == dead).kill()
        orphans = {region for region, who in owner.items() if who == dead}
        died = LoopClock().monotonic()
        await asyncio.sleep(TIMES.lease_duration + 2 * TIMES.retry_period + 1)
        moved = {region for t, who, region in log.at if t > died and who != dead}
        assert orphans <= moved
        assert not log.overlaps
        for replica in replicas:
            await replica.kill()

    run_virtual(story())


def test_a_newcomer_is_given_its_part_without_overlap() -> None:
    async def story() -> None:
        fake, log = FakeKube(LoopClock()), Log()
        await make_things(fake, ["", *REGIONS])
        a = start("a", fake, log, lambda: REGIONS, shards=True)
        await asyncio.sleep(30)
        assert {region for _, _, region in log.at} == {"", *REGIONS}
        b = start("b", fake, log, lambda: REGIONS, shards=True)
        await asyncio.sleep(30)
        recent = {r: w for t, w, r in log.at if t > LoopClock().monotonic() - 2}
        assert sorted(Counter(recent.values()).values()) == [2, 3]
        by_time = sorted((t, r, w) for t, w, r in log.at)
        for region in REGIONS:
            owners = [w for _, r, w in by_time if r == region]
            assert owners == sorted(owners)  # first a, then perhaps b, never back and forth
        b.runtime.manager.stop()
        await b.task
        gone = LoopClock().monotonic()
        await asyncio.sleep(8)  # given back: no need to wait for a lease to run out
        assert {r for t, w, r in log.at if t > gone and w == "a"} == {"", *REGIONS}
        await a.kill()

    run_virtual(story())


names = st.sets(st.text("abcdef", min_size=1, max_size=4), max_size=8)


@given(regions=names, members=names)
def test_regions_are_dealt_evenly_and_to_all(regions: set[str], members: set[str]) -> None:
    dealt = deal(regions, members)
    assert set(dealt) == (regions if members else set())
    most = -(-len(regions) // len(members)) if members else 0
    assert all(count <= most for count in Counter(dealt.values()).values())
    assert dealt == deal(sorted(regions, reverse=True), sorted(members))


@given(st.text(), st.text())
def test_leases_of_different_regions_have_different_names(one: str, other: str) -> None:
    first, second = lease_name("moxwell", "region", one), lease_name("moxwell", "region", other)
    assert (first == second) == (one == other)
    assert len(first) <= 63
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@settings(deadline=None, max_examples=8)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 2), st.floats(0.5, 40)), max_size=4),
    seed=st.integers(0, 99),
)
def test_whatever_is_cut_off_one_region_never_has_two_workers(
    cuts: list[tuple[int, float]], seed: int
) -> None:
    async def story() -> None:
        fake, log = FakeKube(LoopClock()), Log()
        await make_things(fake, ["", "r1", "r2"])
        regions = ["r1", "r2"]
        replicas = [start(f"{n}{seed}", fake, log, lambda: regions, shards=True) for n in "abc"]
        for which, seconds in cuts:
            replicas[which].wire.cut = not replicas[which].wire.cut
            await asyncio.sleep(seconds)
        for replica in replicas:
            replica.wire.cut = False
        await asyncio.sleep(60)
        assert not log.overlaps
        recent = {r for t, _, r in log.at if t > LoopClock().monotonic() - 3}
        assert recent == {"", "r1", "r2"}
        for replica in replicas:
            await replica.kill()

    run_virtual(story())


def test_the_resource_of_leases_is_the_genuine_one() -> None:
    assert LEASES.path("ns", "l") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
