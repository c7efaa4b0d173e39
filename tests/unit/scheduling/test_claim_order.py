"""The order of new node claims is the one that Go's sort leaves behind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.packing.claim_order import ClaimOrder
from moxwell.scheduling.packing.go_sort import sort_slice

GOLDEN = Path(__file__).with_name("go_sort.txt")  # checksum and keys, made by Go 1.26
FNV_START, FNV_PRIME = 14695981039346656037, 1099511628211


def checksum(items: list[int]) -> int:
    found = FNV_START
    for item in items:
        found = ((found ^ item) * FNV_PRIME) % 2**64
    return found


@pytest.mark.parametrize("row", GOLDEN.read_text().splitlines(), ids=lambda r: r[:8])
def test_equal_elements_are_left_as_go_leaves_them(row: str) -> None:
    expected, *keys = map(int, row.split())
    items, sorted_keys = list(range(len(keys))), list(keys)
    sort_slice(sorted_keys, items)
    assert sorted_keys == sorted(keys)
    assert checksum(items) == expected


@pytest.mark.parametrize("claims", [5, 12, 13, 30, 49, 50, 51, 120])
@settings(max_examples=20)
@given(choices=st.lists(st.integers(0, 10**6), min_size=1, max_size=80))
def test_moving_one_claim_equals_sorting_all(claims: int, choices: list[int]) -> None:
    order = ClaimOrder()
    numbers: list[int] = []
    counts: list[int] = []
    for choice in [*range(claims), *choices]:
        sort_slice(counts, numbers)
        assert order.sort().tolist() == numbers
        if len(numbers) < claims:
            order.append(len(numbers))
            numbers.append(len(numbers))
            counts.append(1)
        else:
            place = choice % claims if choice % 3 else 0
            order.grew(place)
            counts[place] += 1
    sort_slice(counts, numbers)
    assert order.sort().tolist() == numbers
