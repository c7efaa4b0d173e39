"""Whatever users, the API and the process itself do: in the end the world is as asked."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.conditions import Condition
from moxwell.api.requests import Request
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.manager import assemble
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Controller, Reconciler
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.sample_kind import THINGS, Thing, ThingStatus, thing


@dataclass
class Outside:
    """Sizes by owner, and who is at work on whom."""

    sizes: dict[str, int] = field(default_factory=dict)
    at_work: set[str] = field(default_factory=set)
    overlaps: int = 0
    fails: int = 0


@dataclass(frozen=True)
class Resize:
    uid: str
    size: int


class Sizing(Reconciler[Thing, int, Resize | Done, ThingStatus]):
    """Changes a size outside Kubernetes towards the requested one, by one per pass."""

    kind = Thing
    finalizer = "test.moxwell.dev/size"

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    async def see(self, obj: Thing, reader: Reader) -> int:
        async with self._working(obj.uid):
            if self._outside.fails:
                self._outside.fails -= 1
                raise Unreachable("the region does not answer")
            return self._outside.sizes.get(obj.uid, 0)

    def plan(self, obj: Thing, seen: int) -> Resize | Done:
        goal = 0 if obj.deleting else obj.spec.size
        return Done() if seen == goal else Resize(obj.uid, seen + (1 if goal > seen else -1))

    async def act(self, move: Resize | Done) -> None:
        assert isinstance(move, Resize)
        async with self._working(move.uid):
            self._outside.sizes[move.uid] = move.size
            if move.size == 0:
                del self._outside.sizes[move.uid]

    def describe(self, obj: Thing, seen: int, move: Resize | Done) -> ThingStatus:
        done = isinstance(move, Done)
        ready = Condition(
            type="Ready",
            status="True" if done else "False",
            reason="UpToDate" if done else "Sizing",
        )
        size = move.size if isinstance(move, Resize) else seen
        return ThingStatus(ready=done, size=size, conditions=(ready,))

    def requeue_after(self, obj: Thing, seen: int, move: Resize | Done) -> float | None:
        return None if isinstance(move, Done) else 1.0

    @asynccontextmanager
    async def _working(self, uid: str) -> AsyncIterator[None]:
        """Count passes of one object that overlap."""
        out = self._outside
        out.overlaps += uid in out.at_work
        out.at_work.add(uid)
        try:
            await asyncio.sleep(0.1)
            yield
        finally:
            out.at_work.discard(uid)


async def act(kube: Kube, fake: FakeKube, out: Outside, what: str, name: str, size: int) -> None:
    found = await kube.find(THINGS, name, "ns")
    match what:
        case "ask" if found is None:
            region = f"r{size % 2}"
            await kube.create(thing(name, size=size, region=region), THINGS)
        case "ask" if found is not None and "deletionTimestamp" not in found["metadata"]:
            await kube.merge(THINGS, name, {"spec": {"size": size}}, "ns")
        case "touch" if found is not None:
            theirs = {"status": {"theirs": size}}
            await kube.merge_status(THINGS, name, theirs, "ns")
        case "delete" if found is not None:
            await kube.delete(THINGS, name, "ns")
        case "cut":
            fake.end_watches()
        case "compact":
            fake.compact()
            fake.end_watches()
        case "refuse":
            code = (500, 409, 503, 429)[size % 4]
            fake.fail(is_write, code, "Conflict" if code == 409 else "")
        case "outage":
            out.fails = size


def is_write(request: Request) -> bool:
    """A write of the program's; the user's are not disturbed."""
    ours = ("fieldManager", "user") not in request.query
    return ours and request.method == "PATCH" and "things" in request.path


DEEDS = ["ask", "ask", "ask", "touch", "delete", "cut", "compact", "refuse", "outage", "kill"]
deeds = st.lists(
    st.tuples(
        st.sampled_from(DEEDS),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 4),
        st.sampled_from([0.0, 0.1, 0.5, 3.0, 20.0]),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(deeds=deeds, seed=st.integers(0, 5))
def test_every_object_settles_and_nothing_overlaps(
    deeds: list[tuple[str, str, int, float]], seed: int
) -> None:
    async def story() -> None:
        fake, out = FakeKube(LoopClock()), Outside()
        kube = Kube(fake, manager="user")

        def live() -> asyncio.Task[None]:
            chosen = ManagerSettings(elect=False, concurrency=2)
            runtime = assemble(fake, LoopClock(), chosen, rng=random.Random(seed))
            runtime.manager.add(
                Controller(
                    name="test.size",
                    reconciler=Sizing(out),
                    shard=lambda t: str(t.spec.region),
                )
            )
            return asyncio.create_task(runtime.manager.run())

        life = live()
        for what, name, size, pause in deeds:
            if what == "kill":
                life.cancel()
                await asyncio.wait([life])
                life = live()
            await act(kube, fake, out, what, name, size)
            await asyncio.sleep(pause)
        fake.clear_faults()
        out.fails = 0
        await asyncio.sleep(1200)
        things = (await kube.list(Thing, "ns")).items
        assert out.overlaps == 0
        assert not any(t.deleting for t in things)
        assert out.sizes == {t.uid: t.spec.size for t in things if t.spec.size}
        assert all(t.status.ready and (t.status.size or 0) == t.spec.size for t in things)
        writes = len(fake.writes())
        await asyncio.sleep(1200)
        assert len(fake.writes()) == writes  # at rest nothing is written
        life.cancel()
        await asyncio.wait([life])

    run_virtual(story())
