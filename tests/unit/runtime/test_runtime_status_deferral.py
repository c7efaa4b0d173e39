"""How long a status waits for a later pass, and which changes do not wait."""

import asyncio
from typing import Any

import msgspec
import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.runtime.key import Key
from moxwell.runtime.status import is_urgent
from moxwell.runtime.status_deferral import (
    AT_ONCE_SECONDS,
    LONGEST_SECONDS,
    URGENT_SECONDS,
    StatusDeferral,
)
from moxwell.testing.loop import LoopClock, run_virtual

A, B = Key("team", "a"), Key("team", "b")


@pytest.mark.parametrize(
    ("after", "urgent", "seconds"),
    [
        (None, True, 0.0),
        (3.0, True, 0.0),
        (AT_ONCE_SECONDS, True, URGENT_SECONDS),
        (0.0, True, URGENT_SECONDS),
        (None, False, LONGEST_SECONDS),
        (AT_ONCE_SECONDS, False, LONGEST_SECONDS),
    ],
)
def test_how_long_a_status_may_wait(after: float | None, urgent: bool, seconds: float) -> None:
    async def story() -> None:
        assert StatusDeferral(LoopClock()).seconds(A, after, urgent=urgent) == seconds

    run_virtual(story())


@pytest.mark.parametrize(("urgent", "writes"), [(True, range(8, 11)), (False, range(1, 3))])
def test_many_passes_in_a_row_write_seldom_each_object_apart(urgent: bool, writes: range) -> None:
    async def story() -> None:
        deferral, written = StatusDeferral(LoopClock()), 0
        for _ in range(100):
            written += not deferral.seconds(A, AT_ONCE_SECONDS, urgent=urgent)
            await asyncio.sleep(AT_ONCE_SECONDS)
        assert written in writes
        assert deferral.seconds(B, AT_ONCE_SECONDS, urgent=urgent)
        await asyncio.sleep(LONGEST_SECONDS)
        assert not deferral.seconds(B, AT_ONCE_SECONDS, urgent=urgent)

    run_virtual(story())


def test_an_urgent_change_is_not_held_up_by_one_that_waits() -> None:
    async def story() -> None:
        deferral = StatusDeferral(LoopClock())
        assert deferral.seconds(A, None, urgent=False)
        assert not deferral.seconds(A, None, urgent=True)
        assert deferral.seconds(A, None, urgent=False) == LONGEST_SECONDS

    run_virtual(story())


READY = {"type": "Ready", "status": "False", "reason": "Cloning", "message": "wait"}


@pytest.mark.parametrize(
    ("have", "change", "urgent"),
    [
        ([READY], {"conditions": [READY | {"reason": "Starting", "message": "soon"}]}, False),
        ([READY], {"powerState": "running"}, False),
        ([READY], {"nextMove": None, "conditions": [READY, READY | {"type": "Paused"}]}, False),
        ([READY], {"conditions": [READY | {"status": "True"}]}, True),
        ([READY], {"initialization": {"provisioned": True}}, True),
        ([], {"nextMove": "Clone"}, True),
    ],
)
def test_the_first_status_turned_conditions_and_named_fields_are_urgent(
    have: object, change: dict[str, Any], urgent: bool
) -> None:
    tree = {"metadata": {"name": "a"}, "status": {"conditions": have}}
    machine = msgspec.convert(tree, ProxmoxMachine)
    assert is_urgent(machine, change, ("initialization",)) is urgent
