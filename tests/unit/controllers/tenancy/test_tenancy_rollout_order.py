"""Tables of the order in which node groups change."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.tenancy.cluster import rollout_order

LABELS = {"cluster.x-k8s.io/deployment-name": "c-a"}
CLAIM = {"host": "pve1", "uuid": "u"}


def group(**change: Any) -> MachineDeployment:
    status = {"observedGeneration": 2, "replicas": 1, "upToDateReplicas": 1, **change}
    spec = {
        "clusterName": "c",
        "replicas": 1,
        "selector": {"matchLabels": {}},
        "template": {"spec": {"clusterName": "c", "bootstrap": {}, "version": "v1.34.1"}},
    }
    meta = {"name": "c-a", "namespace": "t", "generation": 2}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, MachineDeployment)


def machine(name: str = "m1", **meta: Any) -> Machine:
    tree = {"name": name, "namespace": "t", "labels": LABELS, **meta}
    spec = {"clusterName": "c", "bootstrap": {}}
    return msgspec.convert({"metadata": tree, "spec": spec}, Machine, strict=False)


def guest(reason: str = "", **spec: Any) -> ProxmoxMachine:
    conditions = (
        [{"type": "Ready", "status": "False", "reason": reason, "message": ""}] if reason else []
    )
    meta = {"name": "m1", "namespace": "t"}
    tree = {"metadata": meta, "spec": spec, "status": {"conditions": conditions}}
    return msgspec.convert(tree, ProxmoxMachine, strict=False)


GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
TABLE: dict[str, tuple[Any, list[Any], list[Any], bool]] = {
    "placed and current": (group(), [machine()], [guest(claim=CLAIM)], False),
    "not seen by its controller yet": (
        group(observedGeneration=1),
        [machine()],
        [guest(claim=CLAIM)],
        True,
    ),
    "too few machines": (group(), [], [], True),
    "one too many": (group(), [machine(), machine("m2")], [guest(claim=CLAIM)], True),
    "one that leaves": (group(), [machine(**GONE)], [guest(claim=CLAIM)], True),
    "an old template": (group(upToDateReplicas=0), [machine()], [guest(claim=CLAIM)], True),
    "no guest object yet": (group(), [machine()], [], True),
    "no place yet": (group(), [machine()], [guest()], True),
    "waiting for others": (group(), [machine()], [guest("WaitingForBootstrapData")], True),
    "no room anywhere: the next may try": (
        group(),
        [machine()],
        [guest("InsufficientResources")],
        False,
    ),
}


@pytest.mark.parametrize(("deployment", "machines", "guests", "moves"), TABLE.values(), ids=TABLE)
def test_which_groups_are_changing(
    deployment: MachineDeployment, machines: Any, guests: Any, moves: bool
) -> None:
    assert rollout_order.is_changing(deployment, machines, guests) is moves


BLOCKS: dict[str, tuple[Any, list[Any], list[Any], bool]] = {
    "a rollout with every machine placed": (
        group(replicas=1, upToDateReplicas=0), [machine()], [guest(claim=CLAIM)], False,
    ),
    "a rollout whose new machine has no place yet": (
        group(replicas=1, upToDateReplicas=0), [machine()], [guest()], True,
    ),
    "a rollout its controller has not seen": (
        group(observedGeneration=1, upToDateReplicas=0), [machine()], [guest(claim=CLAIM)], True,
    ),
    "a machine that leaves": (group(), [machine(**GONE)], [guest(claim=CLAIM)], True),
}  # fmt: skip


@pytest.mark.parametrize(("deployment", "machines", "guests", "yes"), BLOCKS.values(), ids=BLOCKS)
def test_which_groups_block_the_scaling_of_others(
    deployment: MachineDeployment, machines: Any, guests: Any, yes: bool
) -> None:
    assert rollout_order.blocks_scaling(deployment, machines, guests) is yes


def desired(name: str, replicas: int | None, version: str = "v1.34.1") -> dict[str, Any]:
    spec = {"version": version, "infrastructureRef": {"name": ""}}
    spec |= {"bootstrap": {"configRef": {"name": ""}}}
    count = {} if replicas is None else {"replicas": replicas}
    return {"metadata": {"name": name}, "spec": {**count, "template": {"spec": spec}}}


WAITING: dict[str, tuple[dict[str, Any], tuple[bool, ...]]] = {
    "nothing to do": (desired("c-a", 1), ()),
    "more nodes": (desired("c-a", 2), (True,)),
    "a group that is not there": (desired("c-b", 1), (True,)),
    "another version": (desired("c-a", 1, "v1.35.0"), (False,)),
    "sized by somebody else": (desired("c-a", None), ()),
}


@pytest.mark.parametrize(("tree", "scales"), WAITING.values(), ids=WAITING)
def test_which_groups_wait(tree: dict[str, Any], scales: tuple[bool, ...]) -> None:
    found = rollout_order.waiting_groups([tree], "c-0", [group()])
    assert tuple(group.scales for group in found) == scales
    assert all(str(group).endswith(" waits for c-0") for group in found)


ROLLS = {
    "a new group": (desired("c-b", 1), False),
    "another count": (desired("c-a", 5), False),
    "another version": (desired("c-a", 1, "v1.35.0"), True),
}


@pytest.mark.parametrize(("tree", "rolls"), ROLLS.values(), ids=ROLLS)
def test_what_rolls(tree: dict[str, Any], rolls: bool) -> None:
    assert rollout_order.rolls(tree, [group()]) is rolls


NEWER = {
    "the control plane is older": (desired("c-a", 1, "v1.35.0"), "v1.34.1", True),
    "the control plane runs it": (desired("c-a", 1, "v1.35.0"), "v1.35.0", False),
    "the control plane is newer": (desired("c-a", 1, "v1.35.0"), "v1.36.3", False),
    "the control plane reports no version": (desired("c-a", 1, "v1.35.0"), "", False),
    "the group keeps its version": (desired("c-a", 3), "v1.33.0", False),
    "a group that is not there": (desired("c-b", 1, "v1.35.0"), "v1.34.1", False),
}


@pytest.mark.parametrize(("tree", "runs", "newer"), NEWER.values(), ids=NEWER)
def test_no_node_is_newer_than_its_control_plane(
    tree: dict[str, Any], runs: str, newer: bool
) -> None:
    assert rollout_order.is_newer_than_control_plane(tree, [group()], runs) is newer


def test_progress_compares_machines_and_placement() -> None:
    before = rollout_order.GroupProgress.of(group(), [machine()], [guest()])
    assert before == rollout_order.GroupProgress.of(group(), [machine()], [guest()])
    assert before != rollout_order.GroupProgress.of(group(), [machine()], [guest(claim=CLAIM)])
