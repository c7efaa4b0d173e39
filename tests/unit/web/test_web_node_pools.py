"""What the dashboard says about node pools: why a node exists and stays, what would be saved."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.disruption.controller import DisruptionInsight
from moxwell.errors import Missing
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.web.dashboard_node_pools import node_pools_of
from moxwell.web.model import InfrastructureOverview, MachineView, NodePoolView
from moxwell.web.node_explanation import explained
from moxwell.web.node_pools_view import node_pool_records

KEY = Key("t", "demo")
CLASS = {"group": "karpenter.proxmox.sinextra.dev", "kind": "ProxmoxNodeClass", "name": "c"}
DONE = [
    {"type": t, "status": "True", "reason": t} for t in ("Launched", "Registered", "Initialized")
]


class StubCaches:
    """The caches of a tenant."""

    def __init__(self, *objects: Any) -> None:
        self._caches: dict[Any, Cache[Any]] = {}
        for obj in objects:
            self.of(type(obj)).put(obj)

    def of(self, kind: Any, **_: Any) -> Cache[Any]:
        return self._caches.setdefault(kind, Cache(kind))


def pool(name: str = "default", status: str = "True", **spec: Any) -> NodePool:
    body = {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": CLASS, "requirements": []}}, **spec},
        "status": {
            "resources": {"cpu": "6", "memory": "12Gi", "nodes": "2"},
            "conditions": [{"type": "Ready", "status": status, "reason": "NodeClassNotReady",
                            "message": "the class is not ready"}],
        },
    }  # fmt: skip
    return msgspec.convert(body, NodePool)


def claim(name: str, conditions: list[dict[str, str]], **meta: Any) -> NodeClaim:
    labels = {
        "karpenter.sh/nodepool": "default",
        "node.kubernetes.io/instance-type": "u1.large",
        "karpenter.sh/capacity-type": "spot",
        "topology.kubernetes.io/zone": "pve1",
    }
    body = {
        "metadata": {"name": name, "labels": labels, **meta},
        "spec": {
            "nodeClassRef": CLASS,
            "requirements": [],
            "resources": {"requests": {"cpu": "1500m", "memory": "3Gi", "pods": "3"}},
        },
        "status": {"nodeName": f"node-{name}", "conditions": conditions},
    }
    return msgspec.convert(body, NodeClaim)


def shown(insight: DisruptionInsight, *objects: Any) -> NodePoolView:
    caches: Any = StubCaches(*objects)
    (found,) = node_pools_of(KEY, caches, insight, {"node-a": 4})
    return found


def test_a_node_says_what_it_was_made_for_and_why_it_stays() -> None:
    insight = DisruptionInsight({"a": "Can't remove without creating 2 candidates"})
    found = shown(insight, pool(limits={"cpu": "20"}), claim("a", DONE))
    assert (found.cluster, found.used, found.limits) == (
        "t/demo",
        "6 vCPU, 12 GiB, 2 nodes",
        "20 vCPU",
    )
    (node,) = found.nodes
    assert node.why == "Made for pods that requested 1.5 vCPU, 3 GiB"
    assert node.stays == "Can't remove without creating 2 candidates"
    assert (node.state, node.pods, node.type, node.capacity, node.zone) == (
        "ready", 4, "u1.large", "spot", "pve1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "meta", "state", "text"),
    [
        ([], {}, "creating", "The machine is being created"),
        (DONE[:1], {}, "creating", "The guest boots and joins"),
        (
            [*DONE[:1], {"type": "Registered", "status": "Unknown", "message": "no node yet"}],
            {},
            "creating",
            "no node yet",
        ),
        (DONE[:2], {}, "creating", "Waiting for the node to be ready"),
        (
            [*DONE, {"type": "Drifted", "status": "True", "reason": "NodePoolDrifted"}],
            {},
            "waiting",
            "It will be replaced: NodePoolDrifted",
        ),
        (
            DONE,
            {"deletionTimestamp": datetime(2026, 1, 1, tzinfo=UTC)},
            "deleting",
            "It is drained and deleted",
        ),
    ],
)
def test_the_state_of_a_node(
    conditions: list[dict[str, str]], meta: dict[str, Any], state: str, text: str
) -> None:
    (node,) = shown(DisruptionInsight(), pool(), claim("a", conditions, **meta)).nodes
    assert (node.state, node.message) == (state, text)


def test_a_static_pool_and_one_that_is_not_ready() -> None:
    found = shown(DisruptionInsight(), pool(status="False", replicas=3), claim("a", DONE))
    assert (found.ready, found.message) == (False, "the class is not ready")
    assert found.nodes[0].why == "One of 3 replicas of its pool"


def test_what_would_be_saved_is_shown_at_the_pool_of_the_node() -> None:
    insight = DisruptionInsight(
        {"a": "it is needed"}, "Delete node-a: Underutilized", frozenset({"node-a"}), 0.5
    )
    mine, other = pool(), pool("other")
    caches: Any = StubCaches(mine, other, claim("a", DONE), claim("node", DONE))
    stays = [n.stays for p in node_pools_of(KEY, caches, insight, {}) for n in p.nodes]
    assert stays == ["It would be removed", ""]
    by_name = {p.name: (p.proposal, p.saves) for p in node_pools_of(KEY, caches, insight, {})}
    assert by_name == {"default": ("Delete node-a: Underutilized", 0.5), "other": ("", 0.0)}


def test_a_node_links_to_its_machine() -> None:
    found = shown(DisruptionInsight(), pool(), claim("a", DONE))
    machine = MachineView(namespace="t", name="m1", cluster="demo", node="node-a")
    overview = InfrastructureOverview(
        now=datetime(2026, 1, 1, tzinfo=UTC), mode="lab", version="1", machines=(machine,),
        node_pools=(found,),
    )  # fmt: skip
    records = dict(node_pool_records(overview))
    assert set(records) == {"pool/t/demo/default", "poolnode/t/demo/a"}
    assert records["poolnode/t/demo/a"]["href"] == "/machine/t/m1"
    assert records["pool/t/demo/default"]["nodes"] == 1


def test_a_tenant_that_does_not_run_has_none() -> None:
    assert node_pools_of(KEY, None, DisruptionInsight(), {}) == ()


def explained_node(insight: DisruptionInsight, *objects: Any, called: str = "node-a") -> list[str]:
    found = explained([shown(insight, *objects)], called)
    return [found["sentence"], *found["details"]]


def test_a_node_is_explained() -> None:
    kept = DisruptionInsight({"a": "Can't remove without creating 2 candidates"}, prices={"a": 0.5})
    created = {"creationTimestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    after = {"consolidateAfter": "30s"}
    lines = explained_node(kept, pool(disruption=after), claim("a", DONE, **created))
    assert lines == [
        "node-a is a node of the pool default, spot u1.large on pve1: "
        "made for pods that requested 1.5 vCPU, 3 GiB.",
        "pods: 4",
        "price: 0.5000 per hour",
        "stays: Can't remove without creating 2 candidates",
        "removed if: No pod that needs a node is left on it, after 30s without a new or "
        "deleted pod.",
        "removed if: Its pods fit on other nodes, or on a cheaper node, after 30s without a new "
        "or deleted pod.",
        "removed if: The node pool or its node class changes: the node drifts and is replaced.",
        "removed if: It expires at 2026-01-31 00:00 UTC (expireAfter 720h).",
        "saves: nothing now; no change that is cheaper is known",
    ]


@pytest.mark.parametrize(
    ("disruption", "replicas", "rules"),
    [
        ({"consolidateAfter": "Never"}, None, []),
        ({"consolidateAfter": "1m", "consolidationPolicy": "WhenEmpty"}, None, ["No pod"]),
        (
            {"consolidateAfter": "1m", "consolidationPolicy": "Balanced"},
            None,
            ["No pod", "Its pods fit elsewhere for a saving"],
        ),
        ({"consolidateAfter": "1m"}, 3, ["The pool gets fewer than 3 replicas"]),
    ],
)
def test_what_lets_a_node_go_follows_the_pool(
    disruption: dict[str, str], replicas: int | None, rules: list[str]
) -> None:
    found = shown(
        DisruptionInsight(), pool(disruption=disruption, replicas=replicas), claim("a", DONE)
    )
    goes = found.nodes[0].goes
    assert len(goes) == len(rules) + 1
    assert all(text.startswith(rule) for text, rule in zip(goes, rules, strict=False))


def test_a_node_that_is_about_to_go_says_what_is_saved() -> None:
    insight = DisruptionInsight(
        {}, "Replace node-a: Underutilized", frozenset({"node-a"}), 0.25, {"a": 0.5}
    )
    lines = explained_node(insight, pool(), claim("a", DONE), called="a")
    assert "stays: It would be removed" in lines
    assert lines[-1] == "saves: 0.2500 per hour (Replace node-a: Underutilized)"


def test_a_node_that_is_deleted_says_only_that() -> None:
    deleted = {"deletionTimestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    lines = explained_node(DisruptionInsight(), pool(), claim("a", DONE, **deleted))
    assert lines[1:] == ["state: deleting: It is drained and deleted", "pods: 4"]


def test_a_node_that_no_pool_has_is_refused_with_those_that_exist() -> None:
    with pytest.raises(Missing, match="no node pool of the cluster has a node web: they have no"):
        explained_node(DisruptionInsight(), pool(), called="web")
    with pytest.raises(Missing, match="they have node-a"):
        explained_node(DisruptionInsight(), pool(), claim("a", DONE), called="web")
    with pytest.raises(Missing, match="the cluster has no node pool"):
        explained([], "web")
