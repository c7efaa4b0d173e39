"""Kubernetes writes as values: repeating one is harmless, and each can be printed."""

import pytest

from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound
from moxwell.runtime.writes import Apply, Create, Delete, Merge, Write, Writes
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock
from moxwell.testing.sample_kind import THINGS, thing

BIGGER = Merge(THINGS, "a", {"spec": {"size": 2}}, "ns")
ROWS = [
    pytest.param(Create(thing("a", size=1), THINGS), "create Thing a", {"a": 1}, id="create"),
    pytest.param(BIGGER, "patch Thing a", {"a": 2}, id="merge patch"),
    pytest.param(Delete(THINGS, "a", "ns"), "delete Thing a", {}, id="delete"),
]


def sizes(fake: FakeKube) -> dict[str, int]:
    found = fake.objects("things", "test.moxwell.dev")
    return {obj["metadata"]["name"]: obj["spec"]["size"] for obj in found}


@pytest.mark.parametrize("write, text, after", ROWS)
async def test_a_repeated_write_changes_nothing_more(
    write: Write, text: str, after: dict[str, int]
) -> None:
    fake = FakeKube(LoopClock())
    kube = Kube(fake)
    if not isinstance(write, Create):
        await kube.create(thing("a", size=1), THINGS)
    for _ in range(2):
        await Writes((write,)).perform(kube)
        assert sizes(fake) == after
    assert str(write) == text


async def test_a_patch_of_a_missing_object_is_an_error_unless_allowed() -> None:
    kube = Kube(FakeKube(LoopClock()))
    await Merge(THINGS, "a", {}, "ns", missing_ok=True).perform(kube)
    with pytest.raises(NotFound):
        await BIGGER.perform(kube)


def test_writes_are_printed_in_order() -> None:
    writes = Writes((Apply(thing("a"), THINGS), Delete(THINGS, "b", "ns")))
    assert str(writes) == "apply Thing a, delete Thing b"
