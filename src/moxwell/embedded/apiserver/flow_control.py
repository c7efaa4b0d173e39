"""
API priority and fairness: limits the requests that are served at a time, by level and flow.

A request belongs to a priority level and, within it, to a flow (a user, a namespace of service
accounts, or an address). A level has seats of its own, a flow can take only a part of them, and
waiting flows take turns. A flow with a full queue, and a request that waits too long, get 429.
Members of ``system:masters`` are exempt, as in kube-apiserver.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from moxwell.api.requests import UserInfo
from moxwell.errors import Retryable

MASTERS, NODES, UNAUTHENTICATED = "system:masters", "system:nodes", "system:unauthenticated"
SERVICE_ACCOUNT = "system:serviceaccount:"
COMPONENTS = frozenset(["system:kube-scheduler", "system:kube-controller-manager"])
MAX_WAIT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """The limits of one level: requests served, served per flow, and waiting per flow."""

    name: str
    seats: int
    flow_seats: int
    queue_length: int = 50


SYSTEM = PriorityLevel("system", seats=60, flow_seats=20)
WORKLOAD_LOW = PriorityLevel("workload-low", seats=40, flow_seats=10)
GLOBAL_DEFAULT = PriorityLevel("global-default", seats=40, flow_seats=10)
CATCH_ALL = PriorityLevel("catch-all", seats=8, flow_seats=2, queue_length=10)
LEVELS = (SYSTEM, WORKLOAD_LOW, GLOBAL_DEFAULT, CATCH_ALL)


class RejectedRequest(Retryable):
    """The flow of the request has no seat and no room to wait."""

    reason = "TooManyRequests"

    def __init__(self) -> None:
        super().__init__("Too many requests, please try again later.")


def classify(user: UserInfo, address: str) -> tuple[PriorityLevel | None, str]:
    """Return the level and the flow of a request; no level means exempt."""
    if MASTERS in user.groups:
        return None, ""
    if UNAUTHENTICATED in user.groups:
        return CATCH_ALL, address
    if user.name.startswith(SERVICE_ACCOUNT):
        namespace = user.name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        return (SYSTEM if namespace == "kube-system" else WORKLOAD_LOW), namespace
    if NODES in user.groups or user.name in COMPONENTS:
        return SYSTEM, user.name
    return GLOBAL_DEFAULT, user.name


@dataclass(slots=True)
class _Flow:
    """The seats that a flow has, and its requests that wait for one."""

    served: int = 0
    waiting: "deque[asyncio.Future[None]]" = field(default_factory=deque)


class _Level:
    """The seats and flows of one level."""

    def __init__(self, limits: PriorityLevel) -> None:
        self.limits = limits
        self.served = 0
        self._flows: dict[str, _Flow] = {}  # in the order of their turns

    async def acquire(self, name: str) -> None:
        flow = self._flows.setdefault(name, _Flow())
        if self._has_seat(flow):
            self._seat(flow)
            return
        if len(flow.waiting) >= self.limits.queue_length:
            raise RejectedRequest
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.waiting.append(turn)
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            self._give_up(name, flow, turn)
            if isinstance(error, TimeoutError):
                raise RejectedRequest from None
            raise

    def release(self, name: str) -> None:
        flow = self._flows[name]
        flow.served -= 1
        self.served -= 1
        self._dispatch()
        self._forget(name)

    def _has_seat(self, flow: _Flow) -> bool:
        return self.served < self.limits.seats and flow.served < self.limits.flow_seats

    def _seat(self, flow: _Flow) -> None:
        flow.served += 1
        self.served += 1

    def _dispatch(self) -> None:
        """Give free seats to waiting flows; a flow that got one waits for the others' turns."""
        for name in tuple(self._flows):
            flow = self._flows[name]
            if self.served >= self.limits.seats:
                return
            if flow.waiting and self._has_seat(flow):
                self._seat(flow)
                flow.waiting.popleft().set_result(None)
                self._flows[name] = self._flows.pop(name)

    def _give_up(self, name: str, flow: _Flow, turn: "asyncio.Future[None]") -> None:
        if turn.done() and not turn.cancelled():  # a seat was given in the meantime
            self.release(name)
            return
        if turn in flow.waiting:
            flow.waiting.remove(turn)
        self._forget(name)

    def _forget(self, name: str) -> None:
        flow = self._flows.get(name)
        if flow is not None and not flow.served and not flow.waiting:
            del self._flows[name]

    @property
    def flows(self) -> int:
        return len(self._flows)


class FlowController:
    """Gives seats to requests."""

    def __init__(self) -> None:
        self._levels: Mapping[str, _Level] = {limits.name: _Level(limits) for limits in LEVELS}

    @asynccontextmanager
    async def seat(self, user: UserInfo, address: str) -> AsyncIterator[None]:
        """Hold a seat; raises ``RejectedRequest``."""
        limits, flow = classify(user, address)
        if limits is None:
            yield
            return
        level = self._levels[limits.name]
        await level.acquire(flow)
        try:
            yield
        finally:
            level.release(flow)

    def served(self) -> Mapping[str, int]:
        """Return the seats in use per level."""
        return {name: level.served for name, level in self._levels.items()}

    def flows(self) -> int:
        """Return the number of flows that have or wait for a seat."""
        return sum(level.flows for level in self._levels.values())
