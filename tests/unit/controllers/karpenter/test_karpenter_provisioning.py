"""Node claims for pending pods: the plan, the claims, the batch."""

import asyncio
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.kinds import as_dict
from moxwell.controllers.karpenter.claim_template import claim_name, pool_hash
from moxwell.controllers.karpenter.options import PackingMode
from moxwell.controllers.karpenter.provisioning.batcher import Batcher
from moxwell.controllers.karpenter.provisioning.plan import (
    ProvisioningPlan,
    explain,
    plan_provisioning,
)
from moxwell.controllers.karpenter.state.intentions import recorded
from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.well_known_labels import CAPACITY_TYPE, INSTANCE_TYPE
from moxwell.testing.loop import LoopClock, run_virtual
from support.karpenter_objects import claim, node, pod, pool, view


def decide(mode: PackingMode = PackingMode.OPTIMISE, **given: Any) -> ProvisioningPlan:
    return plan_provisioning(view(**given), mode)


@pytest.mark.parametrize("mode", PackingMode)
def test_pods_get_claims_that_record_them(mode: PackingMode) -> None:
    plan = decide(mode, pools=[pool()], pods=[pod("a"), pod("b")])
    ((made, pods),) = plan.claims
    assert {p.name for p in pods} == {"a", "b"}
    assert recorded(made) == {"uid-a", "uid-b"}
    keys = {r.key: r for r in made.spec.requirements}
    assert keys[CAPACITY_TYPE].values == ("on-demand",)
    assert "karpenter.sh/registered" not in keys
    assert keys[INSTANCE_TYPE].values == ("t1.4VCPU-8GB", "t1.8VCPU-16GB")
    assert made.spec.resources is not None
    assert made.spec.resources.requests["cpu"] == "2"
    assert made.metadata.generate_name == "default-"
    assert made.metadata.annotations["karpenter.sh/nodepool-hash"] == pool_hash(pool())
    key = "karpenter.proxmox.sinextra.dev/proxmoxnodeclass"
    assert made.metadata.labels[key] == "default"
    assert msgspec.convert(as_dict(made), NodeClaim) == made


def test_the_same_pods_get_the_same_name() -> None:
    first = decide(pools=[pool()], pods=[pod("a")]).claims[0][0]
    again = decide(pools=[pool()], pods=[pod("a")]).claims[0][0]
    other = decide(pools=[pool()], pods=[pod("b")]).claims[0][0]
    assert first.metadata.name == again.metadata.name != other.metadata.name


def test_a_claim_that_is_being_deleted_does_not_lend_its_name() -> None:
    known = claim("old", ("uid-a",))
    meta = msgspec.structs.replace(
        known.metadata, uid="u", deletion_timestamp="2026-01-01T00:00:00Z"
    )
    leaving = msgspec.structs.replace(known, metadata=meta)
    first = decide(pools=[pool()], pods=[pod("a")]).claims[0][0]
    second = decide(pools=[pool()], pods=[pod("a")], claims=[leaving]).claims[0][0]
    assert first.metadata.name != second.metadata.name


def test_names_fit_host_names() -> None:
    name = claim_name("p" * 63, ("a",))
    assert len(name) == 63
    assert name == claim_name("p" * 63, ("a",))
    assert name != claim_name("p" * 63, ("b",))


def test_custom_labels_get_a_value() -> None:
    wanted = {"key": "team", "operator": "In", "values": ["red", "blue"]}
    plan = decide(pools=[pool(template={"requirements": [wanted]})], pods=[pod("a")])
    assert plan.claims[0][0].metadata.labels["team"] == "blue"


def test_a_pod_that_never_fits_says_why() -> None:
    plan = decide(pools=[pool()], pods=[pod("huge", cpu="64"), pod("small")])
    assert len(plan.claims) == 1
    assert plan.unschedulable == 1
    (note,) = [n.note for n in plan.notes if n.pod.name == "huge"]
    assert (note.reason, note.type) == ("FailedScheduling", "Warning")
    assert "the nearest type of default is t1.8VCPU-16GB, which lacks 56100m cpu" in note.message


def test_without_a_ready_pool_pods_are_told() -> None:
    plan = decide(pods=[pod("a")])
    assert not plan.claims
    assert "no node pool is ready" in plan.notes[0].note.message


def test_a_limit_on_nodes_holds_within_a_batch() -> None:
    limited = pool(limits={"nodes": "1"})
    plan = decide(pools=[limited], pods=[pod("a", cpu="7"), pod("b", cpu="7")])
    assert len(plan.claims) == 1
    assert any("limits" in n.note.message for n in plan.notes)


def test_pods_that_avoid_node_pools_get_no_event() -> None:
    term = {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    avoiding = pod("a", spec={"affinity": {"nodeAffinity": required}})
    plan = decide(pools=[pool()], pods=[avoiding])
    assert plan == ProvisioningPlan()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("new", "default/new needs a new node of the node pool default: t1.4VCPU-8GB"),
        ("huge", "default/huge has no node"),
        ("held", "default/held waits for the node claim c-1."),
        ("bound", "default/bound runs on the node n-1."),
        ("missing", ""),
    ],
)
def test_a_decision_explains_itself(name: str, text: str) -> None:
    pods = [pod("new", cpu="3"), pod("huge", cpu="64"), pod("held"), pod("bound", node="n-1")]
    seen = view(
        pools=[pool()], claims=[claim("c-1", ("uid-held",))], nodes=[node("n-1")], pods=pods
    )
    found = explain(seen, "default", name, PackingMode.EXACT, SolverOptions())
    assert (found.sentence if found else "").startswith(text)
    assert bool(found) is bool(text)


def test_a_batch_ends_when_no_pod_comes() -> None:
    async def story() -> None:
        clock = LoopClock()
        batcher, began = Batcher(clock), clock.monotonic()
        batcher.trigger("a")
        batch = asyncio.create_task(batcher.wait())
        await asyncio.sleep(0.5)
        batcher.trigger("b")
        batcher.trigger("a")
        assert await batch == {"a", "b"}
        assert clock.monotonic() - began == pytest.approx(1.5, abs=0.01)

    run_virtual(story())


def test_a_batch_lasts_ten_seconds_at_most() -> None:
    async def story() -> None:
        clock = LoopClock()
        batcher, began = Batcher(clock), clock.monotonic()
        batcher.trigger("0")
        batch = asyncio.create_task(batcher.wait())
        for number in range(1, 40):
            await asyncio.sleep(0.5)
            if batch.done():
                break
            batcher.trigger(str(number))
        await batch
        assert clock.monotonic() - began == pytest.approx(10, abs=0.6)

    run_virtual(story())
