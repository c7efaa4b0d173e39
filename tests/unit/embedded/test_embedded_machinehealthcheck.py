"""MachineHealthChecks: which machines are unhealthy and when they are replaced."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.embedded.clusterapi.machinehealthcheck.plan import (
    CHECK_SECONDS,
    HeldState,
    ObservedHealth,
    Remediate,
    Source,
    describe,
    judge,
    next_move,
)
from moxwell.embedded.zones import count_zones, eviction_rate, ready_status
from moxwell.runtime.move import Done

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def check(**trigger: Any) -> MachineHealthCheck:
    rule = {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}
    spec = {
        "clusterName": "c",
        "checks": {"unhealthyNodeConditions": [rule], "nodeStartupTimeoutSeconds": 600},
        "remediation": {"triggerIf": trigger},
    }
    return msgspec.convert({"metadata": {"name": "h"}, "spec": spec}, MachineHealthCheck)


def machine(name: str = "m", *, node: bool = True, age: float = 3600, **meta: Any) -> Machine:
    owner = {"apiVersion": "x", "kind": "MachineSet", "name": "s", "uid": "s", "controller": True}
    head = {
        "name": name,
        "namespace": "d",
        "uid": name,
        "creationTimestamp": at(age),
        "ownerReferences": [owner],
        **meta,
    }
    status = {"nodeRef": {"name": name}} if node else {}
    spec = {"clusterName": "c", "bootstrap": {}}
    return msgspec.convert({"metadata": head, "spec": spec, "status": status}, Machine)


def node(status: str, zone: str = "") -> Json:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    row = {"type": "Ready", "status": status, "lastTransitionTime": at(9999)}
    return {"metadata": {"name": "n", "labels": labels}, "status": {"conditions": [row]}}


def observed(*pairs: tuple[Machine, Json | None, float], **more: Any) -> ObservedHealth:
    """Machines with their nodes and for how long each has been in its state."""
    seconds = {
        HeldState(m.uid, Source.NODE, "Ready") if n else HeldState(m.uid, Source.STARTUP): held
        for m, n, held in pairs
        if n or m.status.node_ref is None
    }
    nodes = {m.name: n for m, n, _ in pairs}
    known = [n for n in nodes.values() if n]
    zones = count_zones(known, lambda n: ready_status(n) == "Unknown")
    ready = {"ready_zones": frozenset({*zones, ""})}
    return ObservedHealth(tuple(m for m, _, _ in pairs), nodes, seconds, zones, **(ready | more))


SKIPPED = machine(annotations={"cluster.x-k8s.io/skip-remediation": ""})
DELETING = machine(deletionTimestamp=at(1))


@pytest.mark.parametrize(
    ("obj", "found", "held", "unhealthy", "check_after", "healthy"),
    [
        pytest.param(machine(), node("True"), 999, False, None, True, id="ready"),
        pytest.param(machine(), node("Unknown"), 400, True, None, False, id="unknown for too long"),
        pytest.param(machine(), node("Unknown"), 200, False, 101, False, id="unknown for a while"),
        pytest.param(
            machine(), node("Unknown"), 0, False, 301, False, id="an old transition time: not used"
        ),
        pytest.param(machine(), None, 999, False, None, False, id="a node that cannot be read"),
        pytest.param(machine(node=False), None, 601, True, None, False, id="no node for too long"),
        pytest.param(machine(node=False), None, 60, False, 541, False, id="a new machine"),
        pytest.param(SKIPPED, node("Unknown"), 400, False, None, True, id="skipped"),
        pytest.param(DELETING, node("Unknown"), 400, False, None, False, id="being deleted"),
    ],
)
def test_judge(
    obj: Machine,
    found: Json | None,
    held: float,
    unhealthy: bool,
    check_after: float | None,
    healthy: bool,
) -> None:
    target = judge(check(), obj, observed((obj, found, held)))
    assert (bool(target.unhealthy), target.check_after) == (unhealthy, check_after)
    assert target.healthy is healthy


def test_a_machine_whose_deletion_was_requested_is_not_available() -> None:
    obj = machine()
    seen = observed((obj, node("True"), 999), under_way=frozenset({obj.uid}))
    assert not judge(check(), obj, seen).healthy


SICK, WELL = node("Unknown"), node("True")


def seen(*nodes: Json | None, held: float = 400, **meta: Any) -> ObservedHealth:
    made = [machine(f"m{i}", **meta) for i in range(len(nodes))]
    return observed(*((m, n, held) for m, n in zip(made, nodes, strict=True)))


def in_zone(zone: str, *statuses: str) -> list[Json]:
    return [node(status, zone) for status in statuses]


HALF = "50%"


@pytest.mark.parametrize(
    ("obj", "state", "deleted", "reason"),
    [
        pytest.param(check(), seen(WELL, WELL), [], "RemediationAllowed", id="all are healthy"),
        pytest.param(
            check(), seen(SICK, WELL), ["m0"], "RemediationAllowed", id="an unhealthy one"
        ),
        pytest.param(
            check(), seen(SICK, SICK, WELL), ["m0"], "RemediationAllowed", id="one at a time"
        ),
        pytest.param(
            check(),
            seen(*in_zone("a", "Unknown", "True"), *in_zone("b", "Unknown", "True")),
            ["m0", "m2"],
            "RemediationAllowed",
            id="one of each zone",
        ),
        pytest.param(
            check(unhealthyLessThanOrEqualTo="40%"),
            seen(SICK, WELL),
            [],
            "TooManyUnhealthy",
            id="too many unhealthy",
        ),
        pytest.param(
            check(unhealthyLessThanOrEqualTo=HALF),
            seen(SICK, None, WELL),
            [],
            "TooManyUnhealthy",
            id="one that has no answer is away too",
        ),
        pytest.param(
            check(unhealthyInRange="[2-3]"),
            seen(SICK, WELL),
            [],
            "TooManyUnhealthy",
            id="outside the range",
        ),
        pytest.param(
            check(),
            seen(SICK, WELL, ownerReferences=[]),
            [],
            "RemediationAllowed",
            id="no MachineSet replaces the machine",
        ),
        pytest.param(
            check(), seen(SICK, SICK, SICK), [], "ZoneDisrupted", id="every node is silent"
        ),
        pytest.param(
            check(),
            seen(*in_zone("a", *["Unknown"] * 3, "True", "True"), *in_zone("b", "True")),
            [],
            "ZoneDisrupted",
            id="most nodes of a zone are silent",
        ),
    ],
)
def test_next_move(
    obj: MachineHealthCheck, state: ObservedHealth, deleted: list[str], reason: str
) -> None:
    allowed = frozenset(z for z in state.ready_zones if eviction_rate(z, state.zones))
    state = dataclasses.replace(state, ready_zones=allowed)
    move = next_move(obj, state)
    names = [r.delete.name for r in move.remediations] if isinstance(move, Remediate) else []
    assert names == deleted
    assert deleted or isinstance(move, Done)
    assert [c.reason for c in describe(obj, state).conditions] == [reason]


def test_machines_being_deleted_count_against_the_limit() -> None:
    """Three of four: one goes, one is new, the third must wait."""
    obj = check(unhealthyLessThanOrEqualTo=HALF)
    old = [machine(f"m{i}") for i in range(3)]
    leaving, starting = machine("m3", deletionTimestamp=at(1)), machine("m4", node=False)
    rows = [(m, SICK if i == 0 else WELL, 400.0) for i, m in enumerate(old)]
    before = observed(*rows, (starting, None, 10.0))
    assert isinstance(next_move(obj, before), Remediate)
    after = observed(*rows, (starting, None, 10.0), (leaving, WELL, 400.0))
    assert next_move(obj, after) == Done(CHECK_SECONDS)


def test_status_reports_that_remediation_is_not_allowed() -> None:
    obj = check(unhealthyLessThanOrEqualTo=0)
    status = describe(obj, seen(SICK, WELL))
    assert (status.expected_machines, status.current_healthy) == (2, 1)
    assert status.remediations_allowed == 0
    assert [(c.status, c.reason) for c in status.conditions] == [("False", "TooManyUnhealthy")]
