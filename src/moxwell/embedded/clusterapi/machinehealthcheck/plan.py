"""
Which Machines a MachineHealthCheck finds unhealthy, and whether they are replaced. Pure.

A node that cannot be read (no answer of the tenant's API) is not unhealthy, but it is not available
either. As in Cluster API every Machine that is not healthy counts against the limit of the check:
unhealthy ones, those that wait for a timeout, those without a node and those being deleted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck, MachineHealthCheckStatus
from moxwell.api.conditions import Condition
from moxwell.embedded.zones import ZoneNodes, eviction_rate, zone_of
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete
from moxwell.scheduling.rollout import int_or_percent

Json = Mapping[str, Any]
STARTUP_SECONDS = 600
CHECK_SECONDS = 30.0
RETRY_SECONDS = 10.0  # of a remediation that the rate of the zone delays
SKIP_REMEDIATION = "cluster.x-k8s.io/skip-remediation"
_RANGE = re.compile(r"^\[(\d+)-(\d+)\]$")


class MachineHealthCheckReason(StrEnum):
    """Reasons of the condition and events of a MachineHealthCheck."""

    ALLOWED = "RemediationAllowed"
    TOO_MANY_UNHEALTHY = "TooManyUnhealthy"
    ZONE_DISRUPTED = "ZoneDisrupted"
    UNHEALTHY = "MachineMarkedUnhealthy"


class Source(StrEnum):
    """Where an observed state of a Machine comes from."""

    STARTUP = "startup"  # the Machine has no node
    NODE = "node"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class HeldState:
    """A state of a Machine whose duration is observed: a condition, or having no node."""

    machine: str  # the UID
    source: Source
    condition: str = ""


@dataclass(frozen=True, slots=True)
class ObservedHealth:
    """
    The selected Machines and what is known about them.

    ``nodes`` is by Machine name, None for a node that is unknown. ``seconds`` is how long each
    state has been observed; ``zones`` has all nodes of the cluster, silent ones as not ready;
    ``ready_zones`` are those whose rate allows a remediation now; ``under_way`` has the UIDs of
    Machines whose deletion was requested.
    """

    machines: tuple[Machine, ...] = ()
    nodes: Mapping[str, Json | None] = field(default_factory=dict)
    seconds: Mapping[HeldState, float] = field(default_factory=dict)
    zones: Mapping[str, ZoneNodes] = field(default_factory=dict)
    ready_zones: frozenset[str] = frozenset()
    under_way: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HealthCheckTarget:
    """One Machine, why it is unhealthy (empty if it is not), and when to check it again."""

    machine: Machine
    zone: str = ""
    unhealthy: str = ""
    check_after: float | None = None
    available: bool = True  # neither deleted nor without a node that can be read

    @property
    def healthy(self) -> bool:
        """Whether it counts as healthy; not while a timeout runs."""
        return self.available and not self.unhealthy and self.check_after is None


@dataclass(frozen=True, slots=True)
class MachineRemediation:
    """The deletion of one Machine, if the bucket of its zone has a token."""

    zone: str
    rate: float
    uid: str
    delete: Delete
    unhealthy: str = ""  # why

    def __str__(self) -> str:
        return str(self.delete)


@dataclass(frozen=True, slots=True)
class Remediate:
    """At most one remediation per zone."""

    cluster: str
    remediations: tuple[MachineRemediation, ...]
    requeue_after: float = RETRY_SECONDS

    def __str__(self) -> str:
        return ", ".join(map(str, self.remediations))


HealthCheckMove = Remediate | Wait | Done


def targets(check: MachineHealthCheck, seen: ObservedHealth) -> list[HealthCheckTarget]:
    """The result of the check for every selected Machine."""
    return [judge(check, machine, seen) for machine in seen.machines]


def next_move(check: MachineHealthCheck, seen: ObservedHealth) -> HealthCheckMove:
    """Delete unhealthy Machines of MachineSets, unless too many are unhealthy."""
    found = targets(check, seen)
    if chosen := remediations(check, seen, found):
        return Remediate(cluster_key(check), tuple(_remediation(t, seen) for t in chosen))
    due = min((t.check_after for t in found if t.check_after), default=CHECK_SECONDS)
    return Done(min(due, RETRY_SECONDS if candidates(check, found) else CHECK_SECONDS))


def cluster_key(check: MachineHealthCheck) -> str:
    """The cluster whose zones share the rate of remediation."""
    return f"{check.namespace}/{check.spec.cluster_name}"


def _remediation(target: HealthCheckTarget, seen: ObservedHealth) -> MachineRemediation:
    machine, rate = target.machine, eviction_rate(target.zone, seen.zones)
    delete = Delete(Machine, machine.name, machine.namespace, uid=machine.uid)
    return MachineRemediation(target.zone, rate, machine.uid, delete, target.unhealthy)


def remediations(
    check: MachineHealthCheck, seen: ObservedHealth, found: Sequence[HealthCheckTarget]
) -> list[HealthCheckTarget]:
    """Unhealthy Machines to delete now: one of each zone whose rate allows it."""
    waiting = candidates(check, found)
    chosen = {t.zone: t for t in reversed(waiting) if t.zone in seen.ready_zones}
    return [t for t in waiting if chosen.get(t.zone) is t]


def candidates(
    check: MachineHealthCheck, found: Sequence[HealthCheckTarget]
) -> list[HealthCheckTarget]:
    """Unhealthy Machines; one without a MachineSet would not be replaced and stays."""
    if not is_allowed(check, found):
        return []
    return [t for t in found if t.unhealthy and _is_of_set(t.machine)]


def _is_of_set(machine: Machine) -> bool:
    owner = machine.metadata.controller
    return owner is not None and owner.kind == "MachineSet"


def judge(check: MachineHealthCheck, machine: Machine, seen: ObservedHealth) -> HealthCheckTarget:
    """Whether a Machine is unhealthy by the rules of a check."""
    node = seen.nodes.get(machine.name)
    zone = zone_of(node) if node else machine.spec.failure_domain
    if machine.deleting or machine.uid in seen.under_way:
        return HealthCheckTarget(machine, zone, available=False)
    if SKIP_REMEDIATION in machine.metadata.annotations:
        return HealthCheckTarget(machine, zone)
    limits = list(_limits(check, machine, node, seen))
    unhealthy = next((why for why, left in limits if left <= 0), "")
    after = None if unhealthy else min((left + 1 for _, left in limits), default=None)
    return HealthCheckTarget(machine, zone, unhealthy, after, available=node is not None)


def _limits(
    check: MachineHealthCheck, machine: Machine, node: Json | None, seen: ObservedHealth
) -> Iterator[tuple[str, float]]:
    """The limits that run for a Machine: what is wrong with it, and the seconds that are left."""
    rules, uid = check.spec.checks, machine.uid
    startup = startup_seconds(check)
    held = seen.seconds.get(HeldState(uid, Source.STARTUP))
    if startup and held is not None:
        yield f"has had no node for {startup} s", startup - held
    states = {Source.NODE: node_conditions(node), Source.MACHINE: machine_conditions(machine)}
    for rule, source in (
        *((r, Source.NODE) for r in rules.unhealthy_node_conditions),
        *((r, Source.MACHINE) for r in rules.unhealthy_machine_conditions),
    ):
        held = seen.seconds.get(HeldState(uid, source, rule.type))
        if states[source].get(rule.type) == rule.status and held is not None:
            why = f"{rule.type} is {rule.status} for more than {rule.timeout_seconds} s"
            yield why, rule.timeout_seconds - held


def startup_seconds(check: MachineHealthCheck) -> int:
    """How long a Machine may have no node; 0: for ever."""
    limit = check.spec.checks.node_startup_timeout_seconds
    return STARTUP_SECONDS if limit is None else limit


def node_conditions(node: Json | None) -> dict[str, str]:
    """The status of each condition of a node."""
    reported = ((node or {}).get("status") or {}).get("conditions") or ()
    return {str(c["type"]): str(c["status"]) for c in reported}


def machine_conditions(machine: Machine) -> dict[str, str]:
    """The status of each condition of a Machine."""
    return {c.type: c.status for c in machine.status.conditions}


def is_allowed(check: MachineHealthCheck, found: Sequence[HealthCheckTarget]) -> bool:
    """Whether few enough Machines are not healthy for remediation."""
    unhealthy, limits = not_healthy(found), check.spec.remediation.trigger_if
    if between := _RANGE.match(limits.unhealthy_in_range):
        return int(between[1]) <= unhealthy <= int(between[2])
    return unhealthy <= _most(check, len(found))


def _most(check: MachineHealthCheck, total: int) -> int:
    most = check.spec.remediation.trigger_if.unhealthy_less_than_or_equal_to
    return total if most is None else int_or_percent(most, total, up=False)


def not_healthy(found: Sequence[HealthCheckTarget]) -> int:
    """The number of Machines that count against the limit."""
    return sum(not t.healthy for t in found)


def is_disrupted(found: Sequence[HealthCheckTarget], seen: ObservedHealth) -> bool:
    """Whether most nodes of a zone of an unhealthy Machine are silent."""
    silent = (t for t in found if t.unhealthy or t.check_after is not None)
    return any(eviction_rate(t.zone, seen.zones) == 0 for t in silent)


def describe(check: MachineHealthCheck, seen: ObservedHealth) -> MachineHealthCheckStatus:
    """The counts, and whether remediation is allowed."""
    found = targets(check, seen)
    unhealthy, reason = not_healthy(found), MachineHealthCheckReason.ALLOWED
    message = ""
    if not is_allowed(check, found):
        reason = MachineHealthCheckReason.TOO_MANY_UNHEALTHY
        message = (
            f"{unhealthy} of {len(found)} Machines are not healthy: more than the check allows"
        )
    elif is_disrupted(found, seen):
        reason = MachineHealthCheckReason.ZONE_DISRUPTED
        message = "most nodes of a zone do not report; check its network before its machines"
    allowed = reason is MachineHealthCheckReason.ALLOWED
    condition = Condition(
        type="RemediationAllowed",
        status="True" if allowed else "False",
        reason=reason,
        message=message,
    )
    return MachineHealthCheckStatus(
        conditions=(condition,),
        expected_machines=len(found),
        current_healthy=len(found) - unhealthy,
        remediations_allowed=max(0, _most(check, len(found)) - unhealthy) if allowed else 0,
        targets=tuple(sorted(t.machine.name for t in found)),
        observed_generation=check.metadata.generation,
    )
