"""Small clusters for tests of the solver."""

from typing import Any

from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pod_parsing import pod_shape
from moxwell.scheduling.packing.pods import PodDemand, pairs
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.resource_lists import offered
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
)

ZONES = ("a", "b", "c")


def instance_type(cpu: int, *, zones: tuple[str, ...] = ZONES, **changes: Any) -> InstanceType:
    """A type of so many vCPU with four times the GiB, at 0.1 per vCPU, in every zone."""
    name = f"t{cpu}"
    known: dict[str, Any] = {
        "capacity": offered({"cpu": cpu, "memory": f"{4 * cpu}Gi", "pods": 32}),
        "overhead": {},
        "requirements": (
            requirement(INSTANCE_TYPE, "In", [name]),
            requirement(ZONE, "In", zones),
            requirement(CAPACITY_TYPE, "In", ["on-demand"]),
        ),
        "offerings": tuple(
            Offering(pairs({ZONE: z, CAPACITY_TYPE: "on-demand"}), cpu / 10) for z in zones
        ),
    }
    return InstanceType(name, **(known | changes))


TYPES = tuple(map(instance_type, (2, 4, 8, 16)))


def pool(name: str = "default", **changes: Any) -> ProvisioningPool:
    return ProvisioningPool(name, changes.pop("instance_types", TYPES), **changes)


def cluster(*pools: ProvisioningPool, **changes: Any) -> ClusterSnapshot:
    return ClusterSnapshot(pools or (pool(),), namespaces={"default": ()}, **changes)


def pod(name: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> PodDemand:
    """A pod with one container; ``labels`` are its labels, the rest is its spec."""
    labels = spec.pop("labels", {})
    bound = spec.pop("on", "")
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    manifest = {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}
    phase = "Running" if bound else "Pending"
    return PodDemand(name, name, pod_shape(manifest), node_name=bound, phase=phase)


def node(name: str, cpu: int = 4, zone: str = "a", **changes: Any) -> ClusterNode:
    labels = pairs(
        {HOSTNAME: name, ZONE: zone, NODE_POOL: "default", CAPACITY_TYPE: "on-demand",
         INSTANCE_TYPE: f"t{cpu}"}
    )  # fmt: skip
    size = offered({"cpu": cpu, "memory": f"{4 * cpu}Gi", "pods": 32})
    known: dict[str, Any] = {"capacity": size, "allocatable": size, "node_labels": labels}
    return ClusterNode(name, labels, **(known | changes))
