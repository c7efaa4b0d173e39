"""
Fault injection rules for requests and tasks, with seeded randomness.

A :class:`Fault` affects requests (latency, a connection cut before or after the effect, a status)
or tasks (failure with a message, delayed start). Rules match by method and path or by task type,
and can be limited in number and probability. One-time actions (power off a host, hold a lock, fill
a storage) are in :mod:`moxwell.lab.proxmox.chaos`.
"""

import random
import re
from dataclasses import dataclass, field

from moxwell.errors import Invalid
from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.message import CUT, SimRequest, SimResponse, error_response
from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.state import SimTask

REQUEST_KINDS = frozenset({"latency", "cut-before", "cut-after", "status"})
TASK_KINDS = frozenset({"task-fail", "task-slow"})


@dataclass(slots=True)
class Fault:
    """One rule; ``times`` counts down, None means unlimited."""

    kind: str
    method: str = ".*"
    path: str = ".*"
    task: str = ".*"  # task type; for task rules
    ident: str = ".*"  # task id
    chance: float = 1.0
    times: int | None = None
    seconds: float = 0.0
    status: int = 500
    text: str = "simulated fault"
    id: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        if self.kind not in REQUEST_KINDS | TASK_KINDS:
            raise Invalid(f"unknown fault kind {self.kind!r}")
        for pattern in (self.method, self.path, self.task, self.ident):
            try:
                re.compile(pattern)
            except re.error as problem:
                raise Invalid(f"invalid pattern {pattern!r}: {problem}") from problem


@dataclass(slots=True)
class FaultEffects:
    """The effects of all matching faults on one request."""

    seconds: float = 0.0
    before: SimResponse | None = None
    cut_after: bool = False
    used: list[int] = field(default_factory=list)


class FaultRules:
    """The fault rules of one region."""

    def __init__(self, runtime: RegionRuntime, rng: random.Random) -> None:
        self._runtime, self._random = runtime, rng
        self._rules: list[Fault] = []
        self._next = 1
        runtime.workers.failure_of = self._failure_of
        runtime.workers.delay = self._task_delay

    def add(self, fault: Fault) -> int:
        fault.id, self._next = self._next, self._next + 1
        self._rules.append(fault)
        return fault.id

    def remove(self, ident: int | None = None) -> None:
        self._rules = [] if ident is None else [f for f in self._rules if f.id != ident]

    def listed(self) -> tuple[Fault, ...]:
        return tuple(self._rules)

    def choose(self, request: SimRequest) -> FaultEffects:
        """Match the rules against one request; removes rules that are used up."""
        effects = FaultEffects()
        for fault in [f for f in self._rules if f.kind in REQUEST_KINDS]:
            if not re.fullmatch(fault.method, request.method):
                continue
            if re.fullmatch(fault.path, request.uri) and self._happens(fault):
                _apply(fault, effects)
        return effects

    async def delay(self, effects: FaultEffects) -> None:
        if effects.seconds > 0:
            await self._runtime.clock.sleep(effects.seconds)

    def _happens(self, fault: Fault) -> bool:
        if fault.chance < 1 and self._random.random() >= fault.chance:
            return False
        fault.hits += 1
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._rules = [f for f in self._rules if f is not fault]
        return True

    def _task_rule(self, kind: str, task: SimTask) -> Fault | None:
        for fault in self._rules:
            if (
                fault.kind == kind
                and re.fullmatch(fault.task, task.type)
                and re.fullmatch(fault.ident, task.id)
                and self._happens(fault)
            ):
                return fault
        return None

    def _failure_of(self, task: SimTask) -> str | None:
        fault = self._task_rule("task-fail", task)
        return fault.text if fault else None

    def _task_delay(self, task: SimTask) -> float:
        fault = self._task_rule("task-slow", task)
        return fault.seconds if fault else 0.0


def _apply(fault: Fault, effects: FaultEffects) -> None:
    if fault.kind == "latency":
        effects.seconds += fault.seconds
    elif fault.kind == "cut-before":
        effects.before = CUT
    elif fault.kind == "cut-after":
        effects.cut_after = True
    elif effects.before is None:
        empty = fault.status in {595, 596}
        effects.before = error_response(
            PveException(fault.status, fault.text), extjs=False, empty=empty
        )
