"""The ring: what differs is numbered, the past is bounded, a reader never misses silently."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.testing.loop import run_virtual
from moxwell.web import layout
from moxwell.web.change_log import ChangeLog, RecordChange, Snapshot, Unchanged
from moxwell.web.layout import GuestArea, Layout

START = datetime(2026, 1, 1, tzinfo=UTC)
pictures = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries({"v": st.integers(0, 2)})),
    max_size=12,
)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def test_an_equal_picture_is_no_change() -> None:
    ring = ChangeLog(START)
    ring.put({"a": {"v": 1}}, at=at(1))
    assert ring.put({"a": {"v": 1}}, at=at(2)) is None


def test_a_change_holds_only_what_differs() -> None:
    ring = ChangeLog(START)
    ring.put({"a": {"v": 1}, "b": {"v": 1}}, at=at(1))
    change = ring.put({"a": {"v": 2}, "c": {"v": 1}}, at=at(2))
    assert change == RecordChange(2, at(2), {"a": {"v": 2}, "c": {"v": 1}}, ("b",))


@given(pictures, st.integers(1, 5))
def test_any_remembered_moment_is_as_it_was(
    history: list[dict[str, dict[str, int]]], keep: int
) -> None:
    ring = ChangeLog(START, capacity=keep)
    for second, picture in enumerate(history):
        ring.put(picture, at=at(second))
    for second, picture in enumerate(history):
        if at(second) >= ring.since:
            assert ring.snapshot_at(at(second)).records == picture


def test_a_reader_that_was_away_too_long_gets_the_whole_picture() -> None:
    async def first(number: int) -> RecordChange | Snapshot | Unchanged:
        ring = ChangeLog(START, capacity=2)
        for second in range(6):
            ring.put({"a": {"v": second}}, at=at(second))
        return await anext(ring.follow(number))

    assert isinstance(run_virtual(first(1)), Snapshot)
    assert isinstance(run_virtual(first(5)), RecordChange)


def test_a_number_from_another_life_gets_the_whole_picture() -> None:
    ring = ChangeLog(START)
    ring.put({"a": {"v": 1}}, at=at(1))
    assert ring.changes_after(99) is None


def test_a_follower_sees_every_change_once() -> None:
    async def story() -> list[int]:
        ring = ChangeLog(START)
        seen: list[int] = []

        async def read() -> None:
            async for item in ring.follow(0):
                seen.append(item.number)

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(read())
            for second in range(5):
                ring.put({"a": {"v": second}}, at=at(second))
                await asyncio.sleep(second % 2)
            await asyncio.sleep(1)
            reader.cancel()
        return seen

    assert run_virtual(story()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "mib, shape",
    [
        (512, (1, 1)),
        (8192, (1, 1)),
        (8193, (1, 2)),
        (16384, (1, 2)),
        (32768, (2, 2)),
        (65536, (2, 4)),
        (131072, (2, 8)),
        (204800, (4, 7)),
        (262144, (4, 8)),
    ],
)
def test_shapes_follow_memory(mib: int, shape: tuple[int, int]) -> None:
    assert layout.shape(mib) == shape


def sizes(guests: dict[str, int]) -> dict[str, GuestArea]:
    return {key: GuestArea(memory) for key, memory in guests.items()}


def test_new_guests_overlap_little_because_the_largest_comes_first() -> None:
    memory = {"a": 32768, "b": 8192, "huge": 204800, "vpn": 8192}
    places = Layout((4,)).place(sizes(memory))
    assert places["huge"].cells() == layout.GridPosition(0, 0, 0, 4, 7).cells()
    assert not places["b"].cells() & places["huge"].cells()


guest_sets = st.lists(
    st.dictionaries(
        st.sampled_from("pqrstuvw"), st.sampled_from([4096, 8192, 16384, 32768]), max_size=6
    ),
    max_size=6,
)


@given(guest_sets)
def test_a_guest_keeps_its_cells_for_life(steps: list[dict[str, int]]) -> None:
    host = Layout((4, 4))
    before: dict[str, tuple[int, object]] = {}
    for guests in steps:
        after = {key: (guests[key], place) for key, place in host.place(sizes(guests)).items()}
        assert after.keys() == guests.keys()
        for key in before.keys() & after.keys():
            if before[key][0] == after[key][0]:
                assert before[key] == after[key]
        before = dict(after)


@given(st.dictionaries(st.sampled_from("pqrs"), st.sampled_from([4096, 8192, 16384]), max_size=4))
def test_guests_do_not_cover_each_other_while_there_is_room(guests: dict[str, int]) -> None:
    places = list(Layout((2, 2)).place(sizes(guests)).values())
    cells = [cell for place in places for cell in place.cells()]
    assert len(cells) == len(set(cells))


async def test_the_log_knows_whether_somebody_reads() -> None:
    log = ChangeLog(START)
    assert not log.take_request()
    log.request()
    assert log.take_request()
    assert not log.take_request()  # a single read is over
    following = log.follow(-1)
    assert isinstance(await anext(following), Snapshot)
    assert log.take_request()
    assert log.take_request()  # as long as it follows
    await following.aclose()
    assert not log.take_request()


def test_the_number_of_kept_records_is_bounded() -> None:
    log = ChangeLog(START, records=10)
    for number in range(20):
        at = START + timedelta(seconds=number)
        log.put({f"machine/{i}": {"step": number} for i in range(4)}, at=at)
    assert log.snapshot.records["machine/0"] == {"step": 19}
    assert log.since == START + timedelta(seconds=17)  # eight records in the last two changes
    assert log.snapshot_at(START).records["machine/3"] == {"step": 17}
    assert log.changes_after(17) is None
    assert [c.number for c in log.changes_after(18) or ()] == [19, 20]


def test_a_guest_that_is_bound_is_in_the_block_of_its_numa_node() -> None:
    guests = {"a": GuestArea(8192), "b": GuestArea(8192, 1), "c": GuestArea(8192, 0)}
    places = Layout((2, 2)).place(guests)
    assert (places["b"].block, places["c"].block) == (1, 0)


@pytest.mark.parametrize("looks", [True, False], ids=["looked at", "nobody looks"])
def test_the_first_reader_gets_what_was_just_looked_at(looks: bool) -> None:
    async def main() -> None:
        log = ChangeLog(START)
        log.put({"a": {"v": 1}}, at=at(1))

        async def look() -> None:
            await asyncio.sleep(1)
            log.put({"a": {"v": 1}}, at=at(500))

        task = asyncio.create_task(look()) if looks else None
        following = log.follow(-1)
        found = await anext(following)
        assert (found.number, found.at) == (1, at(500 if looks else 1))
        if task is not None:
            await task
        await following.aclose()

    run_virtual(main())


def test_a_reader_of_a_quiet_log_hears_when_it_was_looked_at() -> None:
    async def main() -> None:
        log = ChangeLog(START)
        log.put({"a": {"v": 1}}, at=at(1))
        log.put({"a": {"v": 1}}, at=at(9))  # looked at again, nothing changed
        following = log.follow(1, quiet_seconds=15)
        assert await anext(following) == Unchanged(1, at(9))
        log.put({"a": {"v": 2}}, at=at(10))
        assert isinstance(await anext(following), RecordChange)
        await following.aclose()

    run_virtual(main())
