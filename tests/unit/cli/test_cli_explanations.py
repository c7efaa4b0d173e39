"""What ``doctor`` and ``explain`` make of conditions."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.cli.doctor import check_machines
from moxwell.cli.explain import next_without_writes


def machine(name: str, reason: str, region: str = "north", status: str = "Unknown") -> Any:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "why"}
    given = {
        "metadata": {"name": name, "namespace": "tenant-red"},
        "spec": {"region": region},
        "status": {"conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }
    return msgspec.convert(given, ProxmoxMachine, strict=False)


LOST = "RegionUnreachable"
MACHINES: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "ready": ([machine("a", "Ready", status="True")], []),
    "one that a person must look at": (
        [machine("a", "Vanished", status="False")],
        [("wrong", "machine a: Vanished why")],
    ),
    "a refused write": (
        [machine("a", "PermissionDenied")],
        [("wrong", "machine a: PermissionDenied why")],
    ),
    "one that waits": ([machine("a", "Cloning")], [("remark", "machine a: Cloning why")]),
    "a lost region": (
        [machine("a", LOST), machine("b", LOST), machine("c", LOST, "south")],
        [
            ("remark", "nothing is known of 2 machines until region north answers"),
            ("remark", "nothing is known of 1 machine until region south answers"),
        ],
    ),
}


@pytest.mark.parametrize(("guests", "expected"), MACHINES.values(), ids=MACHINES)
def test_a_lost_region_is_one_finding(guests: list[Any], expected: list[tuple[str, str]]) -> None:
    found = list(check_machines(guests))
    assert [(finding.level, finding.what) for finding in found] == expected
    assert all(finding.do for finding in found)


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        ({"Ready": "True", "NodesReady": "True"}, "nothing"),
        ({"Ready": "False", "NodesReady": "False"}, "wait for NodesReady"),
        (
            {"ControlPlaneReady": "False", "NodesReady": "Unknown", "Ready": "False"},
            "wait for ControlPlaneReady and NodesReady",
        ),
        ({"Ready": "False"}, "wait for Ready"),
    ],
)  # fmt: skip
def test_a_cluster_that_is_not_ready_waits_for_something(
    conditions: dict[str, str], sentence: str
) -> None:
    rows = [{"condition": name, "status": status} for name, status in conditions.items()]
    assert next_without_writes(rows) == sentence
