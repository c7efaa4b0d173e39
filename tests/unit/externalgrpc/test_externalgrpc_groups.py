"""Node groups of Cluster Autoscaler: limits, sizes, deletions, instances and template nodes."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.errors import Invalid, Missing
from moxwell.externalgrpc import template_node
from moxwell.externalgrpc.group_options import PREFIX, chosen_options
from moxwell.externalgrpc.instances import ErrorClass, InstancePhase, instance_of
from moxwell.externalgrpc.node_groups import (
    AUTOSCALER,
    DELETING,
    DEPLOYMENT_NAME,
    GroupLimitExceeded,
    ScalableGroup,
    decreased,
    deletion,
    increased,
    inventory,
)
from moxwell.externalgrpc.server import method_name
from moxwell.externalgrpc.wire import core_v1_pb2

SIZES = {f"{AUTOSCALER}min-size": "1", f"{AUTOSCALER}max-size": "5"}


def deployment(
    replicas: int = 2, *, notes: dict[str, str] | None = None, cluster: str = "c", **meta: Any
) -> MachineDeployment:
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxMachineTemplate"}
    labels = {"node.cluster.x-k8s.io/tier": "web", "other.example.com/x": "y"}
    spec = {"clusterName": cluster, "infrastructureRef": reference | {"name": "t"}}
    tree = {
        "metadata": {"name": "w", "namespace": "default", "annotations": SIZES | (notes or {})}
        | meta,
        "spec": {
            "clusterName": cluster,
            "replicas": replicas,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    return msgspec.convert(tree, MachineDeployment)


def machine(name: str, *, provider_id: str = "", node: str = "", **meta: Any) -> Machine:
    labels = {DEPLOYMENT_NAME: "w"}
    tree = {
        "metadata": {"name": name, "namespace": "default", "labels": labels} | meta,
        "spec": {"clusterName": "c", "providerID": provider_id},
        "status": {"nodeRef": {"name": node}} if node else {},
    }
    return msgspec.convert(tree, Machine)


TEMPLATE = msgspec.convert(
    {
        "metadata": {"name": "t", "namespace": "default"},
        "status": {"capacity": {"cpu": "2", "memory": "4096Mi"}},
    },
    ProxmoxMachineTemplate,
)
JOINED = machine("w-1", provider_id="proxmox://north/1", node="w-1")
YOUNG = machine("w-2")


def group(replicas: int = 2, *machines: Machine, **notes: str) -> ScalableGroup:
    given = {k.replace("_", "-"): v for k, v in notes.items()}
    return ScalableGroup(deployment(replicas, notes=given), 1, 5, machines, TEMPLATE)


@pytest.mark.parametrize(
    ("given", "ids", "problems"),
    [
        (deployment(), ["default/w"], 0),
        (deployment(cluster="other"), [], 0),
        (deployment(notes={f"{AUTOSCALER}max-size": "many"}), [], 1),
        (deployment(notes={f"{AUTOSCALER}min-size": "9"}), [], 1),
        (deployment(annotations={}), [], 0),
        (deployment(deletionTimestamp="2026-01-01T00:00:00Z"), [], 0),
    ],
)
def test_a_group_is_a_deployment_with_limits(
    given: MachineDeployment, ids: list[str], problems: int
) -> None:
    found = inventory("c", [given], [JOINED, YOUNG], [TEMPLATE])
    assert (list(found.groups), len(found.problems)) == (ids, problems)


def test_a_node_is_found_by_its_provider_id_or_its_name() -> None:
    found = inventory("c", [deployment()], [JOINED, YOUNG], [TEMPLATE])

    def name(provider_id: str, node: str) -> str:
        answer = found.of_node(provider_id, node)
        return answer[1].name if answer is not None else ""

    assert name("proxmox://north/1", "other") == "w-1"
    assert name("", "w-1") == "w-1"
    assert name("machine://default/w-2", "machine://default/w-2") == "w-2"
    assert name("proxmox://north/9", "w-1") == ""
    with pytest.raises(Missing):
        found.get("default/none")


@pytest.mark.parametrize(
    ("change", "given", "delta", "wanted"),
    [
        (increased, group(2), 3, 5),
        (increased, group(2), 4, GroupLimitExceeded),
        (increased, group(2), 0, Invalid),
        (decreased, group(3, JOINED), -2, 1),
        (decreased, group(2, JOINED, machine("w-2", node="n")), -1, GroupLimitExceeded),
        (decreased, group(1), -1, GroupLimitExceeded),
        (decreased, group(3), 1, Invalid),
    ],
)
def test_sizes(change: Any, given: ScalableGroup, delta: int, wanted: Any) -> None:
    if isinstance(wanted, int):
        assert change(given, delta) == wanted
    else:
        with pytest.raises(wanted):
            change(given, delta)


def test_a_deletion_counts_each_machine_once() -> None:
    first = deletion(group(3, JOINED, YOUNG), [("proxmox://north/1", "w-1")])
    assert ([m.name for m in first.machines], first.size, first.recorded) == (["w-1"], 2, ("w-1",))
    recorded = deployment(2, notes={DELETING: "w-1,gone"})
    again = ScalableGroup(recorded, 1, 5, (JOINED, YOUNG))
    repeated = deletion(again, [("proxmox://north/1", "w-1")])
    assert (repeated.machines, repeated.size, repeated.recorded) == ((), 2, ("w-1",))
    going = machine("w-1", node="w-1", deletionTimestamp="2026-01-01T00:00:00Z")
    assert deletion(ScalableGroup(deployment(2), 1, 5, (going,)), [("", "w-1")]).size == 2
    with pytest.raises(GroupLimitExceeded):
        deletion(group(1, JOINED), [("", "w-1")])
    with pytest.raises(Missing, match="does not belong"):
        deletion(group(3, JOINED), [("", "stranger")])


def proxmox(reason: str) -> ProxmoxMachine:
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": "why"}
    tree = {"metadata": {"name": "w-2"}, "status": {"conditions": [ready]}}
    return msgspec.convert(tree, ProxmoxMachine)


def test_instances_say_what_a_machine_waits_for() -> None:
    assert instance_of(JOINED, None).phase is InstancePhase.RUNNING
    assert instance_of(YOUNG, None).id == "machine://default/w-2"
    assert instance_of(YOUNG, proxmox("Cloning")).error == ""
    full = instance_of(YOUNG, proxmox("StorageFull"))
    assert (full.phase, full.error) == (InstancePhase.CREATING, "StorageFull")
    assert full.error_class is ErrorClass.OUT_OF_RESOURCES
    for reason in ("TemplateNotFound", "Vanished", "RegionUnknown", "Invalid"):
        assert instance_of(YOUNG, proxmox(reason)).error_class is ErrorClass.OTHER
        assert instance_of(YOUNG, proxmox(reason)).error == reason
    going = machine("w-1", deletionTimestamp="2026-01-01T00:00:00Z")
    assert instance_of(going, None).phase is InstancePhase.DELETING


def test_the_template_node_has_what_a_new_node_would_have() -> None:
    notes = {
        f"{template_node.CAPACITY}memory": "8Gi",
        f"{template_node.CAPACITY}labels": "group=md0",
        f"{template_node.CAPACITY}taints": "gpu=yes:NoSchedule",
    }
    given = ScalableGroup(deployment(notes=notes), 0, 3, (), TEMPLATE)
    node: Any = core_v1_pb2.Node()
    node.ParseFromString(template_node.template_node(given))
    capacity = {name: each.string for name, each in node.status.allocatable.items()}
    assert capacity == {"cpu": "2", "memory": "8Gi", "pods": "110"}
    assert node.metadata.labels["group"] == "md0"
    assert node.metadata.labels["node.cluster.x-k8s.io/tier"] == "web"
    assert "other.example.com/x" not in node.metadata.labels
    assert [(t.key, t.value, t.effect) for t in node.spec.taints] == [("gpu", "yes", "NoSchedule")]
    with pytest.raises(Invalid, match="is not known: set the annotations"):
        template_node.template_node(ScalableGroup(deployment(), 0, 3))


def test_prices_are_those_of_the_instance_types() -> None:
    assert template_node.price({"cpu": "2", "memory": "4G"}, 3600) == pytest.approx(0.054)
    pod: Any = core_v1_pb2.Pod()
    for _ in range(2):
        requests = pod.spec.containers.add().resources.requests
        requests["cpu"].string, requests["memory"].string = "500m", "1G"
    amounts = template_node.pod_requests(pod.SerializeToString())
    assert template_node.price(amounts, 7200) == pytest.approx(2 * 0.027)
    with pytest.raises(Invalid, match="malformed"):
        template_node.pod_requests(b"\xff\xff")


def test_options_are_annotations_and_bad_ones_are_left_out() -> None:
    found = chosen_options(
        {
            f"{PREFIX}scaledownutilizationthreshold": "0.7",
            f"{PREFIX}scaledownunneededtime": "5m",
            f"{PREFIX}zeroormaxnodescaling": "true",
            f"{PREFIX}maxnodeprovisiontime": "soon",
            f"{PREFIX}scaledowngpuutilizationthreshold": "nan",
        }
    )
    assert found.pop("scaleDownUnneededDuration").seconds == 300
    assert found == {"scaleDownUtilizationThreshold": 0.7, "zeroOrMaxNodeScaling": True}


@pytest.mark.parametrize(
    ("call", "method"),
    [
        ("GPULabel", "gpu_label"),
        ("GetAvailableGPUTypes", "get_available_gpu_types"),
        ("NodeGroupForNode", "node_group_for_node"),
    ],
)
def test_methods_have_the_names_of_calls(call: str, method: str) -> None:
    assert method_name(call) == method
