"""Address ranges and the choice of a free address."""

import pytest

from moxwell.api.infra.address_ranges import overlaps, parse_address_range, parse_address_ranges
from moxwell.errors import Invalid
from moxwell.scheduling.addresses import choose_address, normal


@pytest.mark.parametrize(
    "text, count, first",
    [
        pytest.param("10.0.0.5", 1, "10.0.0.5", id="one"),
        pytest.param("10.0.0.5-10.0.0.9", 5, "10.0.0.5", id="range"),
        pytest.param("10.0.0.0/30", 4, "10.0.0.0", id="CIDR"),
        pytest.param("2001:db8::/64", 2**64, "2001:db8::", id="an IPv6 network has no list"),
    ],
)
def test_parse(text: str, count: int, first: str) -> None:
    parsed = parse_address_range(text)
    assert parsed.last - parsed.first + 1 == count
    assert first in parsed


@pytest.mark.parametrize("text", ["", "x", "10.0.0.9-10.0.0.5", "10.0.0.1-::1", "10.0.0.0/99"])
def test_nonsense_is_a_sentence(text: str) -> None:
    with pytest.raises(Invalid, match="is not"):
        parse_address_range(text)


def test_the_first_free_one() -> None:
    ranges = parse_address_ranges(["10.0.0.1-10.0.0.2", "10.0.1.1"])
    assert choose_address(ranges, {"10.0.0.1"}) == "10.0.0.2"
    assert choose_address(ranges, {"10.0.0.1", "10.0.0.2"}) == "10.0.1.1"
    assert choose_address(ranges, {"10.0.0.1", "10.0.0.2", "10.0.1.1"}) is None


def test_overlap_and_spelling() -> None:
    assert overlaps(
        parse_address_ranges(["10.0.0.0/24"]), parse_address_ranges(["10.0.0.200-10.0.1.5"])
    )
    assert not overlaps(parse_address_ranges(["10.0.0.0/24"]), parse_address_ranges(["::/0"]))
    assert normal("2001:DB8:0::5") == "2001:db8::5"
