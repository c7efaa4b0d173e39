"""Whose a guest is, and which id the next one gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.errors import Busy, Invalid
from moxwell.pve import errors, marks
from moxwell.pve.claims import COOLDOWN_SECONDS, NoVmidLeft, VmidRange, choose_vmid
from moxwell.pve.guests import GuestConfig
from moxwell.pve.marks import Foreign, Mark

UID = "6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d"
OURS = Mark(UID)
OTHERS = Mark("00000000-0000-4000-8000-000000000001")


def config(**raw: str) -> GuestConfig:
    return GuestConfig(raw)


def test_a_mark_as_text_and_as_tag() -> None:
    assert OURS.line == f"moxwell-owner={UID}"
    assert OURS.tag == "mox-6f0a2c1e8d5f4a7b9c3d0e1f2a3b4c5d"
    assert OURS.tags(["web", "moxwell", OTHERS.tag]) == f"moxwell;{OURS.tag};web"
    assert OURS.describe() == OURS.line
    assert OURS.describe("hello\nworld") == f"hello\nworld\n\n{OURS.line}"


@pytest.mark.parametrize(
    ("guest", "owner"),
    [
        pytest.param(config(description=OURS.line), OURS.key, id="by description"),
        pytest.param(config(description=f"x\n{OURS.line}\ny"), OURS.key, id="amid a text"),
        pytest.param(config(tags=OURS.tags()), OURS.key, id="by tag"),
        pytest.param(config(description=OURS.line, tags=OTHERS.tags()), OURS.key,
                     id="a clone inherits its template's tags"),
        pytest.param(config(description="hand-made", tags="moxwell"), None, id="no owner"),
        pytest.param(config(tags=f"{OURS.tag};{OTHERS.tag}"), None, id="two owners are none"),
        pytest.param(config(description="see moxwell-owner=x here"), None, id="a mention"),
        pytest.param(config(), None, id="nothing"),
    ],
)  # fmt: skip
def test_the_owner_of_a_guest(guest: GuestConfig, owner: str | None) -> None:
    assert marks.owner_key(guest) == owner
    assert marks.is_ours(guest, OURS) is (owner == OURS.key)


@pytest.mark.parametrize(
    ("guest", "error", "told"),
    [
        (config(description=OTHERS.line), Foreign, "belongs to"),
        (config(), Foreign, "bears no mark"),
        (config(lock="clone", description=" qmclone temporary file"), errors.Locked, "cloned"),
        (config(lock="clone", description=OTHERS.line), Foreign, "belongs to"),
    ],
)
def test_what_is_not_ours_is_refused(guest: GuestConfig, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        marks.verify(guest, OURS, "guest 100")


def test_what_is_ours_is_not() -> None:
    marks.verify(config(description=OURS.line), OURS, "guest 100")


@given(st.text(max_size=200), st.uuids())
def test_a_description_keeps_its_mark_whatever_stands_before(text: str, uid: object) -> None:
    mark = Mark(str(uid))
    described = mark.describe(text)
    assert marks.owner_in_description(described) == str(uid)
    assert marks.owner_in_description(OTHERS.describe(described)) == OTHERS.owner_uid


@pytest.mark.parametrize(
    ("after", "used", "claimed", "freed", "chosen"),
    [
        pytest.param(0, (), (), {}, 100, id="the first"),
        pytest.param(100, (), (), {}, 101, id="the one after the last"),
        pytest.param(104, (), (), {}, 100, id="around the end"),
        pytest.param(0, (100, 101), (102,), {}, 103, id="neither used nor claimed"),
        pytest.param(0, (), (), {100: 0.0}, 101, id="not one that was freed just now"),
        pytest.param(0, (), (), {100: -COOLDOWN_SECONDS}, 100, id="one that cooled down"),
        pytest.param(102, (103, 104), (), {}, 100, id="past the used ones, around the end"),
    ],
)
def test_choosing_an_id(
    after: int,
    used: tuple[int, ...],
    claimed: tuple[int, ...],
    freed: dict[int, float],
    chosen: int,
) -> None:
    span = VmidRange(100, 104)
    vmid = choose_vmid(span, used=used, claimed=claimed, freed=freed, now=0.0, after=after)
    assert vmid == chosen
    assert vmid in span


def test_a_full_range_is_busy_and_says_so() -> None:
    with pytest.raises(NoVmidLeft, match="all 2 ids of 100-101") as caught:
        choose_vmid(VmidRange(100, 101), used=(100,), claimed=(101,))
    assert isinstance(caught.value, Busy)


@pytest.mark.parametrize(("start", "end"), [(99, 200), (200, 199), (100, 10**9)])
def test_a_range_that_proxmox_would_refuse(start: int, end: int) -> None:
    with pytest.raises(Invalid):
        VmidRange(start, end)


@given(st.sets(st.integers(100, 120)), st.sets(st.integers(100, 120)), st.integers(0, 200))
def test_a_chosen_id_is_free(used: set[int], claimed: set[int], after: int) -> None:
    span = VmidRange(100, 120)
    free = set(range(100, 121)) - used - claimed
    if free:
        assert choose_vmid(span, used=used, claimed=claimed, after=after) in free
    else:
        with pytest.raises(NoVmidLeft):
            choose_vmid(span, used=used, claimed=claimed, after=after)
