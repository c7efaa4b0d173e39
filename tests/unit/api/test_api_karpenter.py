"""Kinds of Karpenter: what decodes, what is refused, and which defaults the CRDs carry."""

from typing import Any

import msgspec
import pytest

from moxwell.api import crd, validation
from moxwell.api.karpenter import capacity, nodeclaims, nodepools, proxmox, proxmox_templates
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxUnmanagedTemplate

KINDS = (
    *nodepools.KINDS,
    *nodeclaims.KINDS,
    *capacity.KINDS,
    *proxmox.KINDS,
    *proxmox_templates.KINDS,
)
NODE_CLASS = {"group": "karpenter.proxmox.sinextra.dev", "kind": "ProxmoxNodeClass", "name": "c"}


def pool(spec: dict[str, Any] | None = None, **template: Any) -> NodePool:
    inner = {"requirements": [], "nodeClassRef": NODE_CLASS} | template
    tree = {"metadata": {"name": "p"}, "spec": {"template": {"spec": inner}} | (spec or {})}
    return msgspec.convert(tree, NodePool)


def messages(obj: Any, old: Any = None) -> list[str]:
    return [violation.message for violation in validation.violations(obj, old)]


def test_a_pool_without_disruption_has_karpenters_defaults() -> None:
    disruption = pool().spec.disruption
    assert disruption.consolidate_after == "0s"
    assert disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert [budget.nodes for budget in disruption.budgets] == ["10%"]


REFUSED_POOLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("an unknown operator", {}, {"requirements": [{"key": "a", "operator": "Is"}]}),
    ("no label key", {}, {"requirements": [{"key": "-", "operator": "Exists"}]}),
    ("minValues 0", {}, {"requirements": [{"key": "a", "operator": "In", "minValues": 0}]}),
    ("a weight above 100", {"weight": 101}, {}),
    ("a taint without a key", {}, {"taints": [{"key": "", "effect": "NoSchedule"}]}),
    ("an unknown effect", {}, {"taints": [{"key": "a", "effect": "Never"}]}),
    ("a duration without a unit", {}, {"expireAfter": "30"}),
    (
        "a budget above 100 %",
        {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "101%"}]}},
        {},
    ),
    (
        "an unknown reason",
        {"disruption": {"consolidateAfter": "0s", "budgets": [{"reasons": ["Expired"]}]}},
        {},
    ),
]


@pytest.mark.parametrize(("spec", "template"), [c[1:] for c in REFUSED_POOLS],
                         ids=[c[0] for c in REFUSED_POOLS])  # fmt: skip
def test_a_pool_is_refused(spec: dict[str, Any], template: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        pool(spec, **template)


def test_rules_of_static_pools() -> None:
    assert messages(pool({"replicas": 2, "limits": {"nodes": 3}})) == []
    assert messages(pool({"replicas": 2, "limits": {"cpu": 3}})) == [
        "only 'limits.nodes' is supported on static NodePools"
    ]
    assert messages(pool({"replicas": 2, "weight": 3})) == [
        "'weight' is not supported on static NodePools"
    ]
    assert messages(pool({"replicas": 2}), pool())[0].startswith("Cannot transition NodePool")


def test_the_kind_of_a_pools_node_class_never_changes() -> None:
    other = pool(nodeClassRef=NODE_CLASS | {"kind": "EC2NodeClass"})
    assert messages(other, pool()) == ["nodeClassRef.kind is immutable"]


def test_a_template_takes_a_url_with_port_and_address() -> None:
    for url in ("http://10.0.0.1:8080/a.qcow2", "https://[fd00::1]/a.img", "https://x.org/a"):
        spec = {
            "sourceImage": {"url": url},
            "storageIDs": ["local"],
            "network": [{"bridge": "vmbr0"}],
        }
        read = msgspec.convert({"spec": spec}, ProxmoxTemplate)
        assert (read.spec.cpu.type, read.spec.machine) == ("x86-64-v2-AES", "q35")


def test_an_unmanaged_template_needs_a_name_or_tags() -> None:
    empty = msgspec.convert({"spec": {}}, ProxmoxUnmanagedTemplate)
    assert messages(empty) == ["at least one of templateName or tags must be specified"]


def test_objects_that_default_as_a_whole_say_so_in_the_crd() -> None:
    rendered = {tree["spec"]["names"]["kind"]: tree for tree in crd.crds(KINDS)}
    spec = rendered["NodePool"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
        "spec"
    ]["properties"]
    assert spec["disruption"]["default"] == {"consolidateAfter": "0s"}
    assert spec["disruption"]["properties"]["budgets"]["default"] == [{"nodes": "10%"}]
    scale = rendered["NodePool"]["spec"]["versions"][0]["subresources"]["scale"]
    assert scale == {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
