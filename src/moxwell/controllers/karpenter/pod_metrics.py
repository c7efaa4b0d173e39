"""
Metrics of pods under Karpenter's names, and the stages from a pending pod to a bound one.

States and waiting times are computed from the caches when they are asked for. Durations are
observed once, when a pod that this process saw pending is bound, and when it is ready.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, Summary
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from moxwell.api.karpenter.nodeclaims import INITIALIZED, LAUNCHED, REGISTERED, NodeClaim
from moxwell.api.meta import parse_time
from moxwell.clock import Clock
from moxwell.controllers.karpenter.pod_decisions import PodDecisionTimes
from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.controllers.karpenter.state.objects import ScaledCluster
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
)

Json = Mapping[str, Any]
BY_NODE_NAME = "karpenter.metrics.node-name"
STATE_LABELS = (
    "name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch",
    "capacity_type", "instance_type", "phase", "ready", "managed",
)  # fmt: skip
BUCKETS = (
    0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120,
    150, 300, 450, 600,
)  # fmt: skip


_NAMES = ("name", "namespace")
_DECIDED = "from the first decision that the pod has a place until it"
WAITING = {  # gauges ``karpenter_pods_…_time_seconds`` of pods that wait
    "unbound": "The time from pod creation until the pod is bound.",
    "unstarted": "The time from pod creation until the pod is running.",
    "provisioning_unbound": f"The time {_DECIDED} is bound.",
    "provisioning_unstarted": f"The time {_DECIDED} is running.",
    "provisioning_scheduling_undecided": "The time from seeing the pod until it is decided about.",
}


class PodStates(Collector):
    """The state of every pod, and how long it waits; one object per registry."""

    def __init__(
        self,
        cluster: ScaledCluster,
        clock: Clock,
        registry: CollectorRegistry,
        times: PodDecisionTimes,
    ) -> None:
        self._cluster, self._clock, self._times = cluster, clock, times
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # registering must not read the caches

    def collect(self) -> Iterable[GaugeMetricFamily]:
        state = GaugeMetricFamily(
            "karpenter_pods_state", "The current state of pods.", labels=STATE_LABELS
        )
        waiting = {name: _waiting(name, text) for name, text in WAITING.items()}
        nodes = {str(n["metadata"]["name"]): n for n in self._cluster.nodes.list()}
        now = self._clock.now()
        for pod in self._cluster.pods.list():
            node = nodes.get(str((pod.get("spec") or {}).get("nodeName") or ""), {})
            state.add_metric(state_labels(pod, node), 1)
            who = [str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace", ""))]
            for name, since in waiting_since(pod, self._times):
                waiting[name].add_metric(who, (now - since).total_seconds())
        return state, *waiting.values()


def _waiting(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"karpenter_pods_{name}_time_seconds", text, labels=_NAMES)


def waiting_since(pod: Json, times: PodDecisionTimes) -> Iterator[tuple[str, datetime]]:
    """The states that a pod waits in, and since when; none if it has started."""
    created, key = created_at(pod), pod_key(pod)
    if phase_of(pod) != "Pending" or created is None:
        return
    placeable = times.placeable_since(key)
    yield "unstarted", created
    if placeable is not None:
        yield "provisioning_unstarted", placeable
    if true_since(pod, "PodScheduled") is not None:
        return
    yield "unbound", created
    if placeable is not None:
        yield "provisioning_unbound", placeable
    undecided = times.undecided_since(key)
    if undecided is not None:
        yield "provisioning_scheduling_undecided", undecided


class PodDurations:
    """How long pods take until they are bound and ready, by stage."""

    def __init__(
        self, cluster: ScaledCluster, registry: CollectorRegistry, times: PodDecisionTimes
    ) -> None:
        self._times = times
        self._claims: Cache[NodeClaim] = cluster.claims
        self._nodes: Cache[Any] = cluster.nodes
        self._claims.add_index(BY_NODE_NAME, lambda c: (c.status.node_name,))
        self._unbound: set[Key] = set()
        self._unstarted: set[Key] = set()
        self._startup = Summary(
            "karpenter_pods_startup_duration_seconds",
            "The time from pod creation until the pod is running.",
            registry=registry,
        )
        self._bound = _histogram("pods_bound", "from pod creation until the pod is bound", registry)
        self._provisioned = _histogram("pods_provisioning_bound", f"{_DECIDED} binds", registry)
        self._started = _histogram("pods_provisioning_startup", f"{_DECIDED} is ready", registry)
        self._stages = Histogram(
            "moxwell_pod_provisioning_stage_duration_seconds",
            "The stages from a pending pod to a bound one, for pods that got a new node.",
            ("stage", "nodepool"),
            registry=registry,
            buckets=BUCKETS,
        )
        cluster.pods.subscribe(self._changed)

    def _changed(self, before: Any, after: Any, listed: bool) -> None:
        pod = after if after is not None else before
        key = Key(str(pod["metadata"].get("namespace", "")), str(pod["metadata"]["name"]))
        if after is None:
            self._unbound.discard(key)
            self._unstarted.discard(key)
            self._times.forget(pod_key(pod))
            return
        if phase_of(pod) == "Pending" and true_since(pod, "Ready") is None:
            self._unstarted.add(key)
            if true_since(pod, "PodScheduled") is None:
                self._unbound.add(key)
        bound, ready = true_since(pod, "PodScheduled"), true_since(pod, "Ready")
        if bound is not None and key in self._unbound:
            self._unbound.discard(key)
            self._observe_bound(pod, bound)
        if key in self._unstarted and (ready is not None or phase_of(pod) in _ENDED):
            self._unstarted.discard(key)
            if ready is not None and phase_of(pod) not in _ENDED:
                self._observe_ready(pod, ready)
            self._times.forget(pod_key(pod))

    def _observe_bound(self, pod: Json, bound: datetime) -> None:
        created, claim = created_at(pod), self._claim_of(pod)
        if created is None:
            return
        self._bound.observe(_seconds(created, bound))
        if (placeable := self._times.placeable_since(pod_key(pod))) is not None:
            self._provisioned.observe(_seconds(placeable, bound))
        if claim is None:
            return
        pool = claim.metadata.labels.get(NODE_POOL, "")
        node = self._nodes.find(Key("", claim.status.node_name))
        joined = created_at(node) if node is not None else None
        for stage, seconds in stages(created, claim, bound, joined):
            self._stages.labels(stage, pool).observe(seconds)

    def _observe_ready(self, pod: Json, ready: datetime) -> None:
        created, placeable = created_at(pod), self._times.placeable_since(pod_key(pod))
        if created is not None:
            self._startup.observe(_seconds(created, ready))
        if placeable is not None:
            self._started.observe(_seconds(placeable, ready))

    def _claim_of(self, pod: Json) -> NodeClaim | None:
        """The claim that was made for the pod and whose node it got."""
        node = (pod.get("spec") or {}).get("nodeName")
        found = self._claims.by(BY_NODE_NAME, str(node)) if node else ()
        return next((c for c in found if pod["metadata"]["uid"] in recorded(c)), None)


_ENDED = ("Succeeded", "Failed")


def _histogram(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        f"karpenter_{name}_duration_seconds",
        f"The time {text}.",
        registry=registry,
        buckets=BUCKETS,
    )


def stages(
    created: datetime, claim: NodeClaim, bound: datetime, joined: datetime | None = None
) -> Iterator[tuple[str, float]]:
    """
    The stages between the creation of a pod and its binding, in seconds.

    The guest of a launched claim runs; its kubelet has ``joined`` when it creates the Node.
    A stage that had not ended when the pod was bound is left out: pods may be bound to a node that
    is not initialized.
    """
    conditions = {c.type: c.last_transition_time for c in claim.status.conditions
                  if c.status == "True"}  # fmt: skip
    moments = (
        ("decided", claim.metadata.creation_timestamp),
        ("launched", conditions.get(LAUNCHED)),
        ("joined", joined),
        ("registered", conditions.get(REGISTERED)),
        ("initialized", conditions.get(INITIALIZED)),
        ("bound", bound),
    )
    last = created
    for stage, moment in moments:
        if moment is not None and moment <= bound:
            yield stage, _seconds(last, moment)
            last = max(last, moment)


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())


def phase_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def pod_key(pod: Json) -> str:
    meta = pod["metadata"]
    return f"{meta.get('namespace') or 'default'}/{meta['name']}"


def created_at(pod: Json) -> datetime | None:
    text = pod["metadata"].get("creationTimestamp")
    return parse_time(text) if text else None


def true_since(pod: Json, type_: str) -> datetime | None:
    """When a condition became true; None if it is not."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == type_ and each.get("status") == "True":
            text = each.get("lastTransitionTime")
            return parse_time(text) if text else None
    return None


def state_labels(pod: Json, node: Json) -> list[str]:
    """The values of ``STATE_LABELS``."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    return [
        str(meta["name"]),
        str(meta.get("namespace", "")),
        _owner(meta),
        str(spec.get("nodeName") or ""),
        _text(bool(spec.get("nodeName"))),
        *(str(labels.get(k, "")) for k in (NODE_POOL, ZONE, ARCH, CAPACITY_TYPE, INSTANCE_TYPE)),
        phase_of(pod),
        _text(true_since(pod, "Ready") is not None),
        _text(NODE_POOL in labels),
    ]


def _owner(meta: Json) -> str:
    """The path of the first owner, as Karpenter writes it."""
    for each in meta.get("ownerReferences") or ():
        kind = str(each["kind"]).lower()
        where = f"/apis/{each['apiVersion']}/namespaces/{meta.get('namespace', '')}"
        return f"{where}/{kind}s/{each['name']}"
    return ""


def _text(value: bool) -> str:
    return "true" if value else "false"
