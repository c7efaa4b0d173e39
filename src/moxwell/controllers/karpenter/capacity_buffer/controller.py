"""``karpenter.capacitybuffer``: resolves buffers and describes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.capacity import (
    ACTIVE_CAPACITY,
    BufferTemplateRef,
    CapacityBuffer,
    CapacityBufferStatus,
)
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.buffer_store import (
    MOST_REPLICAS,
    BufferStore,
    ResolvedBuffer,
)
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch
from moxwell.scheduling.packing.buffers import (
    PROVISIONING,
    READY_FOR_PROVISIONING,
    BufferCondition,
    BufferPlacement,
    BufferResolution,
    provisioning_condition,
    resolution,
    virtual_pods,
)
from moxwell.scheduling.packing.pod_validation import pod_refusal

NAME = "karpenter.capacitybuffer"
RECHECK_SECONDS = 30.0  # of what is not watched: ReplicaSets, and references that do not work
WATCHED_SECONDS = 300.0
Json = dict[str, Any]
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
WORKLOADS = {
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
    "StatefulSet": Resource("apps", "v1", "statefulsets", "StatefulSet"),
    "ReplicaSet": Resource("apps", "v1", "replicasets", "ReplicaSet"),
}


@dataclass(frozen=True, slots=True)
class ObservedBuffer:
    """What a pass observes: the resolution, the generation of the template, the last placement."""

    resolved: BufferResolution
    generation: int | None = None
    placement: BufferPlacement | None = None


class CapacityBufferReconciler(
    Reconciler[CapacityBuffer, ObservedBuffer, Done, CapacityBufferStatus]
):
    """One pass per buffer."""

    kind = CapacityBuffer

    def __init__(
        self,
        store: BufferStore,
        trigger: Callable[[str], None],
        buffers: Cache[CapacityBuffer],
    ) -> None:
        """``trigger`` lets the provisioner decide soon."""
        self._store, self._trigger, self._buffers = store, trigger, buffers
        watched = (POD_TEMPLATES, WORKLOADS["Deployment"], WORKLOADS["StatefulSet"])
        self.watches = tuple(
            Watch(kind, partial(self._buffers_of, kind), spec_changed) for kind in watched
        )

    def _buffers_of(self, kind: Resource, obj: Json) -> Iterable[Key]:
        """The buffers that refer to a template or workload."""
        meta = obj["metadata"]
        return [
            Key(b.metadata.namespace, b.metadata.name)
            for b in self._buffers.list(str(meta.get("namespace", "")))
            if reference_of(b) == (kind, meta["name"])
        ]

    async def see(self, obj: CapacityBuffer, reader: Reader) -> ObservedBuffer:
        found = await _referenced(obj, reader)
        resolved, key = resolved_buffer(obj, found), Key(obj.metadata.namespace, obj.metadata.name)
        known = ResolvedBuffer(obj, resolved.template, resolved.replicas or 0)
        self._store.resolve(key, known)
        self._trigger(obj.metadata.uid)
        generation = None
        if found is not None and obj.spec.pod_template_ref is not None:
            generation = int(found["metadata"].get("generation") or 0)
        return ObservedBuffer(resolved, generation, self._store.placement(key))

    def plan(self, obj: CapacityBuffer, seen: ObservedBuffer) -> Done:
        found = reference_of(obj)
        watched = found is not None and found[0] is not WORKLOADS["ReplicaSet"]
        return Done(requeue_after=WATCHED_SECONDS if watched else RECHECK_SECONDS)

    async def act(self, move: Done) -> None:
        """Nothing is written but the status."""

    def describe(
        self, obj: CapacityBuffer, seen: ObservedBuffer, move: Done
    ) -> CapacityBufferStatus:
        return buffer_status(obj, seen)


async def _referenced(buffer: CapacityBuffer, reader: Reader) -> dict[str, Any] | None:
    found = reference_of(buffer)
    if found is None:
        return None
    return await reader.find(*found, buffer.metadata.namespace)


def reference_of(buffer: CapacityBuffer) -> tuple[Resource, str] | None:
    """What a buffer refers to; None if it is of a kind that is not supported."""
    template, ref = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
    if template is not None:
        return POD_TEMPLATES, template.name
    if ref is None or ref.kind not in WORKLOADS or ref.api_group not in ("", "apps"):
        return None
    return WORKLOADS[ref.kind], ref.name


def spec_changed(old: Json | None, new: Json | None) -> bool:
    """Whether a template or workload changed in more than its status."""
    if old is None or new is None:
        return True
    kept = ("template", "spec")
    return any(old.get(key) != new.get(key) for key in kept)


def resolved_buffer(buffer: CapacityBuffer, found: dict[str, Any] | None) -> BufferResolution:
    """What a buffer stands for; a template that no node can run is not ready. Pure."""
    strategy = buffer.spec.provisioning_strategy
    if strategy != ACTIVE_CAPACITY:
        text = f'spec.provisioningStrategy: "{strategy}" is not supported; use {ACTIVE_CAPACITY}'
        return _failed(text)
    try:
        result = resolution(buffer, found)
        if result.template is None:
            return result
        if refusal := pod_refusal(result.template, label_rules()):
            return _failed(f"the pod template cannot be scheduled: {refusal}")
        virtual_pods(buffer, result.template, 1, 0.0)  # raises if it cannot be read
    except (MoxwellError, KeyError, TypeError, ValueError) as error:
        return _failed(f"the pod template cannot be read: {error}")
    if (result.replicas or 0) <= MOST_REPLICAS:
        return result
    text = f"{result.replicas} replicas are more than {MOST_REPLICAS}, which are kept"
    return replace(result, replicas=MOST_REPLICAS, ready=BufferCondition(True, "Resolved", text))


def _failed(text: str) -> BufferResolution:
    return BufferResolution(BufferCondition(False, "ResolutionFailed", text))


def buffer_status(buffer: CapacityBuffer, seen: ObservedBuffer) -> CapacityBufferStatus:
    """The status of a buffer. Pure."""
    resolved, ref = seen.resolved, buffer.spec.pod_template_ref
    state = provisioning_condition(resolved.ready.status, resolved.replicas, seen.placement)
    generation = buffer.metadata.generation
    ready = _condition(READY_FOR_PROVISIONING, resolved.ready, generation)
    made = () if state is None else (_condition(PROVISIONING, state, generation),)
    by_template = ref is not None and resolved.template is not None
    return CapacityBufferStatus(
        pod_template_ref=BufferTemplateRef(name=ref.name) if ref and by_template else None,
        pod_template_generation=seen.generation if by_template else None,
        replicas=resolved.replicas,
        provisioning_strategy=buffer.spec.provisioning_strategy,
        conditions=(ready, *made),
    )


def _condition(type_: str, given: BufferCondition, generation: int) -> Condition:
    made = Condition(
        type=type_,
        status="True" if given.status else "False",
        reason=given.reason,
        message=given.message,
    )
    return msgspec.structs.replace(made, observed_generation=generation)
