"""
The node pool that a cluster gets on request, so that it scales without further objects. Pure.

The template is found by the tag of its Kubernetes version, as for node groups without a template.
"""

from typing import Any

from moxwell.api.karpenter.fields import GROUP
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP, PROVIDER_VERSION, ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxUnmanagedTemplate
from moxwell.api.kinds import Resource
from moxwell.scheduling.well_known_labels import ARCH, CAPACITY_TYPE, ON_DEMAND

ANNOTATION = "moxwell.dev/default-node-pool"  # of a Kubernetes object: the limit on nodes
NAME = "default"
Json = dict[str, Any]


def default_objects(version: str, nodes: int) -> tuple[tuple[Json, Resource], ...]:
    """A template, a node class and a node pool of at most so many nodes."""
    return (
        (_template(version), ProxmoxUnmanagedTemplate.resource),
        (_node_class(), ProxmoxNodeClass.resource),
        (_node_pool(nodes), NodePool.resource),
    )


def _template(version: str) -> Json:
    spec = {"tags": [f"k8s-{version}"]}
    return _provider_object("ProxmoxUnmanagedTemplate", spec)


def _node_class() -> Json:
    reference = {"kind": "ProxmoxUnmanagedTemplate", "name": NAME}
    return _provider_object("ProxmoxNodeClass", {"instanceTemplateRef": reference})


def _provider_object(kind: str, spec: Json) -> Json:
    head = {"apiVersion": f"{PROVIDER_GROUP}/{PROVIDER_VERSION}", "kind": kind}
    return head | {"metadata": {"name": NAME}, "spec": spec}


def _node_pool(nodes: int) -> Json:
    requirements = [
        {"key": ARCH, "operator": "In", "values": ["amd64"]},
        {"key": CAPACITY_TYPE, "operator": "In", "values": [ON_DEMAND]},
    ]
    reference = {"group": PROVIDER_GROUP, "kind": "ProxmoxNodeClass", "name": NAME}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "NodePool",
        "metadata": {"name": NAME},
        "spec": {
            "template": {"spec": {"requirements": requirements, "nodeClassRef": reference}},
            "disruption": {"consolidateAfter": "1m"},
            "limits": {"nodes": str(nodes)},
        },
    }


def node_limit(annotations: dict[str, str]) -> int | None:
    """How many nodes the default pool of a cluster may have; None if it gets none."""
    text = annotations.get(ANNOTATION, "")
    return int(text) if text.isascii() and text.isdecimal() and 0 < int(text) <= 1000 else None
