"""Which hosts and templates a node class selects, its mistakes, and what its controller does."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import (
    ProxmoxTemplate,
    ProxmoxUnmanagedTemplate,
    ProxmoxUnmanagedTemplateSpec,
)
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.template_build.from_spec import built_tags
from moxwell.controllers.karpenter.proxmox.class_hash import class_hash
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLASS_HASH,
    CLASS_HASH_VERSION,
    HASH_VERSION,
)
from moxwell.controllers.karpenter.proxmox.machine_objects import changeable_spec
from moxwell.controllers.karpenter.proxmox.node_class.plan import (
    ChangeMachines,
    ObservedNodeClass,
    describe,
    next_move,
)
from moxwell.controllers.karpenter.proxmox.node_class.see import template_problem
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    CheckedNodeClass,
    NodeClassReason,
    ZoneContents,
    check,
    matching,
)
from moxwell.controllers.karpenter.proxmox.scope import (
    MachineDefaults,
    NodeClassScope,
    scope_of,
)
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Writes
from moxwell.scheduling.inventory_model import HostKey, Template

BASE = Template(HostKey("north", "pve1"), 9000, "ubuntu", frozenset({"k8s-v1.34.1", "ubuntu"}))
SOUTH = Template(HostKey("south", "pve1"), 9000, "ubuntu", frozenset({"k8s-v1.34.1"}))
PRIVATE = Template(HostKey("north", "pve2"), 9100, "golden", frozenset({"finance"}))
ZONES = (
    ZoneContents(
        "north",
        "a",
        frozenset({"pve1", "pve2"}),
        frozenset({"kube", "kube/blue", "theirs"}),
        {"pve1": frozenset({"lvm", "ceph"}), "pve2": frozenset({"ceph"})},
        (BASE, PRIVATE),
        frozenset({"web"}),
    ),
    ZoneContents("south", "b", frozenset({"pve1"}), frozenset({"kube"}), {}, (SOUTH,)),
)
UBUNTU = ProxmoxUnmanagedTemplate(
    metadata=ObjectMeta(name="ubuntu"), spec=ProxmoxUnmanagedTemplateSpec(tags=("K8S-v1.34.1",))
)


def node_class(**spec: Any) -> ProxmoxNodeClass:
    ref = {"kind": "ProxmoxUnmanagedTemplate", "name": "ubuntu"}
    tree = {"metadata": {"name": "default"}, "spec": {"instanceTemplateRef": ref} | spec}
    return msgspec.convert(tree, ProxmoxNodeClass)


def reasons(checked: CheckedNodeClass) -> list[str]:
    return [problem.reason for problem in checked.problems]


def test_a_node_class_selects_the_nearest_template_of_each_host() -> None:
    checked = check(node_class(), UBUNTU, ZONES, NodeClassScope())
    assert [str(z) for z in checked.zones] == [
        "north/pve1/9000",
        "north/pve2/9000",
        "south/pve1/9000",
    ]
    assert [z.failure_domain for z in checked.zones] == ["a", "a", "b"]


def test_a_region_and_a_storage_restrict_the_hosts() -> None:
    chosen = node_class(region="north", bootDevice={"storage": "lvm"})
    checked = check(chosen, UBUNTU, ZONES, NodeClassScope())
    assert [str(z) for z in checked.zones] == ["north/pve1/9000"]


def test_a_managed_template_is_found_by_its_own_name() -> None:
    tree = {
        "metadata": {"name": "golden"},
        "spec": {
            "sourceImage": {"url": "https://example.com/a.qcow2"},
            "storageIDs": ["local"],
            "network": [{"bridge": "vmbr0"}],
        },
    }
    template = msgspec.convert(tree, ProxmoxTemplate)
    checked = check(node_class(), template, ZONES, NodeClassScope())
    assert {z.template.vmid for z in checked.zones} == {9100}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({"region": "west"}, NodeClassReason.REGION_NOT_FOUND, "spec.region"),
        ({"resourcePool": "none"}, NodeClassReason.POOL_NOT_FOUND, "spec.resourcePool"),
        ({"resourcePool": "theirs"}, NodeClassReason.POOL_NOT_FOUND, "south"),
        (
            {"bootDevice": {"storage": "tape"}},
            NodeClassReason.STORAGE_NOT_FOUND,
            "spec.bootDevice.storage",
        ),
        (
            {"securityGroups": [{"name": "web"}, {"name": "db"}]},
            NodeClassReason.SECURITY_GROUP_NOT_FOUND,
            "spec.securityGroups[1].name",
        ),
        ({"tags": ["mine", "moxwell"]}, NodeClassReason.TAG_NOT_ALLOWED, "spec.tags[1]"),
    ],
)
def test_a_mistake_names_the_field(
    spec: dict[str, Any], reason: NodeClassReason, field: str
) -> None:
    checked = check(node_class(**spec), UBUNTU, ZONES, NodeClassScope())
    assert reasons(checked) == [reason]
    assert field in checked.problems[0].message
    assert checked.zones == ()


def test_a_missing_template_object_and_one_that_matches_nothing() -> None:
    missing = check(node_class(), None, ZONES, NodeClassScope())
    assert reasons(missing) == [NodeClassReason.TEMPLATE_NOT_FOUND]
    other = ProxmoxUnmanagedTemplate(
        metadata=ObjectMeta(name="ubuntu"), spec=ProxmoxUnmanagedTemplateSpec(template_name="none")
    )
    assert reasons(check(node_class(), other, ZONES, NodeClassScope())) == [
        NodeClassReason.TEMPLATE_NOT_FOUND
    ]


def test_an_unreachable_region_is_not_a_mistake_of_the_class() -> None:
    checked = check(node_class(region="north"), UBUNTU, (), NodeClassScope(), "north is down")
    assert reasons(checked) == [NodeClassReason.REGION_UNREACHABLE]


def test_the_scope_of_a_cluster_is_its_own_and_what_annotations_list() -> None:
    tree = {
        "metadata": {
            "name": "c",
            "annotations": {
                "moxwell.dev/node-class-pools": "extra",
                "moxwell.dev/node-class-storages": "*",
            },
        },
        "spec": {"pool": "kube"},
    }
    cluster = msgspec.convert(tree, ProxmoxCluster)
    scope = scope_of(cluster, MachineDefaults({"firewallGroups": ["tenant-a"]}), trusted=False)
    assert [scope.allows_pool(p) for p in ("kube", "kube/blue", "extra", "kubernetes")] == [
        True,
        True,
        True,
        False,
    ]
    assert scope.allows_group("tenant-a")
    assert not scope.allows_group("web")
    assert scope.allows_storage("anything")
    assert scope.allows_template(BASE)
    assert not scope.allows_template(PRIVATE)
    assert scope_of(cluster, MachineDefaults(), trusted=True) == NodeClassScope()


def test_the_hash_ignores_what_is_changed_in_place() -> None:
    same = node_class(tags=["a"], resourcePool="kube", securityGroups=[{"name": "web"}])
    assert class_hash(same) == class_hash(node_class())
    assert class_hash(node_class(bootDevice={"size": "50G"})) != class_hash(node_class())


def hashed(**spec: Any) -> ProxmoxNodeClass:
    plain = node_class(**spec)
    annotations = {CLASS_HASH: class_hash(plain), CLASS_HASH_VERSION: HASH_VERSION}
    meta = msgspec.structs.replace(plain.metadata, annotations=annotations)
    return msgspec.structs.replace(plain, metadata=meta)


def test_the_hash_is_recorded_first() -> None:
    move = next_move(node_class(), ObservedNodeClass())
    assert isinstance(move, Writes)
    assert isinstance(next_move(hashed(), ObservedNodeClass()), Done)


def test_machines_are_changed_in_place_unless_the_class_has_a_mistake() -> None:
    machine = ProxmoxMachine(metadata=ObjectMeta(name="m", namespace="n"))
    chosen = hashed(tags=["new"], resourcePool="kube")
    checked = check(chosen, UBUNTU, ZONES, NodeClassScope())
    move = next_move(chosen, ObservedNodeClass(checked, machines=(machine,)))
    assert isinstance(move, ChangeMachines)
    (merge,) = move.writes.writes
    assert merge.change == {  # type: ignore[union-attr]
        "spec": {"tags": ["new"], "firewallGroups": [], "pool": "kube", "changes": "InPlace"}
    }
    done = ProxmoxMachine(
        metadata=machine.metadata, spec=ProxmoxMachineSpec(tags=("new",), pool="kube")
    )
    assert isinstance(next_move(chosen, ObservedNodeClass(checked, machines=(done,))), Done)
    wrong = check(chosen, UBUNTU, ZONES, NodeClassScope(pools=frozenset()))
    assert isinstance(next_move(chosen, ObservedNodeClass(wrong, machines=(machine,))), Done)


def test_a_class_that_claims_use_is_kept() -> None:
    tree = {
        "metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"instanceTemplateRef": {"kind": "ProxmoxTemplate", "name": "t"}},
    }
    deleting = msgspec.convert(tree, ProxmoxNodeClass)
    wait = next_move(deleting, ObservedNodeClass(claims=("a", "b")))
    assert isinstance(wait, Wait)
    assert wait.message == "node claims use it: a, b; delete them first"
    assert next_move(deleting, ObservedNodeClass()) == Done()


def test_the_status_has_a_condition_for_each_part() -> None:
    chosen = node_class(resourcePool="none")
    seen = ObservedNodeClass(check(chosen, None, ZONES, NodeClassScope()))
    status = describe(chosen, seen, Done())
    found = {c.type: (c.status, c.reason) for c in status.conditions}
    assert found == {
        "Ready": ("False", "TemplateNotFound"),
        "InstanceTemplateReady": ("False", "TemplateNotFound"),
        "InstanceMetadataOptionsReady": ("True", "Ready"),
        "InfrastructureReady": ("False", "PoolNotFound"),
    }
    good = describe(
        chosen, ObservedNodeClass(check(node_class(), UBUNTU, ZONES, NodeClassScope())), Done()
    )
    assert good.resources == {"zones": "3"}
    assert good.selected_zones[0] == "north/pve1/9000"


@pytest.mark.parametrize(
    "count, status, part",
    [
        (0, "True", ""),
        (1, "False", "of r/h0, and"),
        (7, "False", "r/h4 and 2 more, and"),
    ],
)
def test_hosts_on_which_nothing_pins_cpus_are_named_and_keep_nobody_from_ready(
    count: int, status: str, part: str
) -> None:
    hosts = tuple(HostKey("r", f"h{n}") for n in range(count))
    checked = check(node_class(), UBUNTU, ZONES, NodeClassScope())
    found = describe(node_class(), ObservedNodeClass(checked, pins=True, unpinned=hosts), Done())
    conditions = {c.type: c for c in found.conditions}
    assert conditions["CPUsPinned"].status == status
    assert part in conditions["CPUsPinned"].message
    assert conditions["Ready"].status == "True"


def test_a_template_that_does_not_parse_is_reported_with_line_and_column() -> None:
    options = {"type": "cdrom", "templatesRef": {"name": "t", "namespace": "kube-system"}}
    chosen = node_class(metadataOptions=options)
    bad = template_problem(chosen, {"user-data": "#cloud-config\n{{ nope }}"}, {})
    assert bad is not None
    assert bad.reason is NodeClassReason.INVALID_TEMPLATE
    assert "kube-system/t, key user-data: line 2, column" in bad.message
    empty = template_problem(chosen, {"other": ""}, {})
    assert empty is not None
    assert empty.reason is NodeClassReason.SECRET_NOT_FOUND
    good = "{{ .Metadata.Hostname }} {{ .Kubernetes.KubeletConfiguration | toYaml }}"
    assert template_problem(chosen, {"user-data": good}, {}) is None


def test_a_template_is_cloned_on_hosts_of_its_architecture_only() -> None:
    mixed = replace(ZONES[0], architectures={"pve1": "amd64", "pve2": "arm64"})
    checked = check(node_class(region="north"), UBUNTU, (mixed,), NodeClassScope())
    assert [str(z) for z in checked.zones] == ["north/pve1/9000"]


def test_a_managed_template_is_found_by_its_owner_and_revision() -> None:
    built = msgspec.convert(
        {
            "metadata": {"name": "base", "uid": "abc-1"},
            "spec": {
                "sourceImage": {"url": "https://images.example.org/a.qcow2"},
                "storageIDs": ["local"],
                "network": [{"name": "net0", "bridge": "vmbr0"}],
            },
        },
        ProxmoxTemplate,
    )
    owner, now = tags = built_tags(built)
    assert owner == "mox-abc1"
    key = HostKey("north", "pve1")
    by_hand = Template(key, 9000, "base", frozenset())
    old = Template(key, 9001, "base", frozenset({owner, "moxwell-rev-0"}))
    new = Template(key, 9002, "base", frozenset({owner, now}))
    other = Template(key, 9003, "other", frozenset({owner, now}))
    south = Template(HostKey("south", "pve1"), 9000, "base", frozenset())
    assert matching(built, (by_hand, other), tags) == (by_hand,)
    assert matching(built, (by_hand, old), tags) == (old,)
    assert matching(built, (by_hand, old, new, south), tags) == (new, south)


def test_a_security_group_is_for_its_device() -> None:
    groups = [{"name": "web", "interface": "net1"}, {"name": "web"}]
    spec = changeable_spec(node_class(securityGroups=groups), MachineDefaults())
    assert spec["firewallGroups"] == ["web@net1", "web@net0"]
