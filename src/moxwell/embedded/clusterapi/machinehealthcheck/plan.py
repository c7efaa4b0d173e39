"""Which machines are broken, and whether it is right to replace them: pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.api.conditions import Condition
from moxwell.api.meta import parse_time
from moxwell.scheduling.rollout import share

STARTUP_SECONDS = 600
SKIP = "cluster.x-k8s.io/skip-remediation"
_RANGE = re.compile(r"^\[(\d+)-(\d+)\]$")


@dataclass(frozen=True, slots=True)
class Target:
    """One machine, why it is broken (empty: it is not), and when to look again."""

    name: str
    why: str = ""
    again: float | None = None


def judge(
    check: MachineHealthCheck, machine: Machine, node: Mapping[str, Any] | None, now: datetime
) -> Target:
    """Whether a machine is broken by the rules of a check."""
    if machine.deleting or SKIP in machine.metadata.annotations:
        return Target(machine.name)
    found = [_startup(check, machine, now), *_conditions(check, machine, node, now)]
    broken = next((t for t in found if t.why), None)
    soon = min((t.again for t in found if t.again is not None), default=None)
    return broken or Target(machine.name, again=soon)


def _startup(check: MachineHealthCheck, machine: Machine, now: datetime) -> Target:
    limit = check.spec.checks.node_startup_timeout_seconds
    seconds = STARTUP_SECONDS if limit is None else limit
    if machine.status.node_ref is not None or not seconds:
        return Target(machine.name)
    born = machine.metadata.creation_timestamp or now
    return _timed(machine.name, f"has had no node for {seconds} s", born, seconds, now)


def _conditions(
    check: MachineHealthCheck, machine: Machine, node: Mapping[str, Any] | None, now: datetime
) -> list[Target]:
    found = []
    there = ((node or {}).get("status") or {}).get("conditions") or ()
    by_type = {c["type"]: (c["status"], c.get("lastTransitionTime")) for c in there}
    own = {c.type: (c.status, c.last_transition_time) for c in machine.status.conditions}
    rules = check.spec.checks
    for rule, known in (
        *((r, by_type) for r in rules.unhealthy_node_conditions),
        *((r, own) for r in rules.unhealthy_machine_conditions),
    ):
        status, since = known.get(rule.type, ("", None))
        if status == rule.status and since is not None:
            at = parse_time(since) if isinstance(since, str) else since
            why = f"{rule.type} is {rule.status} for more than {rule.timeout_seconds} s"
            found.append(_timed(machine.name, why, at, rule.timeout_seconds, now))
    return found


def _timed(name: str, why: str, since: datetime, seconds: int, now: datetime) -> Target:
    left = since + timedelta(seconds=seconds) - now
    return Target(name, why) if left <= timedelta() else Target(name, "", left.total_seconds() + 1)


def is_allowed(check: MachineHealthCheck, broken: int, total: int) -> bool:
    """Few enough are broken that replacing them is likely to help."""
    limits = check.spec.remediation.trigger_if
    if between := _RANGE.match(limits.unhealthy_in_range):
        return int(between[1]) <= broken <= int(between[2])
    most = limits.unhealthy_less_than_or_equal_to
    return broken <= (total if most is None else share(most, total, up=False))


def describe(
    check: MachineHealthCheck, targets: Sequence[Target], allowed: bool
) -> MachineHealthCheckStatus:
    """The counts, and whether the check acts."""
    broken = sum(bool(t.why) for t in targets)
    said = "" if allowed else f"{broken} of {len(targets)} are broken: more than the check allows"
    return MachineHealthCheckStatus(
        conditions=(
            Condition(
                type="RemediationAllowed",
                status="True" if allowed else "False",
                reason="RemediationAllowed" if allowed else "TooManyUnhealthy",
                message=said,
            ),
        ),
        expected_machines=len(targets),
        current_healthy=len(targets) - broken,
        targets=tuple(sorted(t.name for t in targets)),
        observed_generation=check.metadata.generation,
    )
