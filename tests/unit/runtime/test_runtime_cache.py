"""The cache is what the API holds, whatever happened on the way."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.kube.client import Kube
from moxwell.runtime import index
from moxwell.runtime.cache import Cache, NotCached
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of, version_of
from moxwell.runtime.reflector import Reflector
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.sample_kind import THINGS, Thing, thing


@asynccontextmanager
async def following(
    fake: FakeKube, cache: Cache[Any], **options: Any
) -> AsyncIterator[Reflector[Any]]:
    reflector = Reflector(Kube(fake), LoopClock(), cache, rng=random.Random(1), **options)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()


def held(cache: Cache[Any]) -> dict[Key, str]:
    return {key_of(obj): version_of(obj) for obj in cache.list()}


def stored(fake: FakeKube) -> dict[Key, str]:
    return {key_of(o): version_of(o) for o in fake.objects("things", "test.moxwell.dev")}


def test_indexes_follow_their_objects() -> None:
    cache: Cache[Any] = Cache(THINGS, {"provider": index.by_provider_id})
    cache.add_index("owner", index.by_owner)
    cache.add_index("team", index.by_label("team"))
    meta = {"labels": {"team": "a"}, "ownerReferences": [{"uid": "u1"}], "resourceVersion": "1"}
    one = thing("one", meta=meta, providerID="p1")
    cache.put(one)
    assert cache.by("owner", "u1") == cache.by("team", "a") == cache.by("provider", "p1") == (one,)
    two = thing("one", meta={"labels": {"team": "b"}, "resourceVersion": "2"})
    cache.put(two)
    assert cache.by("team", "b") == (two,)
    assert cache.by("owner", "u1") == cache.by("team", "a") == cache.by("provider", "p1") == ()
    cache.remove(Key("ns", "one"))
    assert cache.by("team", "b") == ()
    with pytest.raises(NotCached):
        cache.get(Key("ns", "one"))


def test_typed_objects_are_indexed_by_wire_names() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        cache: Cache[Thing] = Cache(Thing, {"provider": index.by_provider_id})
        await Kube(fake).create(thing("one", providerID="p1"), THINGS)
        async with following(fake, cache):
            await cache.wait_synced()
            assert [t.name for t in cache.by("provider", "p1")] == ["one"]

    run_virtual(story())


def test_what_vanished_while_history_was_lost_is_told_as_deleted() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        kube, cache = Kube(fake), Cache[Any](THINGS)
        seen: list[tuple[str | None, str | None]] = []
        cache.subscribe(lambda old, new, _: seen.append((_name(old), _name(new))))
        await kube.create(thing("stays"), THINGS)
        await kube.create(thing("goes"), THINGS)
        async with following(fake, cache):
            await cache.wait_synced()
            await asyncio.sleep(1)
            fake.fail(lambda r: ("watch", "true") in r.query, 503)
            fake.end_watches()
            await asyncio.sleep(0.001)  # the watch is away
            await kube.delete(THINGS, "goes", "ns")
            fake.compact()
            await asyncio.sleep(60)
            assert seen == [(None, "goes"), (None, "stays"), ("goes", None)]

    run_virtual(story())


def _name(obj: Any) -> str | None:
    return None if obj is None else str(obj["metadata"]["name"])


def test_an_unreadable_object_is_set_aside_and_its_last_form_kept() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        kube, cache = Kube(fake), Cache[Thing](Thing)
        await kube.create(thing("odd", size=3), THINGS)
        await kube.create(thing("odd-from-the-start", size="large"), THINGS)
        async with following(fake, cache):
            await cache.wait_synced()
            assert set(cache.unreadable) == {Key("ns", "odd-from-the-start")}
            await kube.merge(THINGS, "odd", {"spec": {"size": "huge"}}, "ns")
            await asyncio.sleep(1)
            assert cache.get(Key("ns", "odd")).spec.size == 3
            assert set(cache.unreadable) == {Key("ns", "odd"), Key("ns", "odd-from-the-start")}
            await kube.delete(THINGS, "odd", "ns")
            await kube.merge(THINGS, "odd-from-the-start", {"spec": {"size": 1}}, "ns")
            await asyncio.sleep(1)
            assert cache.unreadable == {}
            assert [t.name for t in cache.list()] == ["odd-from-the-start"]

    run_virtual(story())


def test_a_server_that_does_not_stream_lists_is_listed() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        cache = Cache[Any](THINGS)
        fake.fail(lambda r: ("sendInitialEvents", "true") in r.query, 422, "Invalid")
        await Kube(fake).create(thing("one"), THINGS)
        async with following(fake, cache, streaming=True):
            await cache.wait_synced()
            assert len(cache) == 1

    run_virtual(story())


def test_one_cache_is_fed_from_several_namespaces() -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        kube, cache = Kube(fake), Cache[Any](THINGS)
        for namespace in ("a", "b", "c"):
            await kube.create(thing("one", namespace=namespace), THINGS)
        async with following(fake, cache, namespace="a"), following(fake, cache, namespace="b"):
            await cache.wait_synced()
            assert [k.namespace for k in sorted(cache.keys())] == ["a", "b"]
            assert [key_of(o) for o in cache.list("b")] == [Key("b", "one")]

    run_virtual(story())


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "cut", "compact", "fail", "bookmark"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.0, 0.05, 3.0]),
    ),
    max_size=50,
)


@settings(deadline=None, max_examples=80)
@given(steps=steps, streaming=st.booleans(), page=st.sampled_from([1, 2, 500]))
def test_the_cache_equals_the_server_after_anything(
    steps: list[tuple[str, int, float]], streaming: bool, page: int
) -> None:
    async def story() -> None:
        fake = FakeKube(LoopClock())
        cache = Cache[Any](THINGS)
        mirror: dict[Key, str] = {}

        def mirrored(old: Any, new: Any, _: bool) -> None:
            if new is None:
                del mirror[key_of(old)]
            else:
                assert (key_of(new) in mirror) == (old is not None)
                mirror[key_of(new)] = version_of(new)

        cache.subscribe(mirrored)
        async with following(fake, cache, streaming=streaming, page_size=page):
            for step, which, pause in steps:
                await disturb(fake, step, f"t{which}")
                await asyncio.sleep(pause)
            await asyncio.sleep(300)
            assert held(cache) == stored(fake) == mirror

    run_virtual(story())


async def disturb(fake: FakeKube, step: str, name: str) -> None:
    kube = Kube(fake)
    match step:
        case "put":
            if await kube.find(THINGS, name, "ns") is None:
                await kube.create(thing(name), THINGS)
            else:
                change = {"spec": {"size": fake.version}}
                await kube.merge(THINGS, name, change, "ns")
        case "delete":
            if await kube.find(THINGS, name, "ns") is not None:
                await kube.delete(THINGS, name, "ns")
        case "cut":
            fake.end_watches()
        case "compact":
            fake.compact()
            fake.end_watches()
        case "fail":
            fake.fail(lambda r: ("limit", "500") in r.query or ("watch", "true") in r.query, 503)
            fake.end_watches()
        case "bookmark":
            fake.bookmark()
