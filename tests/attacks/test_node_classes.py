"""
A node class is written by a user of the scaled cluster: it reaches nothing of the operator's or of
another tenant's that the tenant's ProxmoxCluster does not allow.
"""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import (
    ProxmoxTemplateStatus,
    ProxmoxUnmanagedTemplate,
    ProxmoxUnmanagedTemplateSpec,
)
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.karpenter.proxmox import machine_objects
from moxwell.controllers.karpenter.proxmox.instance_record import (
    InstanceRecord,
    machine_name,
)
from moxwell.controllers.karpenter.proxmox.node_class.plan import ObservedNodeClass, next_move
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    CheckedNodeClass,
    ZoneContents,
    check,
)
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults, scope_of
from moxwell.pve.ownership import user_tags
from moxwell.runtime.key import Key
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.testing.karpenter_environment import node_claim

PUBLIC = Template(HostKey("north", "pve1"), 9000, "ubuntu", frozenset({"k8s-v1.34.1"}))
SECRET = Template(HostKey("north", "pve1"), 9100, "finance", frozenset({"finance"}))
ZONE = ZoneContents(
    "north",
    "",
    frozenset({"pve1"}),
    frozenset({"tenant", "tenant-b", "operator"}),
    {"pve1": frozenset({"ceph", "vault"})},
    (PUBLIC, SECRET),
    frozenset({"tenant", "open"}),
)
CLUSTER = msgspec.convert({"metadata": {"name": "c"}, "spec": {"pool": "tenant"}}, ProxmoxCluster)
NETWORK = {"networkDevices": [{"name": "net0", "bridge": "tenant", "vlan": 7, "firewall": True}]}
DEFAULTS = MachineDefaults({"network": NETWORK, "firewallGroups": ["tenant"]})
SCOPE = scope_of(CLUSTER, DEFAULTS, trusted=False)


def node_class(**spec: Any) -> ProxmoxNodeClass:
    ref = {"kind": "ProxmoxUnmanagedTemplate", "name": "t"}
    tree = {"metadata": {"name": "default"}, "spec": {"instanceTemplateRef": ref} | spec}
    return msgspec.convert(tree, ProxmoxNodeClass)


def template(name: str = "ubuntu", zones: tuple[str, ...] = ()) -> ProxmoxUnmanagedTemplate:
    return ProxmoxUnmanagedTemplate(
        metadata=ObjectMeta(name="t"),
        spec=ProxmoxUnmanagedTemplateSpec(template_name=name),
        status=ProxmoxTemplateStatus(zones=zones),
    )


def checked(
    given: ProxmoxNodeClass, source: ProxmoxUnmanagedTemplate | None = None
) -> CheckedNodeClass:
    return check(given, source or template(), (ZONE,), SCOPE)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourcePool": "operator"},
        {"resourcePool": "tenant-b"},
        {"bootDevice": {"storage": "vault"}},
        {"securityGroups": [{"name": "open"}]},
        {"region": "south"},
        {"tags": ["mox-00000000000040008000000000000000"]},
        {"tags": ["MOXWELL"]},
    ],
)
def test_what_the_cluster_does_not_have_is_refused(spec: dict[str, Any]) -> None:
    found = checked(node_class(**spec))
    assert found.problems
    assert found.zones == ()


def test_a_template_of_another_tenant_is_as_if_it_did_not_exist() -> None:
    private = checked(node_class(), template("finance"))
    missing = checked(node_class(), template("nothing"))
    assert private.zones == missing.zones == ()
    assert private.problems == missing.problems


def test_a_forged_status_selects_no_template() -> None:
    forged = template("finance", zones=("north/pve1/9100",))
    assert checked(node_class(), forged).zones == ()


def test_refused_changes_do_not_reach_machines_that_exist() -> None:
    wrong = node_class(securityGroups=[{"name": "open"}])
    machine = machine_objects.changeable_spec(wrong, DEFAULTS)
    assert machine["firewallGroups"] == ["tenant", "open@net0"]  # what would be written
    move = next_move(wrong, ObservedNodeClass(checked(wrong), defaults=DEFAULTS))
    assert "proxmoxmachine" not in str(move).lower()


def machine_spec(given: ProxmoxNodeClass) -> ProxmoxMachineSpec:
    record = InstanceRecord(
        instance_type="c1",
        node_class="default",
        class_hash="1",
        region="north",
        host="pve1",
        template=9000,
        template_host="pve1",
        disk_gib=30,
    )
    tree = node_claim("a", {})
    tree["metadata"]["uid"] = "u-1"
    claim = msgspec.convert(tree, NodeClaim)
    body = machine_objects.machine(Key("n", "c"), "m", claim, record, {}, "")
    owner = msgspec.convert(body, Machine)
    made = machine_objects.proxmox_machine(owner, record, given, DEFAULTS)
    return msgspec.convert(made["spec"], ProxmoxMachineSpec)


def test_the_operators_network_and_firewall_stay() -> None:
    spec = machine_spec(node_class(securityGroups=[{"name": "tenant", "interface": "net0"}]))
    assert spec.network is not None
    (device,) = spec.network.network_devices
    assert (device.bridge, device.vlan, device.firewall) == ("tenant", 7, True)
    assert spec.firewall_groups == ("tenant",)
    assert user_tags(machine_spec(node_class(tags=["moxwell", "blue"])).tags) == ("blue",)


def test_a_security_group_does_not_add_a_device_without_the_operators_bridge() -> None:
    spec = machine_spec(node_class(securityGroups=[{"name": "tenant", "interface": "net3"}]))
    assert spec.network is not None
    assert [d.name for d in spec.network.network_devices] == ["net0"]


def test_names_of_two_clusters_do_not_collide() -> None:
    assert machine_name("a", "b-c", "u") != machine_name("a-b", "c", "u")
    assert machine_name("a", "b", "u-1") != machine_name("a", "b", "u-2")
