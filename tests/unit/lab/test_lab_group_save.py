"""Saves are shared by their callers and take a bounded share of the time."""

import asyncio

import pytest

from moxwell.lab.group_save import GroupSave
from moxwell.testing.loop import LoopClock, run_virtual


class SlowDisk:
    """A save that takes half a second of the clock it is given."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.began: list[float] = []
        self.state, self.saved = 0, -1
        self.lag, self.broken = 0.0, False

    def monotonic(self) -> float:
        return self.clock.monotonic() + self.lag

    def save(self) -> None:
        self.began.append(self.monotonic())
        self.lag += 0.5
        if self.broken:
            raise OSError(28, "No space left on device")
        self.saved = self.state


def group(disk: SlowDisk) -> GroupSave:
    clock = LoopClock()
    clock.monotonic = disk.monotonic  # type: ignore[method-assign]
    return GroupSave(disk.save, clock)


def test_every_caller_returns_after_a_save_of_its_change() -> None:
    async def story() -> SlowDisk:
        disk = SlowDisk()
        save = group(disk)

        async def write() -> None:
            disk.state += 1
            mine = disk.state
            await save()
            assert disk.saved >= mine

        for _ in range(5):
            await asyncio.gather(*(write() for _ in range(40)))
        return disk

    disk = run_virtual(story())
    pauses = [later - earlier for earlier, later in zip(disk.began, disk.began[1:], strict=False)]
    assert len(disk.began) == 5  # one for each forty
    assert all(pause == pytest.approx(10.0) for pause in pauses)  # a twentieth of the time


def test_a_failed_save_is_told_to_its_callers_and_the_next_one_works() -> None:
    async def story() -> None:
        disk = SlowDisk()
        save, disk.broken = group(disk), True
        with pytest.raises(OSError, match="No space"):
            await save()
        disk.broken = False
        disk.state = 7
        await save()
        assert disk.saved == 7

    run_virtual(story())
