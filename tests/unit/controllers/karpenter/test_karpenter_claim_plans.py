"""The decisions about node claims and their nodes, as tables."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.claim.deletion import plan_deletion
from moxwell.controllers.karpenter.claim.observed import LaunchRecord, ObservedNodeClaim
from moxwell.controllers.karpenter.claim.plan import plan_claim
from moxwell.controllers.karpenter.claim.registration import uninitialized_reason
from moxwell.controllers.karpenter.drain import drain_state, tiers
from moxwell.controllers.karpenter.eligibility.plan import (
    ObservedEligibility,
    consolidatable_at,
    drift_reason,
    last_pod_event,
)
from moxwell.controllers.karpenter.garbage.plan import KarpenterInventory, leftovers
from moxwell.controllers.karpenter.names import FINALIZER, HASH, HASH_VERSION
from moxwell.controllers.karpenter.node_termination import NodeTermination, TerminationPhase
from moxwell.controllers.karpenter.provider import (
    InstanceState,
    LaunchFailure,
    NodeInstance,
)
from moxwell.controllers.karpenter.repair.plan import (
    POLICIES,
    ObservedNodeHealth,
    plan_repair,
)
from moxwell.testing.machine_provider import default_types
from moxwell.testing.node_claims import claim_object, pod_object, pool_object

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ID = "proxmox://region-1/101"


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def claim(*, created: float = -10, **given: Any) -> NodeClaim:
    conditions = [
        {"type": t, "status": "True", "reason": t, "message": "", "lastTransitionTime": at(since)}
        for t, since in given.pop("true", {}).items()
    ]
    meta = {"uid": "u-1", "creationTimestamp": at(created)} | given.pop("metadata", {})
    status = {"conditions": conditions} | given.pop("status", {})
    tree = claim_object("c-1", metadata=meta, **given)
    return msgspec.convert(tree | {"status": status}, NodeClaim)


def instance(state: InstanceState = InstanceState.LAUNCHED, **given: Any) -> NodeInstance:
    known = {"provider_id": ID} if state is InstanceState.LAUNCHED else {}
    return NodeInstance("c-1", "u-1", state, **(known | given))


def node(ready: str = "True", *, since: float = -10, **given: Any) -> Node:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": at(since)}
    status = {"conditions": [condition]} | given.pop("status", {})
    meta = {"name": "c-1", "uid": "n-1"} | given.pop("metadata", {})
    spec = {"providerID": ID} | given
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Node)


def pod(name: str = "web", **given: Any) -> Pod:
    status = {"phase": "Running", "startTime": at(-100)} | given.pop("status", {})
    return msgspec.convert(pod_object(name, "c-1", **given) | {"status": status}, Pod)


REGISTERED = {"karpenter.sh/registered": "true"}
INITIALIZED = REGISTERED | {"karpenter.sh/initialized": "true"}
RECORD = LaunchRecord(provider_id=ID, node_name="c-1")
FULL = {"failure": LaunchFailure.INSUFFICIENT_CAPACITY, "message": "full"}
BROKEN = {"failure": LaunchFailure.LAUNCH_FAILED, "message": "no template"}
MOVES: dict[str, tuple[NodeClaim, dict[str, Any], str]] = {
    "new": (claim(), {}, "LaunchMachine"),
    "launch under way": (claim(), {"instance": instance(InstanceState.PENDING)}, "LaunchMachine"),
    "launch takes too long": (
        claim(created=-301),
        {"instance": instance(InstanceState.PENDING)},
        "DeleteClaim launch_timeout",
    ),
    "a clone takes long": (
        claim(created=-301),
        {"instance": instance(InstanceState.PENDING, in_progress=True)},
        "LaunchMachine",
    ),
    "no capacity": (
        claim(),
        {"instance": instance(InstanceState.FAILED, **FULL)},
        "DeleteClaim insufficient_capacity",
    ),
    "launch failed": (
        claim(),
        {"instance": instance(InstanceState.FAILED, **BROKEN)},
        "LaunchMachine",
    ),
    "machine is deleted meanwhile": (
        claim(),
        {"instance": instance(InstanceState.TERMINATING)},
        "Wait InstanceTerminating",
    ),
    "labels of the launch": (claim(), {"instance": instance(labels={"zone": "a"})}, "Writes"),
    "no node yet": (claim(), {"instance": instance()}, "Wait NodeNotFound"),
    "no node for too long": (
        claim(created=-901),
        {"instance": instance()},
        "DeleteClaim registration_timeout",
    ),
    "no node for a while after a long launch": (
        claim(created=-901),
        {
            "instance": instance(),
            "record": LaunchRecord(provider_id=ID, launched=NOW + timedelta(seconds=-899)),
        },
        "Wait NodeNotFound",
    ),
    "no node for too long after a long launch": (
        claim(created=-2000),
        {
            "instance": instance(),
            "record": LaunchRecord(provider_id=ID, launched=NOW + timedelta(seconds=-901)),
        },
        "DeleteClaim registration_timeout",
    ),
    "the machine of a registered claim is gone: it is not launched again": (
        claim(created=-5000),
        {"record": RECORD},
        "Wait NodeNotFound",
    ),
    "two nodes": (
        claim(),
        {"instance": instance(), "nodes": (node(), node())},
        "Wait MultipleNodesFound",
    ),
    "node joined": (claim(), {"instance": instance(), "nodes": (node(),)}, "RegisterNode"),
    "node is not ready": (
        claim(),
        {"instance": instance(), "nodes": (node("False", metadata={"labels": REGISTERED}),)},
        "Wait Uninitialized",
    ),
    "node is ready": (
        claim(),
        {"instance": instance(), "nodes": (node(metadata={"labels": REGISTERED}),)},
        "Writes",
    ),
    "initialized": (
        claim(),
        {"instance": instance(), "nodes": (node(metadata={"labels": INITIALIZED}),)},
        "Done",
    ),
    "expired": (
        claim(created=-3601, expireAfter="1h"),
        {"instance": instance(), "nodes": (node(metadata={"labels": INITIALIZED}),)},
        "DeleteClaim expired",
    ),
    "never expires": (
        claim(created=-(10**9), expireAfter="Never"),
        {"instance": instance(), "nodes": (node(metadata={"labels": INITIALIZED}),)},
        "Done",
    ),
}


def text_of(move: Any) -> str:
    detail = getattr(move, "why", "") or (move.reason if type(move).__name__ == "Wait" else "")
    return f"{type(move).__name__} {detail}".strip()


@pytest.mark.parametrize(("given", "seen", "wanted"), MOVES.values(), ids=MOVES)
def test_the_next_move_of_a_node_claim(given: NodeClaim, seen: dict[str, Any], wanted: str) -> None:
    assert text_of(plan_claim(given, ObservedNodeClaim(now=NOW, **seen))) == wanted


DELETED = {"deletionTimestamp": at(-60)}
OURS = {"finalizers": [FINALIZER]}
DELETIONS: dict[str, tuple[NodeClaim, dict[str, Any], str]] = {
    "grace period": (
        claim(metadata=DELETED, terminationGracePeriod="10m"),
        {"nodes": (node(metadata=OURS),)},
        "patch NodeClaim c-1",
    ),
    "node stays": (claim(metadata=DELETED), {"nodes": (node(metadata=OURS),)}, "delete Node c-1"),
    "node ends": (
        claim(metadata=DELETED),
        {"nodes": (node(metadata=OURS | DELETED),), "instance": instance()},
        "Wait DeletingNode",
    ),
    "a node that is not ours is not waited for": (
        claim(metadata=DELETED),
        {"nodes": (node(),), "instance": instance()},
        "TerminateMachine",
    ),
    "machine": (claim(metadata=DELETED), {"instance": instance()}, "TerminateMachine"),
    "nothing left": (claim(metadata=DELETED), {}, "EndClaim"),
}


@pytest.mark.parametrize(("given", "seen", "wanted"), DELETIONS.values(), ids=DELETIONS)
def test_the_next_move_of_a_node_claim_that_is_deleted(
    given: NodeClaim, seen: dict[str, Any], wanted: str
) -> None:
    move = plan_deletion(given, ObservedNodeClaim(now=NOW, **seen))
    assert wanted in (text_of(move), str(move))


GPU: dict[str, Any] = {"resources": {"requests": {"example.com/gpu": "1"}}}
UNINITIALIZED: dict[str, tuple[NodeClaim, Node, str]] = {
    "ready": (claim(), node(), ""),
    "not ready": (claim(), node("Unknown"), "NodeNotReady"),
    "startup taint": (
        claim(startupTaints=[{"key": "cni", "effect": "NoSchedule"}]),
        node(taints=[{"key": "cni", "effect": "NoSchedule"}]),
        "StartupTaintsExist",
    ),
    "ephemeral taint": (
        claim(),
        node(taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
        "KnownEphemeralTaintsExist",
    ),
    "device plugin": (claim(**GPU), node(), "ResourceNotRegistered"),
    "device": (claim(**GPU), node(status={"allocatable": {"example.com/gpu": "1"}}), ""),
}


@pytest.mark.parametrize(("given", "joined", "wanted"), UNINITIALIZED.values(), ids=UNINITIALIZED)
def test_a_node_is_initialized_when_nothing_is_missing(
    given: NodeClaim, joined: Node, wanted: str
) -> None:
    found = uninitialized_reason(given, joined)
    assert (found[0] if found else "") == wanted


def owned(kind: str) -> dict[str, Any]:
    version = "v1" if kind == "Node" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": "x", "uid": "x"}
    return {"ownerReferences": [owner]}


CRITICAL: dict[str, Any] = {"priorityClassName": "system-node-critical"}


def test_tiers_of_the_drain() -> None:
    pods = [
        pod("critical-daemon", metadata=owned("DaemonSet"), **CRITICAL),
        pod("critical", **CRITICAL),
        pod("daemon", metadata=owned("DaemonSet")),
        pod("web"),
    ]
    found = [[p.metadata.name for p in tier] for tier in tiers(pods)]
    assert found == [["web"], ["daemon"], ["critical"], ["critical-daemon"]]


TOLERATION = {"key": "karpenter.sh/disrupted", "operator": "Exists"}
PROTECTED = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
BRIEFLY = {"annotations": {"karpenter.sh/do-not-disrupt": "50s"}}
DRAINS: dict[str, tuple[Pod, float | None, tuple[int, int, int]]] = {
    "evicted": (pod(), None, (1, 1, 0)),
    "over": (pod(status={"phase": "Succeeded"}), None, (0, 0, 0)),
    "static": (pod(metadata=owned("Node")), None, (0, 0, 0)),
    "tolerates": (pod(tolerations=[TOLERATION]), None, (0, 0, 0)),
    "protected": (pod(metadata=PROTECTED), None, (1, 0, 0)),
    "protected for a time that has passed": (pod(metadata=BRIEFLY), None, (1, 1, 0)),
    "terminating": (pod(metadata={"deletionTimestamp": at(10)}), None, (1, 0, 0)),
    "stuck": (pod(metadata={"deletionTimestamp": at(-61)}), None, (0, 0, 0)),
    "the deadline is far": (pod(metadata=PROTECTED), 100, (1, 0, 0)),
    "the deadline is near": (pod(metadata=PROTECTED), 20, (1, 0, 1)),
    "the deadline has passed": (pod(metadata=PROTECTED), -20, (1, 0, 1)),
    "terminating beyond the deadline": (
        pod(metadata={"deletionTimestamp": at(25)}),
        20,
        (1, 0, 1),
    ),
}


@pytest.mark.parametrize(("given", "deadline", "wanted"), DRAINS.values(), ids=DRAINS)
def test_what_the_drain_does_with_a_pod(
    given: Pod, deadline: float | None, wanted: tuple[int, int, int]
) -> None:
    end = None if deadline is None else NOW + timedelta(seconds=deadline)
    found = drain_state([given], NOW, end)
    assert (found.waiting, len(found.evictable), len(found.expiring)) == wanted
    assert all(e.grace_seconds >= 1 for e in found.expiring)


def test_a_node_drains_detaches_and_terminates_in_this_order() -> None:
    ending = node(metadata=DELETED)
    fresh = node(metadata={"deletionTimestamp": at(-1)})

    def phase(given: Node, pods: tuple[Pod, ...] = (), attached: tuple[str, ...] = ()) -> str:
        return NodeTermination(NOW, given, claim(), instance(), pods, attached).phase

    assert phase(ending, (pod(),), ("va",)) == TerminationPhase.DRAINING
    assert phase(fresh) == TerminationPhase.DRAINING
    assert phase(ending, (), ("va",)) == TerminationPhase.DETACHING
    assert phase(ending) == TerminationPhase.TERMINATING


def pool(**spec: Any) -> NodePool:
    meta = {"annotations": {HASH: "a", HASH_VERSION: "v"}}
    return msgspec.convert(pool_object(metadata=meta, **spec), NodePool)


def hashed(value: str, version: str = "v", **labels: str) -> dict[str, Any]:
    return {"annotations": {HASH: value, HASH_VERSION: version}, "labels": labels}


LAUNCHED = {"Launched": -100.0}
SMALL = {
    "node.kubernetes.io/instance-type": "t1.2VCPU-4GB",
    "topology.kubernetes.io/zone": "host-1",
    "karpenter.sh/capacity-type": "on-demand",
}
ONLY_A = {"key": "zone", "operator": "In", "values": ["a"]}
IN_A = pool(template={"requirements": [ONLY_A]})
DRIFTS: dict[str, tuple[NodeClaim, dict[str, Any], str]] = {
    "equal": (claim(true=LAUNCHED, metadata=hashed("a")), {"pool": pool()}, ""),
    "not launched": (claim(metadata=hashed("b")), {"pool": pool()}, ""),
    "without pool": (claim(true=LAUNCHED, metadata=hashed("b")), {}, ""),
    "hash": (claim(true=LAUNCHED, metadata=hashed("b")), {"pool": pool()}, "NodePoolDrifted"),
    "hash of another version": (
        claim(true=LAUNCHED, metadata=hashed("b", "v3")),
        {"pool": pool()},
        "",
    ),
    "requirements hold": (
        claim(true=LAUNCHED, metadata=hashed("a", zone="a")),
        {"pool": IN_A},
        "",
    ),
    "requirements": (
        claim(true=LAUNCHED, metadata=hashed("a", zone="b")),
        {"pool": IN_A},
        "RequirementsDrifted",
    ),
    "offered": (
        claim(true=LAUNCHED, metadata={"labels": SMALL}),
        {"pool": pool(), "instance_types": default_types()},
        "",
    ),
    "not offered any more": (
        claim(true=LAUNCHED, metadata={"labels": SMALL}),
        {"pool": pool(), "instance_types": default_types()[1:]},
        "InstanceTypeNotFound",
    ),
    "not offered in its zone": (
        claim(true=LAUNCHED, metadata={"labels": SMALL | {"topology.kubernetes.io/zone": "x"}}),
        {"pool": pool(), "instance_types": default_types()},
        "InstanceTypeNotFound",
    ),
    "provider": (
        claim(true=LAUNCHED),
        {"pool": pool(), "provider_drift": "TemplateDrifted"},
        "TemplateDrifted",
    ),
}


@pytest.mark.parametrize(("given", "seen", "wanted"), DRIFTS.values(), ids=DRIFTS)
def test_drift(given: NodeClaim, seen: dict[str, Any], wanted: str) -> None:
    assert drift_reason(given, ObservedEligibility(now=NOW, **seen)) == wanted


READY = {"Initialized": -100.0}
AFTER: dict[str, Any] = {"disruption": {"consolidateAfter": "1m"}}
CONSOLIDATIONS: dict[str, tuple[NodeClaim, dict[str, Any], float | None]] = {
    "since it was initialized": (claim(true=READY), {"pool": pool(**AFTER)}, -40),
    "since the last pod event": (
        claim(true=READY),
        {"pool": pool(**AFTER), "last_pod_event": NOW},
        60,
    ),
    "not initialized": (claim(), {"pool": pool(**AFTER)}, None),
    "never": (
        claim(true=READY),
        {"pool": pool(disruption={"consolidateAfter": "Never"})},
        None,
    ),
    "static": (claim(true=READY), {"pool": pool(replicas=1, **AFTER)}, None),
}


@pytest.mark.parametrize(("given", "seen", "wanted"), CONSOLIDATIONS.values(), ids=CONSOLIDATIONS)
def test_consolidatable(given: NodeClaim, seen: dict[str, Any], wanted: float | None) -> None:
    found = consolidatable_at(given, ObservedEligibility(now=NOW, **seen))
    assert found == (None if wanted is None else NOW + timedelta(seconds=wanted))


def test_the_last_pod_event_is_when_a_pod_was_bound_or_began_to_terminate() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(-50)}
    running = pod(status={"conditions": [bound]})
    assert last_pod_event([running], None) == NOW - timedelta(seconds=50)
    ending = pod(metadata={"deletionTimestamp": at(20), "deletionGracePeriodSeconds": 30})
    assert last_pod_event([running, ending], None) == NOW - timedelta(seconds=10)
    daemon = pod(metadata=owned("DaemonSet"), status={"conditions": [bound]})
    assert last_pod_event([daemon], None) is None
    soon = NOW - timedelta(seconds=55)
    assert last_pod_event([running], soon) == soon
    assert last_pod_event([], soon) == soon


def test_garbage_is_what_lost_its_claim_or_its_machine() -> None:
    registered = claim(true={"Registered": -10}, status={"providerID": ID})
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "x", "uid": "gone"}
    lost = node("Unknown", metadata={"ownerReferences": [owner]} | OURS)
    foreign = node("Unknown", metadata={"ownerReferences": [owner]})
    other = NodeInstance("x", "other", InstanceState.LAUNCHED, provider_id="proxmox://r/9")

    def found(
        instances: tuple[NodeInstance, ...], nodes: tuple[Node, ...], unreadable: bool = False
    ) -> tuple[int, int, int]:
        seen = KarpenterInventory(instances, (registered,), nodes, unreadable)
        result = leftovers(seen)
        return len(result.instances), len(result.claims), len(result.nodes)

    assert found((instance(),), (node(),)) == (0, 0, 0)
    assert found((instance(), other), (node(),)) == (1, 0, 0)
    assert found((), (node(),)) == (0, 0, 0)
    assert found((), (node("Unknown"),)) == (0, 1, 0)
    gone = replace(instance(), state=InstanceState.LOST)
    assert found((gone,), (node(),)) == (0, 0, 0)
    assert found((gone,), (node("Unknown"),)) == (0, 1, 0)
    assert found((other,), (lost,)) == (1, 1, 1)
    assert found((other,), (lost,), unreadable=True) == (0, 0, 0)
    assert found((instance(),), (foreign,)) == (0, 0, 0)
    assert found((instance(),), (lost,)) == (0, 0, 0)


REPAIRS: dict[str, tuple[Node, int, str]] = {
    "healthy": (node(), 0, "Done"),
    "unhealthy for a short time": (node("Unknown", since=-60), 0, "Wait Unhealthy"),
    "unhealthy for too long": (node("Unknown", since=-901), 0, "RepairNode"),
    "as most of the pool": (node("False", since=-901), 3, "Wait NodeRepairBlocked"),
}


@pytest.mark.parametrize(("given", "others", "wanted"), REPAIRS.values(), ids=REPAIRS)
def test_repair(given: Node, others: int, wanted: str) -> None:
    peers = (given,) * (1 + others) + (node(),)
    seen = ObservedNodeHealth(NOW, claim(), peers)
    assert text_of(plan_repair(given, seen, POLICIES)) == wanted
