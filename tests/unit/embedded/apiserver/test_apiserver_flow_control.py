"""Priority and fairness: levels, flows, queues and turns, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver import flow_control
from moxwell.embedded.apiserver.flow_control import (
    CATCH_ALL,
    GLOBAL_DEFAULT,
    SYSTEM,
    WORKLOAD_LOW,
    FlowController,
    PriorityLevel,
    RejectedRequest,
    classify,
)
from moxwell.testing.loop import run_virtual

ACCOUNT = "system:serviceaccount:"


@pytest.mark.parametrize(
    ("user", "level", "flow"),
    [
        (UserInfo(name="admin", groups=("system:masters",)), None, ""),
        (UserInfo(name="system:node:n", groups=("system:nodes",)), SYSTEM, "system:node:n"),
        (UserInfo(name="system:kube-scheduler"), SYSTEM, "system:kube-scheduler"),
        (UserInfo(name=f"{ACCOUNT}kube-system:x"), SYSTEM, "kube-system"),
        (UserInfo(name=f"{ACCOUNT}tenant:x"), WORKLOAD_LOW, "tenant"),
        (UserInfo(name=f"{ACCOUNT}tenant:y"), WORKLOAD_LOW, "tenant"),
        (UserInfo(name="alice"), GLOBAL_DEFAULT, "alice"),
        (UserInfo(name="x", groups=("system:unauthenticated",)), CATCH_ALL, "10.0.0.1"),
    ],
)
def test_classification(user: UserInfo, level: PriorityLevel | None, flow: str) -> None:
    assert classify(user, "10.0.0.1") == (level, flow)


def run(story: Callable[[FlowController, list[str]], Awaitable[Any]]) -> tuple[list[str], int]:
    async def main() -> tuple[list[str], int]:
        controller, order = FlowController(), list[str]()
        await story(controller, order)
        assert set(controller.served().values()) == {0}
        return order, controller.flows()

    found: tuple[list[str], int] = run_virtual(main())
    return found


async def serve(controller: FlowController, name: str, seconds: float, order: list[str]) -> None:
    try:
        async with controller.seat(UserInfo(name=name), ""):
            order.append(name)
            await asyncio.sleep(seconds)
    except RejectedRequest:
        order.append(f"{name} refused")


def test_a_flow_takes_only_its_part_of_the_seats() -> None:
    async def story(controller: FlowController, order: list[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(serve(controller, "greedy", 10, order))
            await asyncio.sleep(1)
            group.create_task(serve(controller, "modest", 1, order))
            await asyncio.sleep(1)
            assert order == ["greedy"] * GLOBAL_DEFAULT.flow_seats + ["modest"]

    order, flows = run(story)
    assert order.count("greedy") == 20  # the others waited for more than 15 seconds
    assert order.count("greedy refused") == 20
    assert flows == 0


def test_a_full_queue_is_refused_at_once() -> None:
    async def story(controller: FlowController, order: list[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(GLOBAL_DEFAULT.flow_seats + GLOBAL_DEFAULT.queue_length + 5):
                group.create_task(serve(controller, "a", 1, order))
            await asyncio.sleep(0.1)
            assert order.count("a refused") == 5

    order, _ = run(story)
    assert order.count("a refused") == 5


def test_waiting_flows_take_turns() -> None:
    names = ["a", "b", "c", "d"]

    async def story(controller: FlowController, order: list[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for name in (*names, "e", "f"):
                for _ in range(25):
                    group.create_task(serve(controller, name, 1, order))
                    await asyncio.sleep(0)

    order, _ = run(story)
    seats = GLOBAL_DEFAULT.seats
    assert order[:seats] == [name for name in names for _ in range(10)]
    later = order[seats : seats + 12]
    assert {"e", "f"} <= set(later), later


def test_an_exempt_user_never_waits() -> None:
    async def story(controller: FlowController, order: list[str]) -> None:
        user = UserInfo(name="admin", groups=(flow_control.MASTERS,))

        async def one() -> None:
            async with controller.seat(user, ""):
                order.append("admin")
                await asyncio.sleep(1)

        await asyncio.gather(*(one() for _ in range(500)))

    assert run(story)[0] == ["admin"] * 500


def test_a_cancelled_request_returns_its_turn() -> None:
    async def story(controller: FlowController, order: list[str]) -> None:
        tasks = [
            asyncio.create_task(serve(controller, "a", 5, order))
            for _ in range(GLOBAL_DEFAULT.flow_seats + 3)
        ]
        await asyncio.sleep(1)
        for task in (tasks[0], tasks[-1], tasks[-2]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    order, flows = run(story)
    assert (order, flows) == (["a"] * (GLOBAL_DEFAULT.flow_seats + 1), 0)
