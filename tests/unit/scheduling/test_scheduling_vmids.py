"""VMIDs are free, inside the range, spread, and stable for one owner."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.errors import Invalid
from moxwell.scheduling.vmids import (
    COOL_DOWN_SECONDS,
    RangeExhausted,
    VmidRange,
    choose_vmid,
    cooling,
)

NOW = 10_000.0


@settings(deadline=None)
@given(
    start=st.integers(100, 200),
    size=st.integers(1, 50),
    taken=st.sets(st.integers(100, 260)),
    seed=st.text(max_size=20),
)
def test_a_free_id_of_the_range_or_a_sentence(
    start: int, size: int, taken: set[int], seed: str
) -> None:
    within = VmidRange(start, start + size - 1)
    free = set(range(start, start + size)) - taken
    if free:
        assert choose_vmid(within, taken, seed=seed) in free
        return
    with pytest.raises(RangeExhausted, match="widen the range"):
        choose_vmid(within, taken, seed=seed)


def test_the_same_owner_wants_the_same_id_again() -> None:
    assert choose_vmid(VmidRange(), {1}, seed="uid") == choose_vmid(VmidRange(), {2}, seed="uid")


def test_owners_are_spread_over_the_range() -> None:
    chosen = {choose_vmid(VmidRange(), (), seed=f"uid-{n}") for n in range(200)}
    assert len(chosen) > 190


def test_an_id_freed_lately_is_left_alone() -> None:
    freed = {100: NOW - 60, 101: NOW - COOL_DOWN_SECONDS}
    assert cooling(freed, NOW) == {100}
    assert choose_vmid(VmidRange(100, 101), (), cooling(freed, NOW), seed="x") == 101


@pytest.mark.parametrize(
    "start, end",
    [
        pytest.param(99, 200, id="below what Proxmox allows"),
        pytest.param(300, 200, id="end before start"),
        pytest.param(100, 1_000_000_000, id="above what Proxmox allows"),
    ],
)
def test_impossible_ranges(start: int, end: int) -> None:
    with pytest.raises(Invalid, match="must lie in"):
        VmidRange(start, end)
