"""
Which Machines a MachineHealthCheck finds unhealthy, and whether they are replaced. Pure.

A node that cannot be read (no answer of the tenant's API) is not unhealthy.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.api.conditions import Condition
from moxwell.api.meta import parse_time
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Delete, Writes
from moxwell.scheduling.rollout import int_or_percent

Json = Mapping[str, Any]
STARTUP_SECONDS = 600
CHECK_SECONDS = 30.0
SKIP_REMEDIATION = "cluster.x-k8s.io/skip-remediation"
_RANGE = re.compile(r"^\[(\d+)-(\d+)\]$")


class MachineHealthCheckReason(StrEnum):
    """Reasons of the condition and events of a MachineHealthCheck."""

    ALLOWED = "RemediationAllowed"
    TOO_MANY_UNHEALTHY = "TooManyUnhealthy"
    UNHEALTHY = "MachineMarkedUnhealthy"


@dataclass(frozen=True, slots=True)
class ObservedHealth:
    """The selected Machines and their nodes by Machine name; None for a node that is unknown."""

    now: datetime
    machines: tuple[Machine, ...] = ()
    nodes: Mapping[str, Json | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthCheckTarget:
    """One Machine, why it is unhealthy (empty if it is not), and when to check it again."""

    name: str
    unhealthy: str = ""
    check_after: float | None = None


def targets(check: MachineHealthCheck, seen: ObservedHealth) -> list[HealthCheckTarget]:
    """The result of the check for every selected Machine."""
    return [judge(check, m, seen.nodes.get(m.name), seen.now) for m in seen.machines]


def next_move(check: MachineHealthCheck, seen: ObservedHealth) -> WriteMove:
    """Delete unhealthy Machines of MachineSets, unless too many are unhealthy."""
    found = targets(check, seen)
    due = min((t.check_after for t in found if t.check_after), default=CHECK_SECONDS)
    after = min(due, CHECK_SECONDS)
    writes = tuple(
        Delete(Machine, m.name, m.namespace, uid=m.uid) for m, _ in remediations(check, seen)
    )
    return Writes(writes, requeue_after=after) if writes else Done(after)


def remediations(
    check: MachineHealthCheck, seen: ObservedHealth
) -> list[tuple[Machine, HealthCheckTarget]]:
    """Unhealthy Machines to delete; one without a MachineSet would not be replaced and stays."""
    found = targets(check, seen)
    unhealthy = [t for t in found if t.unhealthy]
    if not is_allowed(check, len(unhealthy), len(found)):
        return []
    by_name = {m.name: m for m in seen.machines}
    return [(by_name[t.name], t) for t in unhealthy if _is_of_set(by_name[t.name])]


def _is_of_set(machine: Machine) -> bool:
    owner = machine.metadata.controller
    return owner is not None and owner.kind == "MachineSet"


def judge(
    check: MachineHealthCheck, machine: Machine, node: Json | None, now: datetime
) -> HealthCheckTarget:
    """Whether a Machine is unhealthy by the rules of a check."""
    if machine.deleting or SKIP_REMEDIATION in machine.metadata.annotations:
        return HealthCheckTarget(machine.name)
    found = [_startup(check, machine, now), *_conditions(check, machine, node, now)]
    unhealthy = next((t for t in found if t.unhealthy), None)
    soonest = min((t.check_after for t in found if t.check_after is not None), default=None)
    return unhealthy or HealthCheckTarget(machine.name, check_after=soonest)


def _startup(check: MachineHealthCheck, machine: Machine, now: datetime) -> HealthCheckTarget:
    limit = check.spec.checks.node_startup_timeout_seconds
    seconds = STARTUP_SECONDS if limit is None else limit
    if machine.status.node_ref is not None or not seconds:
        return HealthCheckTarget(machine.name)
    created = machine.metadata.creation_timestamp or now
    return _timed(machine.name, f"has had no node for {seconds} s", created, seconds, now)


def _conditions(
    check: MachineHealthCheck, machine: Machine, node: Json | None, now: datetime
) -> list[HealthCheckTarget]:
    reported = ((node or {}).get("status") or {}).get("conditions") or ()
    of_node = {c["type"]: (c["status"], c.get("lastTransitionTime")) for c in reported}
    of_machine = {c.type: (c.status, c.last_transition_time) for c in machine.status.conditions}
    rules, found = check.spec.checks, []
    for rule, conditions in (
        *((r, of_node) for r in rules.unhealthy_node_conditions),
        *((r, of_machine) for r in rules.unhealthy_machine_conditions),
    ):
        status, since = conditions.get(rule.type, ("", None))
        if status == rule.status and since is not None:
            at = parse_time(since) if isinstance(since, str) else since
            why = f"{rule.type} is {rule.status} for more than {rule.timeout_seconds} s"
            found.append(_timed(machine.name, why, at, rule.timeout_seconds, now))
    return found


def _timed(name: str, why: str, since: datetime, seconds: int, now: datetime) -> HealthCheckTarget:
    remaining = since + timedelta(seconds=seconds) - now
    if remaining <= timedelta():
        return HealthCheckTarget(name, why)
    return HealthCheckTarget(name, check_after=remaining.total_seconds() + 1)


def is_allowed(check: MachineHealthCheck, unhealthy: int, total: int) -> bool:
    """Whether few enough Machines are unhealthy for remediation."""
    limits = check.spec.remediation.trigger_if
    if between := _RANGE.match(limits.unhealthy_in_range):
        return int(between[1]) <= unhealthy <= int(between[2])
    most = limits.unhealthy_less_than_or_equal_to
    return unhealthy <= (total if most is None else int_or_percent(most, total, up=False))


def describe(
    check: MachineHealthCheck, found: Sequence[HealthCheckTarget]
) -> MachineHealthCheckStatus:
    """The counts, and whether remediation is allowed."""
    unhealthy = sum(bool(t.unhealthy) for t in found)
    allowed = is_allowed(check, unhealthy, len(found))
    message = f"{unhealthy} of {len(found)} Machines are unhealthy: more than the check allows"
    reason = MachineHealthCheckReason.ALLOWED
    return MachineHealthCheckStatus(
        conditions=(
            Condition(
                type="RemediationAllowed",
                status="True" if allowed else "False",
                reason=reason if allowed else MachineHealthCheckReason.TOO_MANY_UNHEALTHY,
                message="" if allowed else message,
            ),
        ),
        expected_machines=len(found),
        current_healthy=len(found) - unhealthy,
        targets=tuple(sorted(t.name for t in found)),
        observed_generation=check.metadata.generation,
    )
