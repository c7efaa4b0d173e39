"""Answers of guest agents are cached, so that the idle load does not grow with the nodes."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from moxwell.controllers.cloud.node.agent_cache import (
    SECONDS_PER_GUEST,
    AgentAddressCache,
    InterfaceAddresses,
)
from moxwell.pve.model import ObservedGuest
from moxwell.testing.loop import LoopClock, run_virtual

REFRESH_SECONDS = 300.0
GUEST = ObservedGuest(vmid=100, host="h1", name="n", status="running", uptime_seconds=500)
ANSWER: InterfaceAddresses = (("eth0", "10.0.0.1"),)


class Agents:
    """Guest agents that record which of them is asked."""

    def __init__(self) -> None:
        self.cache, self.asked = AgentAddressCache(LoopClock()), list[int]()
        self.silent = False

    async def look(self, guest: ObservedGuest, *, fresh: bool = False) -> InterfaceAddresses | None:
        async def ask() -> InterfaceAddresses | None:
            self.asked.append(guest.vmid)
            return None if self.silent else ANSWER

        return await self.cache.addresses("r1", guest, ask, fresh=fresh)


def guest(number: int) -> ObservedGuest:
    return replace(GUEST, vmid=1000 + number)


@pytest.mark.parametrize(
    ("nodes", "an_hour"),
    [
        pytest.param(10, 120, id="few: at every refresh"),
        pytest.param(300, 3600, id="as many as there are turns"),
        pytest.param(1000, 3600, id="many: no more than that"),
        pytest.param(2000, 3600, id="very many: still no more"),
    ],
)
def test_requests_of_an_idle_hour_are_limited(nodes: int, an_hour: int) -> None:
    async def story() -> None:
        agents = Agents()
        for number in range(nodes):
            assert await agents.look(guest(number), fresh=True) == ANSWER
        agents.asked.clear()
        hours = 3
        for _ in range(int(hours * 3600 / REFRESH_SECONDS)):
            await asyncio.sleep(REFRESH_SECONDS)
            for number in range(nodes):
                assert await agents.look(guest(number)) == ANSWER
        assert len(agents.asked) <= an_hour * hours
        turns = Counter(agents.asked)
        assert len(turns) == nodes  # every guest is asked
        assert max(turns.values()) - min(turns.values()) <= 1

    run_virtual(story())


@pytest.mark.parametrize(
    ("now", "fresh", "asks"),
    [
        pytest.param(replace(GUEST, uptime_seconds=510), False, False, id="as before"),
        pytest.param(GUEST, True, True, id="a node that is new"),
        pytest.param(replace(GUEST, uptime_seconds=3), False, True, id="restarted"),
        pytest.param(replace(GUEST, host="h2"), False, True, id="moved"),
        pytest.param(replace(GUEST, name="m"), False, True, id="renamed"),
        pytest.param(replace(GUEST, status="stopped"), False, True, id="stopped"),
    ],
)
def test_a_changed_guest_is_asked_at_once(now: ObservedGuest, fresh: bool, asks: bool) -> None:
    async def story() -> None:
        agents = Agents()
        for number in range(50):
            await agents.look(guest(number))
        await agents.look(GUEST)
        agents.asked.clear()
        await asyncio.sleep(SECONDS_PER_GUEST)
        await agents.look(now, fresh=fresh)
        assert agents.asked == ([100] if asks else [])

    run_virtual(story())


def test_an_agent_that_does_not_answer_is_asked_each_time() -> None:
    async def story() -> None:
        agents = Agents()
        for number in range(50):
            await agents.look(guest(number))
        agents.silent = True
        agents.asked.clear()
        assert await agents.look(GUEST) is None
        agents.silent = False
        assert await agents.look(GUEST) == ANSWER
        assert agents.asked == [100, 100]

    run_virtual(story())


def test_deleted_nodes_expire_after_hours() -> None:
    async def story() -> None:
        agents = Agents()
        for number in range(5000):
            await agents.look(guest(number))
        await asyncio.sleep(7 * 3600)
        await agents.look(GUEST)
        agents.asked.clear()
        await asyncio.sleep(REFRESH_SECONDS)
        await agents.look(GUEST)
        assert agents.asked == [100]

    run_virtual(story())
