"""
CapacityBuffers as virtual pods, which keep capacity free for future pods. Pure.

A buffer names a pod template or a workload. :func:`resolution` says how many pods it stands for,
:func:`virtual_pods` makes them, and they are scheduled like pending pods, after validation. After
the pass :func:`placements` counts where they are, :func:`provisioning_condition` is the condition
of the buffer about it, and :func:`nodes_with_buffers` names the nodes that are not empty because of
them. Virtual pods are in no API: they are never nominated, bound, counted in metrics or reported as
failed (:func:`is_virtual`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from moxwell.api.karpenter.capacity import CapacityBuffer, CapacityBufferSpec
from moxwell.scheduling.packing.pod_parsing import pod_requests, pod_shape
from moxwell.scheduling.packing.pods import PodDemand, pairs
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.resource_lists import offered

Json = Mapping[str, Any]
VIRTUAL_POD = "karpenter.sh/capacity-buffer-fake-pod"
BUFFER_NAME = "karpenter.sh/capacity-buffer-name"
BUFFER_NAMESPACE = "karpenter.sh/capacity-buffer-namespace"
READY_FOR_PROVISIONING = "ReadyForProvisioning"
PROVISIONING = "Provisioning"
_LOWEST_PRIORITY = -(2**31)
_MOST_REPLICAS = 2**31 - 1
MOST_VIRTUAL_PODS = 10_000  # of one buffer: more would take the memory of the process
_WORKLOADS = {
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
    "ReplicaSet": "replicasets.apps",
}


@dataclass(frozen=True, slots=True)
class BufferCondition:
    """Status, reason and message of a condition of a CapacityBuffer."""

    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BufferResolution:
    """What a buffer stands for: ``ready`` is its condition, ``template`` is None unless ready."""

    ready: BufferCondition
    template: Json | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class BufferPlacement:
    """How many virtual pods of a buffer are on existing nodes, on new ones, and on none."""

    existing: int = 0
    new: int = 0
    failed: int = 0


def resolution(buffer: CapacityBuffer, found: Json | None) -> BufferResolution:
    """
    Resolve the reference of a buffer.

    ``found`` is the PodTemplate or workload that the buffer names, in its namespace; None if there
    is none.
    """
    spec = buffer.spec
    if refusal := _reference_refusal(spec):
        return BufferResolution(BufferCondition(False, "ResolutionFailed", refusal))
    if found is None:
        return BufferResolution(_not_found(spec))
    scalable = spec.pod_template_ref is None
    inner: Json = found.get("spec") or {}
    template: Json = (inner if scalable else found).get("template") or {}
    running = inner.get("replicas") if scalable else 0
    replicas = buffer_replicas(spec, template, 1 if running is None else running)
    ready = BufferCondition(True, "Resolved", "Pod template resolved successfully")
    return BufferResolution(ready, template, replicas)


def _reference_refusal(spec: CapacityBufferSpec) -> str:
    ref = spec.scalable_ref
    if spec.pod_template_ref is not None:
        return ""
    if ref is None:
        return "Neither podTemplateRef nor scalableRef is set"
    if ref.api_group not in ("", "apps"):
        return f'unsupported scalableRef API group "{ref.api_group}"'
    return "" if ref.kind in _WORKLOADS else f'unsupported kind "{ref.kind}"'


def _not_found(spec: CapacityBufferSpec) -> BufferCondition:
    if spec.pod_template_ref is not None:
        text = f'podtemplates "{spec.pod_template_ref.name}" not found'
        return BufferCondition(False, "PodTemplateNotFound", text)
    assert spec.scalable_ref is not None
    plural, name = _WORKLOADS[spec.scalable_ref.kind], spec.scalable_ref.name
    return BufferCondition(False, "ScalableRefNotFound", f'{plural} "{name}" not found')


def buffer_replicas(spec: CapacityBufferSpec, template: Json, running: int) -> int:
    """
    How many pods a buffer stands for.

    The larger of ``replicas`` and ``percentage`` of the ``running`` replicas of a workload, at most
    what ``limits`` allow; without either, what ``limits`` allow.
    """
    wanted = [] if spec.replicas is None else [spec.replicas]
    if spec.percentage is not None and running > 0:
        wanted.append(ceil(running * spec.percentage / 100))
    most = _within_limits(spec, template)
    if most is None:
        return max(wanted, default=0)
    return min(max(wanted), most) if wanted else most


def _within_limits(spec: CapacityBufferSpec, template: Json) -> int | None:
    """How many pods the limits allow; None if they name nothing that the pods request."""
    requests = pod_requests(template)
    limits = offered(spec.limits)
    counts = [
        limits[name] // amount for name, amount in requests.items() if amount and name in limits
    ]
    return min((*counts, _MOST_REPLICAS)) if counts else None


def virtual_pods(
    buffer: CapacityBuffer, template: Json, replicas: int, now: float
) -> tuple[PodDemand, ...]:
    """
    The pods that a buffer stands for, at most :data:`MOST_VIRTUAL_PODS`.

    Claims of volumes in the template are left out, because no claim exists for these pods.
    """
    meta = buffer.metadata
    shape = pod_shape(template, meta.namespace)
    marks = {VIRTUAL_POD: "true", BUFFER_NAME: meta.name, BUFFER_NAMESPACE: meta.namespace}
    return tuple(
        PodDemand(
            f"{meta.uid}-{number}",
            f"capacity-buffer-{meta.name}-{number}",
            shape,
            now,
            annotations=pairs(marks),
            priority=_LOWEST_PRIORITY,
        )
        for number in range(1, min(replicas, MOST_VIRTUAL_PODS) + 1)
    )


def is_virtual(pod: PodDemand) -> bool:
    """Whether a pod stands for free capacity of a buffer."""
    return (VIRTUAL_POD, "true") in pod.annotations


def buffer_key(pod: PodDemand) -> str:
    """``namespace/name`` of the buffer of a virtual pod; empty for another pod."""
    marks = dict(pod.annotations)
    if not is_virtual(pod):
        return ""
    return f"{marks.get(BUFFER_NAMESPACE, '')}/{marks.get(BUFFER_NAME, '')}"


def placements(pods: Iterable[PodDemand], result: SchedulingResult) -> dict[str, BufferPlacement]:
    """Where the virtual pods among the scheduled ones are, by key of their buffer."""
    new = {p.uid for c in result.claims for p in c.pods}
    existing = {p.uid for placed in result.existing.values() for p in placed}
    counts: dict[str, list[int]] = {}
    for pod in filter(is_virtual, pods):
        found = counts.setdefault(buffer_key(pod), [0, 0, 0])
        found[0 if pod.uid in existing else 1 if pod.uid in new else 2] += 1
    return {key: BufferPlacement(*found) for key, found in counts.items()}


def provisioning_condition(
    ready: bool, replicas: int | None, placement: BufferPlacement | None
) -> BufferCondition | None:
    """The condition Provisioning of a buffer; None leaves it as it is."""
    if not ready:
        return BufferCondition(
            False, "NotReadyForProvisioning", "Buffer is not ReadyForProvisioning"
        )
    if not replicas:
        return BufferCondition(False, "BufferEmpty", "Buffer has zero desired replicas")
    if placement is None:
        return None
    if placement.new or placement.failed:
        text = f"{placement.new}/{replicas} virtual pods required new capacity"
        return BufferCondition(False, "RequiresNewCapacity", f"{text}, {placement.failed} failed")
    if placement.existing == replicas:
        text = f"All {replicas} virtual pods fit on existing capacity"
        return BufferCondition(True, "FitsExistingCapacity", text)
    return None


def nodes_with_buffers(result: SchedulingResult) -> frozenset[str]:
    """The existing nodes that hold virtual pods, which emptiness must leave alone."""
    return frozenset(_holding(result))


def _holding(result: SchedulingResult) -> Iterator[str]:
    return (name for name, pods in result.existing.items() if any(map(is_virtual, pods)))
