"""Ownership marks in descriptions and tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.pve import errors, ownership
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import Foreign, Mark

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
    assert ownership.owner_key(guest) == owner
    assert ownership.is_ours(guest, OURS) is (owner == OURS.key)


@pytest.mark.parametrize(
    ("guest", "error", "message"),
    [
        (config(description=OTHERS.line), Foreign, "is owned by"),
        (config(), Foreign, "has no owner mark"),
        (config(lock="clone", description=" qmclone temporary file"), errors.Locked, "cloned"),
        (config(lock="clone", description=OTHERS.line), Foreign, "is owned by"),
    ],
)
def test_a_guest_of_another_owner_is_refused(
    guest: GuestConfig, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ownership.verify(guest, OURS, "guest 100")


def test_our_guest_is_accepted() -> None:
    ownership.verify(config(description=OURS.line), OURS, "guest 100")


@given(st.text(max_size=200), st.uuids())
def test_a_description_keeps_its_mark_below_any_text(text: str, uid: object) -> None:
    mark = Mark(str(uid))
    described = mark.describe(text)
    assert ownership.owner_in_description(described) == str(uid)
    assert ownership.owner_in_description(OTHERS.describe(described)) == OTHERS.owner_uid
