"""Recorded cases of Karpenter as the solver's input, and its results in the recorded format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.api.core.nodes import Taint
from moxwell.controllers.karpenter.state.pods import daemon_shape, disruption_limit
from moxwell.scheduling.disruption.commands import NodeReplacement
from moxwell.scheduling.packing.cluster import (
    ClusterSnapshot,
    DaemonPod,
    ProvisioningPool,
    SolverOptions,
)
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.nodes import ClusterNode
from moxwell.scheduling.packing.pod_parsing import (
    label_pairs,
    pod_shape,
    pool_requirements,
)
from moxwell.scheduling.packing.pod_validation import pod_refusal
from moxwell.scheduling.packing.pods import PodDemand, pairs
from moxwell.scheduling.packing.rescheduling import DisruptionLimit, currently_reschedulable
from moxwell.scheduling.packing.results import PlannedClaim, SchedulingResult
from moxwell.scheduling.resource_lists import CPU, MILLI, offered, requested
from moxwell.scheduling.taints import expected_taints
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    INITIALIZED,
    KARPENTER_LABELS,
    REGION,
    REGISTERED,
    ZONE,
    LabelRules,
)

Json = Mapping[str, Any]
NOW = 1767268800.0  # 2026-01-01T12:00:00Z
RESERVATION = "karpenter.test.sh/reservation-id"
NODE_CLASS = ("karpenter.test.sh/testnodeclass", "default")
HIDDEN = {REGISTERED, INITIALIZED, NODE_CLASS[0]}
RULES = LabelRules(
    well_known=KARPENTER_LABELS
    | {
        RESERVATION,
        "size",
        "special",
        "integer",
        "karpenter.proxmox.sinextra.dev/instance-family",
        "karpenter.proxmox.sinextra.dev/instance-cpu-type",
    },
    reservation=RESERVATION,
)


@dataclass(frozen=True, slots=True)
class CaseInput:
    """A case: the cluster, the pods to place, those turned away, and the settings."""

    snapshot: ClusterSnapshot
    pods: tuple[PodDemand, ...]
    refused: Mapping[str, str]
    options: SolverOptions
    limits: tuple[DisruptionLimit, ...] = ()


def instance_type(each: Json) -> InstanceType:
    return InstanceType(
        each["name"],
        offered(each["capacity"]),
        requested(each.get("overhead")),
        pool_requirements(each["requirements"]),
        tuple(map(_offering, each["offerings"])),
    )


def _offering(each: Json) -> Offering:
    labels = {ZONE: each["zone"], CAPACITY_TYPE: each["capacityType"]}
    if each.get("region"):
        labels[REGION] = each["region"]
    if each.get("reservationID"):
        labels[RESERVATION] = each["reservationID"]
    return Offering(
        pairs(labels),
        each["price"],
        each.get("available", True),
        each.get("reservationID", ""),
        each.get("reservationCapacity", 0),
    )


def pool_of(each: Json, types: tuple[InstanceType, ...]) -> ProvisioningPool:
    spec = each["spec"]
    template = spec["template"]
    inner = template.get("spec") or {}
    return ProvisioningPool(
        each["name"],
        types,
        pool_requirements(inner.get("requirements") or ()),
        label_pairs((template.get("metadata") or {}).get("labels")),
        taints_of(inner.get("taints")),
        taints_of(inner.get("startupTaints")),
        spec.get("weight", 0),
        offered(spec.get("limits")),
        NODE_CLASS,
    )


def taints_of(taints: Sequence[Json] | None) -> tuple[Taint, ...]:
    return msgspec.convert(taints or (), tuple[Taint, ...])


def node_of(each: Json) -> ClusterNode:
    state = each["state"]
    managed, has_node = state != "unmanaged", state != "launched"
    initialized = state in ("initialized", "unmanaged")
    labels = dict(each.get("labels") or {})
    own = dict(labels)
    if state in ("registered", "initialized"):
        own[REGISTERED] = "true"
    if state == "initialized":
        own[INITIALIZED] = "true"
    taints, startup = taints_of(each.get("taints")), taints_of(each.get("startupTaints"))
    return ClusterNode(
        each["name"],
        label_pairs(own if has_node else labels),
        offered(each.get("capacity")),
        offered(each.get("allocatable")),
        taints if initialized else expected_taints(taints, startup),
        label_pairs(own) if has_node else (),
        taints if has_node else (),
        has_node,
        managed,
        initialized,
        bool(each.get("deleting")),
    )


def pods_of(groups: Sequence[Json]) -> list[tuple[PodDemand, Json]]:
    found = []
    for group in groups:
        shape = pod_shape(group["pod"], group.get("namespace") or "default")
        annotations = pairs((group["pod"].get("metadata") or {}).get("annotations"))
        nodes = group.get("nodeNames") or [group.get("nodeName", "")] * len(group["names"])
        started = group.get("startedAgo")
        for name, node in zip(group["names"], nodes, strict=True):
            pod = PodDemand(
                name,
                name,
                shape,
                float(group.get("createdAt", 0)),
                node,
                "Running" if node else "Pending",
                group.get("owner") or "ReplicaSet",
                annotations,
                (group["pod"].get("spec") or {}).get("priority"),
                None if started is None else NOW - started,
                bool(group.get("terminating")),
                not group.get("unready"),
            )
            found.append((pod, group["pod"]))
    return found


def options_of(options: Json | None) -> SolverOptions:
    found = options or {}
    return SolverOptions(
        best_effort_min_values=found.get("minValuesPolicy") == "BestEffort",
        ignore_preferences=found.get("preferencePolicy") == "Ignore",
        reserved_capacity=found.get("reservedCapacity", True),
    )


def case_input(case: Json, catalogues: Mapping[str, tuple[InstanceType, ...]]) -> CaseInput:
    """Read a provisioning case."""
    pools = tuple(
        pool_of(p, catalogues[p.get("catalogue") or case["catalogue"]])
        for p in case.get("nodePools") or ()
    )
    pods = pods_of(case.get("pods") or ())
    bound = tuple(p for p, _ in pods if p.node_name)
    refused = {
        p.name: text for p, json in pods if not p.node_name and (text := pod_refusal(json, RULES))
    }
    pending = [p for p, _ in pods if not p.node_name and p.name not in refused]
    nodes = tuple(map(node_of, case.get("nodes") or ()))
    limits = tuple(map(disruption_limit, case.get("pdbs") or ()))
    moving = {n.name for n in nodes if n.deleting}
    displaced = currently_reschedulable((p for p in bound if p.node_name in moving), limits, NOW)
    namespaces = {
        n["metadata"]["name"]: pairs(n["metadata"].get("labels"))
        for n in case.get("namespaces") or ()
    }
    snapshot = ClusterSnapshot(
        pools,
        nodes,
        bound,
        tuple(DaemonPod(d["name"], daemon_shape(d["pod"])) for d in case.get("daemonSets") or ()),
        {"default": (), **namespaces},
        RULES,
    )
    provisionable = [p for p in pending if p.owner not in ("DaemonSet", "Node")]
    options = options_of(case.get("options"))
    return CaseInput(snapshot, (*provisionable, *displaced), refused, options, limits)


def requirements_json(claim: PlannedClaim | NodeReplacement) -> list[Json]:
    found: list[Json] = []
    for key, requirement in sorted(claim.requirements.entries.items()):
        if key in HIDDEN:
            continue
        for operator, values in requirement.expressions():
            each: dict[str, Any] = {"key": key, "operator": str(operator)}
            if values:
                each["values"] = list(values)
            if requirement.min_values is not None:
                each["minValues"] = requirement.min_values
            found.append(each)
    return found


def requests_json(requests: Mapping[str, int]) -> dict[str, int]:
    return {n: a if n == CPU else -(-a // MILLI) for n, a in requests.items()}


def claim_json(claim: PlannedClaim) -> Json:
    return {
        "nodePool": claim.pool,
        "pods": [p.name for p in claim.pods],
        "requirements": requirements_json(claim),
        "instanceTypes": [t.name for t in claim.instance_types],
        "requests": requests_json(claim.requests),
        "capacityTypes": list(claim.capacity_types),
        "price": claim.price,
        **({"minValuesRelaxed": True} if claim.min_values_relaxed else {}),
    }


def result_json(result: SchedulingResult, refused: Mapping[str, str]) -> Json:
    """A result in the recorded format."""
    deferred = sorted(uid for uid, f in result.failures.items() if f.is_deferred)
    return {
        "claims": [claim_json(c) for c in result.claims],
        "existing": {n: [p.name for p in pods] for n, pods in result.existing.items()},
        "errors": {uid: str(f) for uid, f in result.failures.items()},
        **({"deferred": deferred} if deferred else {}),
        **({"rejected": dict(refused)} if refused else {}),
    }
