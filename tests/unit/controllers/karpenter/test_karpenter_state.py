"""Snapshots of a scaled cluster from its objects."""

from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.state.intentions import expected_on
from moxwell.controllers.karpenter.state.nodes import cluster_node, joined_nodes
from moxwell.controllers.karpenter.state.pods import is_provisionable
from moxwell.controllers.karpenter.state.snapshots import disruption_view
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE, ZONE
from moxwell.testing.node_claims import pool_object
from support.karpenter_objects import SMALL, TYPES, claim, node, pod, pool, view

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"node": "n"}, False),
        ({"nominatedNodeName": "n"}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}, False),
        ({"metadata": {"ownerReferences": [{"kind": "ReplicaSet"}]}}, True),
        ({"conditions": []}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_provisionable_pods(change: Json, expected: bool) -> None:
    assert is_provisionable(pod("a", **change)) is expected


def test_a_claim_in_flight_holds_its_pods() -> None:
    seen = view(
        pools=[pool()],
        claims=[claim("c-1", ("uid-a",))],
        pods=[pod("a"), pod("b")],
    )
    assert [p.name for p in seen.pending] == ["b"]
    assert [(p.name, p.node_name) for p in seen.cluster.pods] == [("a", "c-1")]
    (found,) = seen.cluster.nodes
    assert dict(found.labels)[INSTANCE_TYPE] == SMALL
    assert found.allocatable["cpu"] == TYPES[SMALL].allocatable["cpu"]
    assert not found.has_node


def test_an_initialized_claim_holds_no_pods() -> None:
    done = claim("c-1", ("uid-a",), conditions=[{"type": "Initialized", "status": "True"}])
    assert expected_on([done]) == {}


def test_a_deleted_claim_holds_no_pods() -> None:
    gone = claim("c-1", ("uid-a",))
    meta = msgspec.structs.replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    assert expected_on([msgspec.structs.replace(gone, metadata=meta)]) == {}


def test_nodes_are_joined_by_provider_id() -> None:
    known = claim("c-1", providerID="proxmox://region-1/n-1")
    joined = joined_nodes([known], [node("n-1"), node("n-2")])
    assert [(j.claim is not None, j.node_name) for j in joined] == [(True, "n-1"), (False, "n-2")]


@pytest.mark.parametrize(
    ("labels", "name", "initialized"),
    [
        ({}, "c-1", False),
        ({"karpenter.sh/registered": "true"}, "n-1", False),
        ({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}, "n-1", True),
    ],
)
def test_a_node_has_the_name_of_its_claim_until_it_is_registered(
    labels: Json, name: str, initialized: bool
) -> None:
    known = claim("c-1", providerID="proxmox://region-1/n-1", capacity={"cpu": "2", "x/gpu": "1"})
    (joined,) = joined_nodes([known], [node("n-1", labels=labels | {ZONE: "host-1"})])
    found = cluster_node(joined, TYPES, {}, leaving=False)
    assert (found.name, found.initialized) == (name, initialized)
    assert ("x/gpu" in found.capacity) is not initialized


def test_pods_of_a_leaving_node_are_placed_again() -> None:
    labels = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
    taints = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    owner = {"ownerReferences": [{"kind": "ReplicaSet"}]}
    seen = view(
        pools=[pool()],
        claims=[claim("c-1", providerID="proxmox://region-1/n-1")],
        nodes=[node("n-1", labels=labels, taints=taints)],
        pods=[pod("a", node="n-1", metadata=owner)],
    )
    assert [p.name for p in seen.pending] == ["a"]
    assert [n.deleting for n in seen.cluster.nodes] == [True]


def test_a_pool_that_is_not_ready_or_static_creates_nothing() -> None:
    unready = msgspec.convert(pool_object("other"), NodePool)
    seen = view(pools=[unready, pool(name="static", replicas=2), pool()])
    assert [p.name for p in seen.cluster.pools] == ["default"]
    assert sorted(seen.pools) == ["default", "other", "static"]


def test_a_pod_that_cannot_be_read_is_ignored_alone() -> None:
    broken = pod(
        "broken",
        spec={
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}
        },
    )
    seen = view(pools=[pool()], pods=[broken, pod("good")])
    assert [p.name for p in seen.pending] == ["good"]
    assert [p.pod.name for p in seen.ignored] == ["broken"]


def test_disruption_sees_conditions_of_claims() -> None:
    labels = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
    moment = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": t, "status": "True", "lastTransitionTime": moment}
        for t in ("Consolidatable", "Drifted", "Initialized")
    ]
    known = claim("c-1", providerID="proxmox://region-1/n-1", conditions=conditions)
    seen = view(pools=[pool()], claims=[known], nodes=[node("n-1", labels=labels)])
    found = disruption_view(seen, {"n-1"}, {"c-1"})
    (only,) = found.snapshot.nodes
    assert only.consolidatable
    assert only.nominated
    assert only.in_progress
    assert only.ready
    assert only.drifted_since == only.initialized_at == 1767225600.0
    assert only.expire_after == 720 * 3600
    assert found.claim("n-1") is known
