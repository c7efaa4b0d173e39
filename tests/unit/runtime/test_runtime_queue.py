"""The queue's promises: no key lost, none in two hands, none starved, each shard its own places."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.runtime.backoff import Backoff, BackoffSettings, Bucket
from moxwell.runtime.key import Key
from moxwell.runtime.queue import HIGH, LOW, OLDEST_EVERY, Item, Queue, always
from moxwell.testing.loop import LoopClock, run_virtual

A, B, C = (Key("ns", name) for name in "abc")


def make(
    *,
    per_shard: int = 4,
    gate: Callable[[str], bool] = always,
    backoff_settings: BackoffSettings | None = None,
) -> Queue:
    clock = LoopClock()
    backoff = Backoff(clock, backoff_settings or BackoffSettings(jitter=0), random.Random(1))
    return Queue(clock, backoff, per_shard=per_shard, gate=gate)


async def ready(queue: Queue) -> Item | None:
    """What the queue hands out at once, if anything."""
    task = asyncio.create_task(queue.get())
    for _ in range(3):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


async def drain(queue: Queue) -> list[Key]:
    out = []
    while (item := await ready(queue)) is not None:
        out.append(item.key)
        queue.done(item)
    return out


@pytest.mark.parametrize(("key", "text"), [(Key("ns", "name"), "ns/name"), (Key("", "n"), "n")])
def test_a_key_prints_as_kubectl_names_it(key: Key, text: str) -> None:
    assert str(key) == text


def test_a_key_added_often_comes_out_once() -> None:
    async def story() -> None:
        queue = make()
        for key in (A, B, A, A):
            queue.add(key)
        assert await drain(queue) == [A, B]

    run_virtual(story())


def test_a_key_added_while_in_hands_comes_back_when_done() -> None:
    async def story() -> None:
        queue = make()
        queue.add(A)
        item = await ready(queue)
        assert item is not None
        queue.add(A)
        queue.add(A)
        assert await ready(queue) is None
        queue.done(item)
        assert await drain(queue) == [A]

    run_virtual(story())


def test_the_higher_priority_goes_first_and_a_key_can_rise() -> None:
    async def story() -> None:
        queue = make()
        queue.add(A, priority=LOW)
        queue.add(B)
        queue.add(C, priority=LOW)
        queue.add(C, priority=HIGH)
        assert queue.ready_by_priority() == {LOW: 1, 0: 1, HIGH: 1}
        assert await drain(queue) == [C, B, A]

    run_virtual(story())


def test_a_flood_of_important_keys_does_not_stop_the_others() -> None:
    async def story() -> None:
        queue = make()
        queue.add(A, priority=LOW)
        for turn in range(OLDEST_EVERY):
            queue.add(Key("ns", f"urgent-{turn}"), priority=HIGH)
            item = await ready(queue)
            assert item is not None
            queue.done(item)
            if item.key == A:
                return
        raise AssertionError("the low key never came out")

    run_virtual(story())


def test_a_timer_keeps_the_earliest_time_and_dies_when_the_key_is_handed_out() -> None:
    async def story() -> None:
        queue, clock = make(), LoopClock()
        queue.add_after(A, 30)
        queue.add_after(A, 10)
        queue.add_after(A, 20)
        item = await queue.get()
        assert item is not None
        assert clock.monotonic() == pytest.approx(10)
        queue.done(item)
        await asyncio.sleep(100)
        assert await ready(queue) is None

    run_virtual(story())


def test_changes_that_may_wait_are_spaced_by_the_length_of_a_pass() -> None:
    async def story() -> None:
        queue = make()
        for took, spaced in ((0.0, 1.0), (0.04, 1.0), (0.3, 3.0), (60.0, 10.0), (0.0, 1.0)):
            queue.add(A)
            item = await ready(queue)
            assert item is not None
            await asyncio.sleep(took)
            queue.done(item)
            assert queue.spaced(A, 1.0) == pytest.approx(spaced)
            assert queue.spaced(A, 0.0) == 0.0

    run_virtual(story())


def test_backoff_doubles_until_the_key_succeeds() -> None:
    async def story() -> None:
        queue = make(backoff_settings=BackoffSettings(first_seconds=1, cap_seconds=5, jitter=0))
        assert [queue.retry(A) for _ in range(5)] == [1, 2, 4, 5, 5]
        assert queue.failures(A) == 5
        queue.forget(A)
        assert queue.retry(A) == 1

    run_virtual(story())


def test_a_dead_region_uses_up_only_its_own_retries() -> None:
    async def story() -> None:
        backoff_settings = BackoffSettings(first_seconds=0, jitter=0, per_second=1, burst=2)
        queue = make(backoff_settings=backoff_settings)
        waits = [queue.retry(Key("ns", str(n)), shard="dead") for n in range(10)]
        assert waits == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        assert queue.retry(A, shard="alive") == 0

    run_virtual(story())


def test_a_bucket_refills_with_time() -> None:
    async def story() -> None:
        bucket = Bucket(LoopClock(), per_second=2, burst=1)
        assert [bucket.take(), bucket.take()] == [True, False]
        await asyncio.sleep(0.5)
        assert bucket.take()

    run_virtual(story())


def test_a_region_whose_passes_hang_fills_only_its_own_places() -> None:
    async def story() -> None:
        queue = make(per_shard=2)
        for n in range(50):
            queue.add(Key("dead", str(n)), shard="dead")
        queue.add(A, shard="alive")
        held = [await ready(queue) for _ in range(3)]
        assert Counter(i.shard for i in held if i) == {"dead": 2, "alive": 1}
        assert queue.statistics().ready_by_share == {"dead": 48, "alive": 0}

    run_virtual(story())


def test_a_shut_gate_keeps_its_keys_until_it_opens() -> None:
    async def story() -> None:
        held: set[str] = set()
        queue = make(gate=lambda shard: shard in held)
        queue.add(A, shard="r1")
        getting = asyncio.create_task(queue.get())
        await asyncio.sleep(5)
        assert not getting.done()
        held.add("r1")
        queue.wake()
        item = await getting
        assert item is not None
        assert (item.key, item.waited) == (A, 5)

    run_virtual(story())


def test_a_shut_queue_hands_out_nothing() -> None:
    async def story() -> None:
        queue = make()
        queue.add(A)
        queue.shut()
        assert await queue.get() is None

    run_virtual(story())


def test_stale_timers_do_not_pile_up() -> None:
    async def story() -> None:
        queue = make()
        for _ in range(1000):
            queue.add_after(A, 3600)
            queue.add(A)
            item = await ready(queue)
            assert item is not None
            queue.done(item)
        assert queue.statistics().stored_timers < 200
        assert queue.statistics().stored_entries < 200

    run_virtual(story())


adds = st.lists(
    st.tuples(
        st.integers(0, 6),  # which key
        st.sampled_from(["", "r1", "dead"]),
        st.sampled_from([LOW, 0, HIGH]),
        st.sampled_from([0.0, 0.5, 3.0]),  # in how long
        st.sampled_from([0.0, 0.1, 2.0]),  # pause before the next
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(adds=adds, workers=st.integers(1, 3), seed=st.integers(0, 9))
def test_no_key_is_lost_none_overlaps_and_every_add_is_followed_by_a_pass(
    adds: list[tuple[int, str, int, float, float]], workers: int, seed: int
) -> None:
    async def story() -> None:
        queue, clock, rng = make(per_shard=workers), LoopClock(), random.Random(seed)
        running: set[Key] = set()
        asked: dict[Key, float] = {}
        started: dict[Key, float] = {}
        fails = {Key("", str(n)): n % 3 for n in range(7)}

        async def work() -> None:
            while (item := await queue.get()) is not None:
                assert item.key not in running
                running.add(item.key)
                started[item.key] = clock.monotonic()
                await asyncio.sleep(rng.random() * 2)
                running.discard(item.key)
                if fails[item.key]:
                    fails[item.key] -= 1
                    queue.retry(item.key, shard=item.shard)
                else:
                    queue.forget(item.key)
                queue.done(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers * 3):
                group.create_task(work())
            for n, shard, priority, delay, pause in adds:
                key = Key("", str(n))
                queue.add_after(key, delay, shard=shard, priority=priority)
                asked[key] = clock.monotonic()
                await asyncio.sleep(pause)
            await asyncio.sleep(600)
            queue.shut()
        assert all(started[key] >= asked[key] for key in asked)
        assert all(not fails[key] for key in asked)
        assert queue.statistics().ready == queue.statistics().running == 0

    run_virtual(story())


@settings(deadline=None, max_examples=30)
@given(shards=st.integers(2, 5), per_shard=st.integers(1, 3), keys=st.integers(1, 30))
def test_each_living_share_gets_through_whatever_the_dead_ones_do(
    shards: int, per_shard: int, keys: int
) -> None:
    async def story() -> None:
        queue = make(per_shard=per_shard)
        finished: Counter[str] = Counter()
        names = [f"r{n}" for n in range(shards)]
        for n in range(keys):
            for name in names:
                queue.add(Key(name, str(n)), shard=name)

        async def one(item: Item) -> None:
            if item.shard == "r0":
                await asyncio.sleep(10_000)  # the region does not answer
            await asyncio.sleep(1)
            finished[item.shard] += 1
            queue.done(item)

        async with asyncio.TaskGroup() as group:
            until = LoopClock().monotonic() + keys + 1
            tasks = []
            while LoopClock().monotonic() < until:
                try:
                    async with asyncio.timeout(1):
                        item = await queue.get()
                except TimeoutError:
                    continue
                assert item is not None
                tasks.append(group.create_task(one(item)))
            assert {name: finished[name] for name in names[1:]} == dict.fromkeys(names[1:], keys)
            for task in tasks:
                task.cancel()

    run_virtual(story())
