"""Objects of a scaled cluster as tests of the autoscaler need them."""

from typing import Any

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.state.intentions import EXPECTED_PODS
from moxwell.controllers.karpenter.state.objects import ClusterObjects
from moxwell.controllers.karpenter.state.pods import PodParser
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView, build_view
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE
from moxwell.testing.machine_provider import default_types
from moxwell.testing.node_claims import claim_object, pool_object

Json = dict[str, Any]
TYPES = {t.name: t for t in default_types()}
READY = [{"type": "Ready", "status": "True"}]
SMALL = "t1.2VCPU-4GB"


def pod(name: str, *, node: str = "", cpu: str = "1", **more: Any) -> Json:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    requests = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    spec: Json = {"containers": [{"name": "main", "resources": requests}]} | more.pop("spec", {})
    if node:
        spec["nodeName"] = node
    status = {"phase": "Running"} if node else {"conditions": [unschedulable]}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": meta | more.pop("metadata", {}), "spec": spec, "status": status | more}


def node(name: str, *, labels: Json | None = None, **spec: Any) -> Json:
    resources = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"providerID": f"proxmox://region-1/{name}"} | spec,
        "status": {"capacity": resources, "allocatable": resources, "conditions": READY},
    }


def claim(name: str, pods: tuple[str, ...] = (), **status: Any) -> NodeClaim:
    made = claim_object(
        name,
        metadata={"annotations": {EXPECTED_PODS: ",".join(pods)} if pods else {}},
        requirements=[{"key": INSTANCE_TYPE, "operator": "In", "values": [SMALL]}],
    )
    return msgspec.convert(made | {"status": status}, NodeClaim)


def pool(**spec: Any) -> NodePool:
    made = pool_object(**spec)
    return msgspec.convert(made | {"status": {"conditions": READY}}, NodePool)


def view(**given: Any) -> ScaledClusterView:
    fields: dict[str, Any] = {k: tuple(v) for k, v in given.items()}
    objects = ClusterObjects(**fields)
    parsed = PodParser(label_rules()).parse(objects.pods, objects.storage)
    types = {p.metadata.name: default_types() for p in objects.pools}
    return build_view(objects, parsed, types, 0.0)
