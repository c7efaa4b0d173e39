"""What clusters of a process know of each other's spot guests and needs, on virtual time."""

import asyncio
from dataclasses import replace

from moxwell.controllers.karpenter.proxmox.spot_board import (
    REPORT_SECONDS,
    SETTLE_SECONDS,
    SpotBoard,
)
from moxwell.runtime.key import Key
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.spot_room import FreeRoom, RoomNeed, SpotGuest
from moxwell.testing.loop import LoopClock, run_virtual

HOST = HostKey("north", "a")
ONE, TWO = Key("tenant-a", "one"), Key("tenant-b", "two")
NEED = RoomNeed("x", 2, 0, {HOST: FreeRoom(0, 0)})


def guest(claim: str, *, leaving: bool = False) -> SpotGuest:
    return SpotGuest(claim, HOST, 2, 0, 1.0, leaving)


def test_every_cluster_sees_the_guests_and_needs_of_all_until_they_are_old() -> None:
    async def story() -> None:
        board = SpotBoard(LoopClock())
        board.report(ONE, [guest("1")])
        board.report(TWO, [guest("2")])
        board.need(TWO, [NEED])
        assert board.guests() == (guest("1"), guest("2"))
        assert board.needs() == (NEED,)
        board.report(TWO, [guest("3")])
        assert board.guests() == (guest("1"), guest("3"))
        assert board.needs() == (NEED,)
        board.need(TWO, [])
        assert board.needs() == ()
        await asyncio.sleep(REPORT_SECONDS)
        assert board.guests() == ()

    run_virtual(story())


def test_a_guest_that_left_counts_as_leaving_until_needs_know_its_room() -> None:
    async def story() -> None:
        board, left = SpotBoard(LoopClock()), guest("1", leaving=True)
        board.report(ONE, [left, guest("2")])
        board.report(ONE, [replace(guest("2"), price=2.0)])
        assert board.guests() == (replace(guest("2"), price=2.0), left)
        board.report(ONE, [])  # a guest that nobody interrupted gives no room
        assert board.guests() == (left,)
        await asyncio.sleep(SETTLE_SECONDS)
        assert board.guests() == ()

    run_virtual(story())
