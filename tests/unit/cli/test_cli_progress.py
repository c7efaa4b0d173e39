"""What commands say while they wait and where they look, and when a change is done for them."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.cli import demo
from moxwell.cli.cluster import is_rolled
from moxwell.cli.explain import where_else


def guest(reason: str, region: str = "", message: str = "", status: str = "False") -> Any:
    said = {"type": "Ready", "status": status, "reason": reason, "message": message}
    spec = {"region": region} if region else {}
    tree = {"metadata": {"name": "m"}, "spec": spec, "status": {"conditions": [said]}}
    return msgspec.convert(tree, ProxmoxMachine, strict=False)


WORDS: dict[str, tuple[list[Any], str]] = {
    "nothing to say of ready ones": ([guest("Provisioned", "a", status="True")], ""),
    "the same in two regions": (
        [guest("Cloning", "b"), guest("Cloning", "a"), guest("Cloning", "a")],
        "cloning in a and b",
    ),
    "without a place": ([guest("WaitingForBootstrapData")], "preparing"),
    "several things at once": (
        [guest("WaitingForBootstrap", "a"), guest("Cloning", "b")],
        "booting in a, cloning in b",
    ),
    "what does not go as it should has its message": (
        [guest("InsufficientResources", message="no host has 64 GiB")],
        "InsufficientResources: no host has 64 GiB",
    ),
}


@pytest.mark.parametrize(("guests", "words"), WORDS.values(), ids=WORDS)
def test_progress_is_said_describe_machines(guests: list[ProxmoxMachine], words: str) -> None:
    assert demo.describe_machines(guests) == words


def group(version: str = "v2", **status: int) -> MachineDeployment:
    counts = {"observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "upToDateReplicas": 2}
    spec = {
        "clusterName": "c",
        "replicas": 2,
        "selector": {"matchLabels": {}},
        "template": {"spec": {"clusterName": "c", "bootstrap": {}, "version": version}},
    }
    tree = {"metadata": {"name": "g", "generation": 2}, "spec": spec, "status": counts | status}
    return msgspec.convert(tree, MachineDeployment)


ROLLED: dict[str, tuple[MachineDeployment, bool]] = {
    "all new and ready": (group(), True),
    "its old status, right after the change": (group(observedGeneration=1), False),
    "its turn has not come": (group(version="v1"), False),
    "one is still old": (group(upToDateReplicas=1), False),
    "an old one is still leaving": (group(replicas=3), False),
}


@pytest.mark.parametrize(("deployment", "done"), ROLLED.values(), ids=ROLLED)
def test_an_upgrade_is_over_when_every_node_is_new(
    deployment: MachineDeployment, done: bool
) -> None:
    assert is_rolled(deployment, "v2") is done


def named(name: str, space: str) -> ProxmoxMachine:
    tree = {"metadata": {"name": name, "namespace": space}, "spec": {}}
    return msgspec.convert(tree, ProxmoxMachine, strict=False)


def test_what_is_elsewhere_is_told_where() -> None:
    there = [named("m", "red"), named("other", "blue")]
    said = "there is no machine m in demo"
    assert where_else("machine", "m", "demo", there) == f"{said}; there is one in red: add -n red"
    assert where_else("machine", "m", "demo", there[1:]) == said
