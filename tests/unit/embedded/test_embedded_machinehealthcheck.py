"""MachineHealthChecks: which machines are unhealthy and when they are replaced."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.embedded.clusterapi.machinehealthcheck.plan import (
    CHECK_SECONDS,
    ObservedHealth,
    describe,
    judge,
    next_move,
    targets,
)
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Writes

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


def node(status: str, since: float) -> Json:
    row = {"type": "Ready", "status": status, "lastTransitionTime": at(since)}
    return {"status": {"conditions": [row]}}


@pytest.mark.parametrize(
    ("obj", "found", "unhealthy", "check_after"),
    [
        pytest.param(machine(), node("True", 999), False, None, id="ready"),
        pytest.param(machine(), node("Unknown", 400), True, None, id="unknown for too long"),
        pytest.param(machine(), node("Unknown", 200), False, 101, id="unknown for a while"),
        pytest.param(machine(), None, False, None, id="a node that cannot be read"),
        pytest.param(machine(node=False), None, True, None, id="no node for too long"),
        pytest.param(machine(node=False, age=60), None, False, 541, id="a new machine"),
        pytest.param(
            machine(annotations={"cluster.x-k8s.io/skip-remediation": ""}),
            node("Unknown", 400),
            False,
            None,
            id="skipped",
        ),
    ],
)
def test_judge(
    obj: Machine, found: Json | None, unhealthy: bool, check_after: float | None
) -> None:
    target = judge(check(), obj, found, NOW)
    assert (bool(target.unhealthy), target.check_after) == (unhealthy, check_after)


SICK, WELL = node("Unknown", 400), node("True", 400)


def seen(*nodes: Json, **meta: Any) -> ObservedHealth:
    machines = tuple(machine(f"m{i}", **meta) for i in range(len(nodes)))
    return ObservedHealth(NOW, machines, {f"m{i}": n for i, n in enumerate(nodes)})


@pytest.mark.parametrize(
    ("obj", "observed", "deleted"),
    [
        pytest.param(check(), seen(WELL, WELL), [], id="all are healthy"),
        pytest.param(check(), seen(SICK, WELL), ["m0"], id="an unhealthy one is deleted"),
        pytest.param(
            check(unhealthyLessThanOrEqualTo="40%"), seen(SICK, WELL), [], id="too many unhealthy"
        ),
        pytest.param(check(unhealthyInRange="[2-3]"), seen(SICK, WELL), [], id="outside the range"),
        pytest.param(
            check(), seen(SICK, ownerReferences=[]), [], id="no MachineSet replaces the machine"
        ),
    ],
)
def test_next_move(obj: MachineHealthCheck, observed: ObservedHealth, deleted: list[str]) -> None:
    move = next_move(obj, observed)
    names = [getattr(w, "name", "") for w in move.writes] if isinstance(move, Writes) else []
    assert names == deleted
    assert deleted or move == Done(CHECK_SECONDS)


def test_status_reports_that_remediation_is_not_allowed() -> None:
    obj = check(unhealthyLessThanOrEqualTo=0)
    status = describe(obj, targets(obj, seen(SICK, WELL)))
    assert (status.expected_machines, status.current_healthy) == (2, 1)
    assert [(c.status, c.reason) for c in status.conditions] == [("False", "TooManyUnhealthy")]
