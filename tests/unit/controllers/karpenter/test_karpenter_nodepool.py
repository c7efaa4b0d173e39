"""Node pools: validation, hash, replicas, counters and registration health."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.claim_template import VERSION, pool_hash
from moxwell.controllers.karpenter.nodepool.controller import has_usable_type
from moxwell.controllers.karpenter.nodepool.health import RegistrationHealth
from moxwell.controllers.karpenter.nodepool.plan import ObservedPool, describe_pool, plan_pool
from moxwell.controllers.karpenter.nodepool.validation import validation_errors
from moxwell.controllers.karpenter.provider import NodeClassState
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes
from moxwell.scheduling.packing.pods import pairs
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.testing.machine_provider import default_types
from moxwell.testing.node_claims import claim_object, pool_object

READY = NodeClassState(ready=True)


def pool(**spec: Any) -> NodePool:
    made = msgspec.convert(pool_object(**spec), NodePool)
    stamp = {"karpenter.sh/nodepool-hash": pool_hash(made)}
    stamp["karpenter.sh/nodepool-hash-version"] = VERSION
    meta = msgspec.structs.replace(made.metadata, uid="u", annotations=stamp)
    return msgspec.structs.replace(made, metadata=meta)


def claim(name: str, **more: Any) -> NodeClaim:
    tree = claim_object(name, metadata={"uid": f"uid-{name}"} | more.pop("metadata", {}))
    return msgspec.convert(tree | {"status": more}, NodeClaim)


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"template": {"requirements": [requirement("team", "In", "a")]}}, ""),
        (
            {"template": {"requirements": [requirement("karpenter.sh/nodepool", "In", "a")]}},
            "spec.template.spec.requirements[0]",
        ),
        (
            {
                "template": {
                    "requirements": [requirement("t", "In", "a"), requirement("t", "In", "b")]
                }
            },
            "spec.template.spec.requirements[1]",
        ),
        (
            {"template": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}},
            "spec.template.spec.taints[1]",
        ),
        (
            {
                "disruption": {
                    "consolidateAfter": "0s",
                    "budgets": [{"schedule": "61 * * * *", "duration": "1h"}],
                }
            },
            "spec.disruption.budgets[0].schedule",
        ),
        ({"limits": {"cpu": "1"}}, "spec.limits.cpu"),
        ({"limits": {"cpu": "0"}}, ""),
        ({"limits": {"cpu": "100"}}, ""),
    ],
)
def test_validation_names_the_field(spec: dict[str, Any], field: str) -> None:
    errors = validation_errors(pool(**spec), default_types())
    assert [e.split(":")[0] for e in errors] == ([field] if field else [])


def test_the_hash_ignores_requirements_and_the_order_of_taints() -> None:
    taints = [{"key": k, "effect": "NoSchedule"} for k in ("a", "b")]
    first = pool(template={"taints": taints})
    second = pool(
        template={"taints": taints[::-1], "requirements": [requirement("team", "Exists")]}
    )
    assert pool_hash(first) == pool_hash(second) != pool_hash(pool())


def test_a_new_hash_version_takes_claims_over_without_drift() -> None:
    unstamped = msgspec.convert(pool_object(), NodePool)
    drifted = claim("d", conditions=[{"type": "Drifted", "status": "True"}])
    move = plan_pool(unstamped, ObservedPool(READY, claims=(claim("c"), drifted)))
    assert isinstance(move, Writes)
    changes = {
        w.name: w.change["metadata"]["annotations"] for w in move.writes if isinstance(w, Merge)
    }
    version, stamp = "karpenter.sh/nodepool-hash-version", "karpenter.sh/nodepool-hash"
    assert changes["c"] == {version: VERSION, stamp: pool_hash(unstamped)}
    assert changes["d"] == {version: VERSION}
    assert changes["default"][version] == VERSION


def test_a_static_pool_creates_missing_claims() -> None:
    seen = ObservedPool(READY, claims=(claim("c"),))
    move = plan_pool(pool(replicas=3), seen)
    assert isinstance(move, Writes)
    names = [w.obj.metadata.name for w in move.writes if isinstance(w, Create)]
    assert len(set(names)) == 2
    again = plan_pool(pool(replicas=3), seen)
    assert isinstance(again, Writes)
    assert [w.obj.metadata.name for w in again.writes if isinstance(w, Create)] == names


def test_a_static_pool_keeps_to_its_limit() -> None:
    move = plan_pool(pool(replicas=3, limits={"nodes": "2"}), ObservedPool(READY))
    assert isinstance(move, Writes)
    assert len(move.writes) == 2


def test_a_static_pool_deletes_what_costs_least() -> None:
    claims = (claim("busy", providerID="a"), claim("idle", providerID="b"), claim("new"))
    seen = ObservedPool(READY, claims=claims, pods={"busy": 3, "idle": 0})
    move = plan_pool(pool(replicas=1), seen)
    assert isinstance(move, Writes)
    assert [w.name for w in move.writes if isinstance(w, Delete)] == ["new", "idle"]


def test_a_static_pool_that_is_not_ready_waits() -> None:
    assert isinstance(plan_pool(pool(replicas=3), ObservedPool(None)), Done)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (None, "NodeClassNotFound"),
        (NodeClassState(ready=False, reason="NoTemplate", message="no template"), "NoTemplate"),
        (READY, "NodeClassReady"),
    ],
)
def test_readiness_follows_the_node_class(state: NodeClassState | None, reason: str) -> None:
    status = describe_pool(pool(), ObservedPool(state))
    found = {c.type: c for c in status.conditions}
    assert found["NodeClassReady"].reason == reason
    assert found["Ready"].status == ("True" if state is READY else "False")
    assert found["NodeRegistrationHealthy"].status == "Unknown"


def test_counters_sum_the_nodes() -> None:
    used = {"cpu": 6000, "memory": 2**33 * 1000}
    status = describe_pool(pool(), ObservedPool(READY, claims=(claim("c"),), used=used))
    assert status.nodes == 1
    assert status.resources["cpu"] == "6"
    assert status.resources["memory"] == "8Gi"
    assert status.resources["nodes"] == "1"


@pytest.mark.parametrize(("family", "usable"), [("t1", True), ("x9", False)])
def test_requirements_that_leave_no_type_are_found(family: str, usable: bool) -> None:
    key = "karpenter.proxmox.sinextra.dev/instance-family"
    types = tuple(
        replace(
            each,
            requirements=(*each.requirements, LabelRequirement(key, False, frozenset({"t1"}))),
            offerings=tuple(
                replace(o, labels=pairs(dict(o.labels) | {key: "t1"})) for o in each.offerings
            ),
        )
        for each in default_types()
    )
    wanted = pool(template={"requirements": [requirement(key, "In", family)]})
    assert has_usable_type(wanted, types) is usable
    assert has_usable_type(pool(), types)


def test_two_failed_registrations_of_four_are_unhealthy() -> None:
    health = RegistrationHealth()
    launched = claim("c", conditions=[{"type": "Launched", "status": "True"}])
    registered = claim(
        "c", conditions=[{"type": t, "status": "True"} for t in ("Launched", "Registered")]
    )
    assert health.observe("default", (1, 1)) is None
    health.claim_changed(launched, registered, False)
    assert health.observe("default", (1, 1)) is True
    for _ in range(2):
        health.claim_changed(launched, None, False)
    assert health.observe("default", (1, 1)) is False
    assert health.observe("default", (1, 2)) is None
