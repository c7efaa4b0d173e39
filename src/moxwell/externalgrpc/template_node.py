"""
The node that a group would add: what Cluster Autoscaler simulates scale-ups with. Pure.

Capacity comes from the annotations of the group, else from its machine template. The result is a
Node in Kubernetes' protobuf encoding.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from moxwell.api.quantity import Quantity
from moxwell.errors import Invalid
from moxwell.externalgrpc.node_groups import ScalableGroup
from moxwell.externalgrpc.wire import core_v1_pb2

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
RESOURCES = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage",
             "maxPods": "pods"}  # fmt: skip
DEFAULT_PODS = "110"
CPU_PRICE, GB_PRICE, GB = 0.025, 0.001, 10**9  # those of the instance types, per hour
SECONDS_PER_HOUR = 3600.0


def capacity_of(group: ScalableGroup) -> dict[str, str]:
    """The resources of a new node."""
    status = group.template.status.capacity if group.template is not None else {}
    found = {"pods": DEFAULT_PODS} | dict(status)
    for name, text in group.deployment.metadata.annotations.items():
        if name.startswith(CAPACITY) and (resource := RESOURCES.get(name.removeprefix(CAPACITY))):
            found[resource] = text
    if not {"cpu", "memory"} <= found.keys():
        raise Invalid(
            f"the capacity of nodes of {group.id} is not known: set the annotations "
            f"{CAPACITY}cpu and {CAPACITY}memory on the MachineDeployment"
        )
    return found


def labels_of(group: ScalableGroup) -> dict[str, str]:
    """Labels of the machine template that reach nodes, and those of the annotation."""
    meta = group.deployment.spec.template.metadata
    found = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": f"{group.deployment.name}-template",
    }
    found |= {k: v for k, v in meta.labels.items() if _reaches_nodes(k)}
    text = group.deployment.metadata.annotations.get(f"{CAPACITY}labels", "")
    return found | dict(_pairs(text))


def _reaches_nodes(key: str) -> bool:
    """The labels that Cluster API copies from machines to nodes."""
    domain = key.partition("/")[0]
    return domain in (
        "node-role.kubernetes.io",
        "node-restriction.kubernetes.io",
        "node.cluster.x-k8s.io",
    ) or domain.endswith((".node-restriction.kubernetes.io", ".node.cluster.x-k8s.io"))


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = part.partition("=")
        yield key, value


def taints_of(group: ScalableGroup) -> list[tuple[str, str, str]]:
    """Key, value and effect of the annotation ``taints``: key=value:effect, separated by commas."""
    found = []
    for part in group.deployment.metadata.annotations.get(f"{CAPACITY}taints", "").split(","):
        pair, _, effect = part.strip().rpartition(":")
        key, _, value = pair.partition("=")
        if key and effect:
            found.append((key, value, effect))
    return found


def template_node(group: ScalableGroup) -> bytes:
    """The node in Kubernetes' protobuf encoding."""
    node: Any = core_v1_pb2.Node()
    node.metadata.name = f"{group.deployment.name}-template"
    node.metadata.labels.update(labels_of(group))
    for name, text in capacity_of(group).items():
        node.status.capacity[name].string = node.status.allocatable[name].string = text
    node.status.conditions.add(type="Ready", status="True")
    for key, value, effect in taints_of(group):
        node.spec.taints.add(key=key, value=value, effect=effect)
    return bytes(node.SerializeToString())


def price(resources: Mapping[str, str], seconds: float) -> float:
    """What CPU and memory cost for a time."""
    cpu, memory = (Quantity.parse(resources.get(n, "0")).milli for n in ("cpu", "memory"))
    hourly = CPU_PRICE * cpu / 1000 + GB_PRICE * memory / 1000 / GB
    return hourly * seconds / SECONDS_PER_HOUR


def pod_requests(data: bytes) -> dict[str, str]:
    """The sum of the requests of a pod's containers; raises Invalid for malformed bytes."""
    pod: Any = core_v1_pb2.Pod()
    try:
        pod.ParseFromString(data)
    except DecodeError as error:
        raise Invalid(f"the pod of the request is malformed: {error}") from error
    total = {"cpu": 0, "memory": 0}
    for container in pod.spec.containers:
        for name in total:
            if name in container.resources.requests:
                total[name] += Quantity.parse(container.resources.requests[name].string).milli
    return {name: f"{amount}m" for name, amount in total.items()}
