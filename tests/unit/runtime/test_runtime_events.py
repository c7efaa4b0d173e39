"""Events: counted, combined, silenced, and never in the way."""

import asyncio
from typing import Any

from moxwell.kube.client import Kube
from moxwell.runtime.events import BURST, EVENTS, SAME_SECONDS, Recorder
from moxwell.runtime.reconciler import Note
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.sample_kind import THINGS, thing

OBJ = thing("one", meta={"uid": "u1", "resourceVersion": "7"})


def recorder(fake: FakeKube) -> Recorder:
    return Recorder(Kube(fake), LoopClock(), instance="test")


def recorded(fake: FakeKube) -> list[tuple[str, int]]:
    return sorted((e["message"], e["count"]) for e in fake.objects("events"))


async def tell(of: Recorder, *messages: str, obj: Any = OBJ) -> None:
    for message in messages:
        of.note("test.thing", THINGS, obj, Note("Said", message))
    await of.flush()


def test_equal_events_are_counted_on_one_object() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        notes = recorder(fake)
        await tell(notes, "hello", "hello", "other", "hello")
        assert recorded(fake) == [("hello", 3), ("other", 1)]
        (event, *_) = fake.objects("events")
        assert event["involvedObject"]["uid"] == "u1"
        assert event["metadata"]["namespace"] == "ns"
        assert event["source"] == {"component": "test.thing"}

    run_virtual(story())


def test_a_counted_event_that_was_removed_is_made_anew() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        notes = recorder(fake)
        await tell(notes, "hello")
        await Kube(fake).delete_collection(EVENTS, "ns")
        await asyncio.sleep(1)
        await tell(notes, "hello")
        assert recorded(fake) == [("hello", 1)]
        await asyncio.sleep(SAME_SECONDS + 1)
        await tell(notes, "hello")
        assert recorded(fake) == [("hello", 1), ("hello", 1)]

    run_virtual(story())


def test_many_that_differ_only_in_their_text_are_combined() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        await tell(recorder(fake), *(f"text {n}" for n in range(20)))
        assert len(recorded(fake)) == 11
        assert ("(combined from similar events)", 10) in recorded(fake)

    run_virtual(story())


def test_an_object_that_talks_without_end_is_silenced_for_a_while() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        notes = recorder(fake)
        await tell(notes, *["again"] * 100)
        assert recorded(fake) == [("again", BURST)]
        await asyncio.sleep(300)
        await tell(notes, "again", "again")
        assert recorded(fake) == [("again", BURST + 1)]
        other = thing("two", meta={"uid": "u2"})
        await tell(notes, "hello", obj=other)
        assert len(fake.objects("events")) == 2

    run_virtual(story())


def test_a_refused_event_is_dropped_and_the_next_is_written() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        fake.fail(lambda r: r.method == "POST", 403, "Forbidden")
        await tell(recorder(fake), "lost", "kept")
        assert recorded(fake) == [("kept", 1)]

    run_virtual(story())


def test_an_object_without_namespace_tells_in_default() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        await tell(recorder(fake), "hello", obj={"metadata": {"name": "n1", "uid": "u"}})
        assert fake.objects("events")[0]["metadata"]["namespace"] == "default"

    run_virtual(story())
