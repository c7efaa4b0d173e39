"""Branches of a story: what the copies do stays theirs, and their failures are reported."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from moxwell.testing.loop import run_virtual
from moxwell.testing.process_fork import Branches, BranchFailed

STEPS = 4


def go_on() -> None:
    """Nothing happens."""


def fail() -> None:
    raise AssertionError("the disk is gone")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def tell(branches: Branches, otherwise: Callable[[], None]) -> list[str]:
    """Some steps; a copy does something else after its own and then goes on."""
    done = []
    with branches:
        for number in range(1, STEPS + 1):
            await asyncio.sleep(100)
            done.append(f"step {number}")
            if branches.take(number, f"after step {number}"):
                otherwise()
                done.append("the other way")
    return done


def test_the_original_goes_its_own_way() -> None:
    steps = run_virtual(tell(Branches(lambda number: number % 2 == 0), go_on))
    assert steps == [f"step {n}" for n in range(1, STEPS + 1)]


def test_without_a_wish_nothing_branches() -> None:
    assert len(run_virtual(tell(Branches(), die))) == STEPS


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        pytest.param(fail, "AssertionError: the disk is gone", id="it fails"),
        pytest.param(die, "ended with status 9", id="it dies"),
    ],
)
def test_what_goes_wrong_in_a_copy_is_told_with_its_moment(
    otherwise: Callable[[], None], said: str
) -> None:
    with pytest.raises(BranchFailed, match=said) as found:
        run_virtual(tell(Branches(lambda number: number == 3), otherwise))
    assert found.value.__notes__ == ["after step 3"]


def test_time_goes_on_in_a_copy() -> None:
    """A copy that sleeps wakes; its loop is its own."""

    async def story() -> None:
        with Branches(lambda _: True) as branches:
            before = asyncio.get_running_loop().time()
            if branches.take(1, "now"):
                await asyncio.sleep(1000)
                await asyncio.gather(*(asyncio.sleep(n) for n in range(5)))
                assert asyncio.get_running_loop().time() - before == 1004
            else:
                assert asyncio.get_running_loop().time() == before

    run_virtual(story())
