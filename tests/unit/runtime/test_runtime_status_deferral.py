"""A pass that is followed by another at once leaves the status to it, for a second at most."""

import asyncio

from moxwell.runtime.key import Key
from moxwell.runtime.status_deferral import AT_ONCE_SECONDS, LONGEST_SECONDS, StatusDeferral
from moxwell.testing.loop import LoopClock, run_virtual

A, B = Key("team", "a"), Key("team", "b")


def test_only_a_pass_that_is_followed_at_once_defers() -> None:
    async def story() -> None:
        deferral = StatusDeferral(LoopClock())
        for after, deferred in ((None, False), (3.0, False), (AT_ONCE_SECONDS, True), (0.0, True)):
            assert deferral.defers(A, after) is deferred

    run_virtual(story())


def test_many_passes_in_a_row_write_once_a_second_each_object_apart() -> None:
    async def story() -> None:
        deferral, written = StatusDeferral(LoopClock()), 0
        for _ in range(100):
            written += not deferral.defers(A, AT_ONCE_SECONDS)
            await asyncio.sleep(AT_ONCE_SECONDS)
        assert 8 <= written <= 10
        assert deferral.defers(B, AT_ONCE_SECONDS)
        await asyncio.sleep(LONGEST_SECONDS)
        assert not deferral.defers(B, AT_ONCE_SECONDS)
        deferral.forget(A)
        assert deferral.defers(A, AT_ONCE_SECONDS)

    run_virtual(story())
