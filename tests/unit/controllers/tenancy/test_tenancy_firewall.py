"""The security group of a tenant: names, networks, rules and steps."""

from typing import Any

import msgspec
import pytest

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.tenant import firewall
from moxwell.errors import Invalid
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup
from moxwell.pve.steps.security_groups import rule_changes


def tenant(*allowed: str) -> Tenant:
    spec = {"network": {"allowFrom": list(allowed)}}
    return msgspec.convert({"metadata": {"name": "red"}, "spec": spec}, Tenant)


def rule(source: str, **more: Any) -> FirewallRule:
    return FirewallRule(**{"type": "in", "action": "ACCEPT", "enable": 1, "source": source, **more})


@pytest.mark.parametrize(
    ("space", "name"),
    [
        pytest.param("tenant-red", "mox-red", id="as the tenant is called"),
        pytest.param("tenant-red-very-long-one", "mox-9d9e3d4ab8c1", id="a hash if it is long"),
    ],
)
def test_group_names_are_valid_in_proxmox(space: str, name: str) -> None:
    found = firewall.group_name(space)
    assert len(found) <= firewall.MAX_NAME_LENGTH
    assert found == name or (len(name) == len(found) and found.startswith("mox-"))


def test_networks_are_normalized() -> None:
    assert firewall.allowed_networks(tenant("10.1.2.3/8", "fd00::/8", "10.0.0.0/8")) == (
        "10.0.0.0/8",
        "fd00::/8",
    )


def test_an_invalid_network_is_refused() -> None:
    with pytest.raises(Invalid, match="'everybody' is not a network"):
        firewall.allowed_networks(tenant("everybody"))


def test_the_comment_names_the_owner() -> None:
    ours = SecurityGroup(group="mox-red", comment="moxwell-tenant=tenant-red")
    assert firewall.is_owned(ours, "tenant-red")
    assert not firewall.is_owned(ours, "tenant-re")
    assert not firewall.is_owned(SecurityGroup(group="mox-red"), "tenant-red")


CHANGES: dict[
    str, tuple[tuple[str, ...], tuple[FirewallRule, ...], tuple[str, ...], tuple[int, ...]]
] = {
    "a new group": (("a/8", "b/8"), (), ("a/8", "b/8"), ()),
    "as it should be": (("a/8",), (rule("a/8"),), (), ()),
    "one more": (("a/8", "b/8"), (rule("a/8"),), ("b/8",), ()),
    "one less": (("a/8",), (rule("b/8", pos=0), rule("a/8", pos=1)), (), (0,)),
    "twice the same": (("a/8",), (rule("a/8", pos=0), rule("a/8", pos=1)), (), (1,)),
    "turned off by hand": (("a/8",), (rule("a/8", enable=0, pos=0),), ("a/8",), (0,)),
    "narrowed by hand": (("a/8",), (rule("a/8", dport="22", pos=0),), ("a/8",), (0,)),
    "opened by hand": (("a/8",), (rule("", pos=0), rule("a/8", pos=1)), (), (0,)),
}


@pytest.mark.parametrize(("wanted", "there", "add", "drop"), CHANGES.values(), ids=CHANGES)
def test_rules_are_added_and_removed(
    wanted: tuple[str, ...],
    there: tuple[FirewallRule, ...],
    add: tuple[str, ...],
    drop: tuple[int, ...],
) -> None:
    made, gone = rule_changes(tuple(rule(network) for network in wanted), there)
    assert (tuple(r.source for r in made), gone) == (add, drop)


def cluster(**defaults: Any) -> Any:
    known = Defaults(regions=(RegionDefaults(name="north"),), **defaults)
    spec = {
        "nodeGroups": [{"name": "a", "replicas": 1}],
        "credentialsRef": {"name": "proxmox", "namespace": "other"},
    }
    if not defaults.get("tenant"):
        del spec["credentialsRef"]
    meta = {"name": "c", "namespace": "tenant-red", "uid": "u"}
    app = msgspec.convert({"metadata": meta, "spec": spec}, Kubernetes)
    (template,) = [o for o in expand(app, known) if o["kind"] == "ProxmoxMachineTemplate"]
    return template["spec"]["template"]["spec"]


def test_nodes_of_a_tenant_have_its_firewall_group() -> None:
    spec = cluster(firewall_group="mox-red", bridge="red")
    assert spec["firewallGroups"] == ["mox-red"]
    assert spec["network"]["networkDevices"][0]["firewall"] is True
    assert spec["network"]["networkDevices"][0]["bridge"] == "red"


def test_nodes_have_no_firewall_group_by_default() -> None:
    assert "firewallGroups" not in cluster()


def test_credentials_of_another_namespace_are_refused() -> None:
    with pytest.raises(Invalid, match="only use Secrets of its own"):
        cluster(tenant="red")
