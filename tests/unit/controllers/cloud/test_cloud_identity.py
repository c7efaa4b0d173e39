"""Tables of node identities, node plans and features."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.api.core.nodes import Node, NodeAddress, NodeSpec, NodeStatus, NodeSystemInfo, Taint
from moxwell.api.meta import ObjectMeta
from moxwell.config_file import InvalidConfig
from moxwell.controllers.cloud import features as settings
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import GuestGone, GuestUnknown, NotAGuest
from moxwell.controllers.cloud.identity import GuestIdentity
from moxwell.controllers.cloud.loops import REFRESH_SECONDS
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.node.controller import (
    RETRY_SECONDS,
    CloudNodeReconciler,
)
from moxwell.pve import config
from moxwell.runtime.move import Done, Wait

SHARED = Path(__file__).parents[5] / "shared" / "manifests" / "ccm"
UUID = "11111111-2222-3333-4444-555555555555"
GUEST = GuestIdentity(
    region="r1", vmid=101, host="pve1", zone="pve1", uuid=UUID, cores=4, memory_mib=8192
)


def node(*taints: str, provider: str = "", addresses: Any = (), **meta: Any) -> Node:
    rows = tuple(Taint(key=t, effect="NoSchedule") for t in taints)
    return Node(
        metadata=ObjectMeta(name="w1", resource_version="7", **meta),
        spec=NodeSpec(provider_id=provider, taints=rows),
        status=NodeStatus(addresses=tuple(addresses), node_info=NodeSystemInfo(system_uuid=UUID)),
    )


@pytest.mark.parametrize(
    "features, text",
    [
        pytest.param(Features(), "proxmox://r1/101", id="region and vmid"),
        pytest.param(Features(provider="capmox"), f"proxmox://{UUID}", id="the form of CAPMOX"),
    ],
)
def test_provider_id(features: Features, text: str) -> None:
    assert identity.provider_id(GUEST, features) == text


@pytest.mark.parametrize(
    "sku, name",
    [
        pytest.param("", "4VCPU-8GB", id="by shape"),
        pytest.param("u1.large", "u1.large", id="by SKU"),
        pytest.param("not a label!", "4VCPU-8GB", id="a SKU that is no label"),
    ],
)
def test_instance_type(sku: str, name: str) -> None:
    from dataclasses import replace

    assert identity.instance_type(replace(GUEST, sku=sku)) == name


def test_a_base64_sku_is_decoded() -> None:
    assert identity.read_sku({"base64": "1", "sku": "dTEubGFyZ2U="}) == "u1.large"
    assert identity.read_sku({"base64": "1", "sku": "***"}) == ""


def test_topology_labels_are_set_in_both_forms() -> None:
    labels = identity.labels(GUEST, Features())
    assert labels[identity.REGION] == labels[identity.OLD_REGION] == "r1"
    assert labels[identity.ZONE] == labels["topology.proxmox.sinextra.dev/zone"] == "pve1"
    assert labels[identity.TYPE] == labels[identity.OLD_TYPE] == "4VCPU-8GB"


def test_an_ha_group_can_be_the_zone() -> None:
    from dataclasses import replace

    grouped = replace(GUEST, ha_groups=("rack-a",))
    labels = identity.labels(grouped, Features(ha_group=True))
    assert labels[identity.ZONE] == "rack-a"
    assert labels["topology.proxmox.sinextra.dev/zone"] == "pve1"
    assert labels["group.topology.proxmox.sinextra.dev/rack-a"] == ""


def test_a_cpu_model_becomes_a_label() -> None:
    name = "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz"
    assert identity.label_value(name) == "Intel-Xeon-Gold-6230-CPU-2.10GHz"


QEMU = {"features": {"network": {"mode": "qemu"}}}


@pytest.mark.parametrize(
    "network, inside, given, rows",
    [
        pytest.param(
            {"mode": "qemu"},
            [("eth0", "10.0.0.5"), ("lo", "127.0.0.1")],
            "",
            ["InternalIP 10.0.0.5"],
            id="from the agent, without loopback",
        ),
        pytest.param(
            {"mode": "qemu", "external_ip_cidrs": "203.0.113.0/24"},
            [("eth0", "10.0.0.5"), ("eth1", "203.0.113.9")],
            "",
            ["InternalIP 10.0.0.5", "ExternalIP 203.0.113.9"],
            id="external by network",
        ),
        pytest.param(
            {"mode": "qemu", "external_ip_cidrs": "!10.1.0.0/16"},
            [("eth0", "10.0.0.5"), ("eth1", "10.1.0.9")],
            "",
            ["InternalIP 10.0.0.5"],
            id="an excluded network is dropped",
        ),
        pytest.param(
            {"mode": "qemu", "ip_sort_order": "10.2.0.0/16"},
            [("eth0", "10.0.0.5"), ("eth1", "10.2.0.9")],
            "",
            ["InternalIP 10.2.0.9", "InternalIP 10.0.0.5"],
            id="sort order sorts and drops nothing",
        ),
        pytest.param(
            {"mode": "qemu", "ipv6_support_disabled": True},
            [("eth0", "10.0.0.5"), ("eth0", "2001:db8::5")],
            "",
            ["InternalIP 10.0.0.5"],
            id="no IPv6",
        ),
        pytest.param(
            {"mode": "auto"},
            [("eth0", "10.0.0.5"), ("eth0", "2001:db8::5")],
            "2001:db8::5",
            ["InternalIP 2001:db8::5"],
            id="the node IP is the only one of its type",
        ),
        pytest.param(
            {"mode": "auto", "external_ip_cidrs": "203.0.113.0/24"},
            [("eth1", "203.0.113.9"), ("eth0", "10.0.0.5"), ("eth0", "10.0.0.6")],
            "10.0.0.6",
            ["InternalIP 10.0.0.6", "ExternalIP 203.0.113.9"],
            id="the node IP comes first, other types stay",
        ),
        pytest.param(
            {"mode": "qemu"},
            [("eth0", "10.0.0.5"), ("eth0", "2001:db8::5")],
            "10.0.0.5,2001:DB8:0::5",
            ["InternalIP 10.0.0.5", "InternalIP 2001:db8::5"],
            id="dual stack, whatever the spelling",
        ),
        pytest.param(
            {"mode": "default"}, [], "10.0.0.7", ["InternalIP 10.0.0.7"], id="as the kubelet says"
        ),
        pytest.param(
            {"mode": "default"}, [("eth0", "10.0.0.5")], "", [], id="the kubelet says nothing"
        ),
        pytest.param(
            {"mode": "auto"},
            [("lo", "127.0.0.1"), ("eth0", "10.0.0.5"), ("cni0", "10.244.0.1")],
            "",
            ["InternalIP 10.0.0.5"],
            id="the kubelet says nothing, the agent does",
        ),
    ],
)
def test_addresses(network: Any, inside: Any, given: str, rows: list[str]) -> None:
    from dataclasses import replace

    features = settings.from_mapping({"network": network})
    notes = {identity.NODE_IP: given} if given else {}
    found = identity.addresses(
        node(annotations=notes), replace(GUEST, agent_addresses=tuple(inside)), features
    )
    listed = [f"{a.type} {a.address}" for a in found.found]
    assert listed == [*rows, "Hostname w1"]


def test_a_node_ip_that_the_guest_does_not_have_is_named() -> None:
    from dataclasses import replace

    features = settings.from_mapping({"network": {"mode": "qemu"}})
    wrong = node(annotations={identity.NODE_IP: "10.0.0.99"})
    found = identity.addresses(
        wrong, replace(GUEST, agent_addresses=(("eth0", "10.0.0.5"),)), features
    )
    assert "10.0.0.99" in found.why_not
    assert "10.0.0.5" in found.why_not


def test_a_node_ip_that_is_no_address_is_named() -> None:
    wrong = node(annotations={identity.NODE_IP: "eth0"})
    assert "eth0" in identity.addresses(wrong, GUEST, Features()).why_not


def plan_of(
    subject: Node,
    result: Any,
    guest: GuestIdentity | None,
    features: Features,
    *,
    pinned: bool = False,
) -> plan.CloudNodeMove:
    seen = plan.ObservedCloudNode(result=result, guest=guest, pinned=pinned)
    return plan.plan_node(subject, seen, features)


KEPT = (
    NodeAddress(type="InternalIP", address="10.0.0.5"),
    NodeAddress(type="Hostname", address="w1"),
)


@pytest.mark.parametrize(
    "subject, answer, guest, move",
    [
        pytest.param(node(plan.TAINT), NotAGuest(), None, Done, id="another cloud's node"),
        pytest.param(node(plan.TAINT), GuestUnknown("silent"), None, Wait, id="a silent region"),
        pytest.param(
            node(plan.TAINT), GuestGone("guest 101"), None, Wait, id="no guest, no identity"
        ),
        pytest.param(node(plan.TAINT), "found", GUEST, plan.InitializeCloudNode, id="a new node"),
        pytest.param(
            node(addresses=KEPT, provider="proxmox://r1/101"),
            "found",
            GUEST,
            Done,
            id="an old node, nothing new",
        ),
        pytest.param(
            node(addresses=KEPT), "found", GUEST, Wait, id="a kubelet without an external cloud"
        ),
        pytest.param(
            node(plan.TAINT, provider="proxmox://r1/999"),
            "found",
            GUEST,
            Wait,
            id="a provider ID that names another guest",
        ),
        pytest.param(node(plan.TAINT), NotAGuest("no such UUID"), None, Wait, id="nobody's node"),
    ],
)
def test_plan(subject: Node, answer: Any, guest: GuestIdentity | None, move: type) -> None:
    assert isinstance(plan_of(subject, answer, guest, Features()), move)


def test_one_write_gives_everything() -> None:
    move = plan_of(node(plan.TAINT, "other"), "found", GUEST, Features())
    assert isinstance(move, plan.InitializeCloudNode)
    spec = move.change["spec"]
    assert spec["providerID"] == "proxmox://r1/101"
    assert [t["key"] for t in spec["taints"]] == ["other"]
    assert move.change["metadata"]["labels"][identity.ZONE] == "pve1"


def test_a_provider_id_that_is_there_is_not_touched() -> None:
    subject = node(plan.TAINT, provider="proxmox://r1/101")
    move = plan_of(subject, "found", GUEST, Features())
    assert isinstance(move, plan.InitializeCloudNode)
    assert "providerID" not in move.change["spec"]


@pytest.mark.parametrize(
    "inside, young, seconds",
    [
        pytest.param((), True, RETRY_SECONDS, id="the agent does not run yet"),
        pytest.param((), False, REFRESH_SECONDS, id="it has no agent"),
        pytest.param((("eth0", "10.0.0.5"),), True, REFRESH_SECONDS, id="it has an address"),
    ],
)
@pytest.mark.parametrize("taints", [(plan.TAINT,), ()], ids=["new", "initialized"])
def test_a_young_node_without_address_is_looked_at_again_soon(
    taints: tuple[str, ...], inside: tuple[tuple[str, str], ...], young: bool, seconds: float
) -> None:
    from dataclasses import replace

    nothing: Any = None  # the answer depends on the arguments only
    made = CloudNodeReconciler(
        nothing, nothing, Features(mode="auto"), nothing, clock=nothing, metrics=nothing
    )
    labels, host = {identity.REGION: "r1"}, NodeAddress(type="Hostname", address="w1")
    subject = node(*taints, provider="proxmox://r1/101", labels=labels, addresses=[host])
    result: Any = "found"
    guest = replace(GUEST, agent_addresses=inside, agent_running=bool(inside))
    seen = plan.ObservedCloudNode(result=result, guest=guest, young=young)
    assert made.requeue_after(subject, seen, made.plan(subject, seen)) == seconds


OLD = {identity.OLD_ZONE: "a", identity.OLD_REGION: "r", identity.OLD_TYPE: "t"}


@pytest.mark.parametrize(
    "labels, wanted",
    [
        pytest.param({}, {}, id="none of either generation"),
        pytest.param({identity.ZONE: "a"}, {}, id="only today's"),
        pytest.param(
            OLD,
            {identity.ZONE: "a", identity.REGION: "r", identity.TYPE: "t"},
            id="today's are added",
        ),
        pytest.param(
            {identity.OLD_ZONE: "a", identity.ZONE: "b"}, {identity.ZONE: "a"}, id="the older wins"
        ),
    ],
)
def test_generations(labels: dict[str, str], wanted: dict[str, str]) -> None:
    assert plan.current_labels(labels) == wanted


def test_a_group_that_was_left_loses_its_label() -> None:
    subject = node(labels={f"{identity.HA}old": ""})
    assert plan.topology_labels(subject, GUEST, Features())[f"{identity.HA}old"] is None


MOVED = {identity.ZONE: "pve9", identity.REGION: "r1"}


@pytest.mark.parametrize(
    "force, pinned, move",
    [
        pytest.param(False, False, Done, id="not asked to"),
        pytest.param(True, False, plan.RelabelNode, id="asked to"),
        pytest.param(True, True, Wait, id="a local volume holds it"),
    ],
)
def test_labels_follow_a_migration(force: bool, pinned: bool, move: type) -> None:
    features = Features(force_update_labels=force)
    subject = node(labels=MOVED, addresses=KEPT)
    assert isinstance(plan_of(subject, "found", GUEST, features, pinned=pinned), move)


@pytest.mark.parametrize(
    "features, says",
    [
        pytest.param({"providr": "x"}, "providr", id="a misspelt key"),
        pytest.param({"network": {"mood": "qemu"}}, "network: unknown mood", id="inside network"),
        pytest.param({"network": {"mode": "magic"}}, "magic", id="a mode nobody knows"),
        pytest.param({"provider": "gcp"}, "gcp", id="another provider"),
        pytest.param({"network": {"external_ip_cidrs": "10.0.0"}}, "10.0.0", id="no network"),
        pytest.param({"load_balancer": {"mode": "haproxy"}}, "haproxy", id="a balancer mode"),
        pytest.param({"load_balancer": {"mode": "ipam"}}, "pool", id="a balancer without pool"),
        pytest.param({"load_balancer": {"pool": "10.0.0"}}, "10.0.0", id="a pool of nothing"),
        pytest.param({"load_balancer": {"vnet": "v"}}, "zone", id="a vnet without zone"),
        pytest.param({"ha_group": "perhaps"}, "ha_group must be true or false", id="not a boolean"),
    ],
)
def test_bad_features_are_named(features: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        settings.from_mapping(features)


def test_a_text_false_is_false() -> None:
    assert not settings.from_mapping({"ha_group": "false"}).ha_group


def test_the_documentations_flat_network_is_read() -> None:
    assert settings.from_mapping({"network": "qemu"}).mode == "qemu"
    assert settings.from_mapping({"mode": "auto"}).mode == "auto"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the upstream manifests are not beside the project")
def test_upstream_configuration_is_read_as_it_is() -> None:
    text = (SHARED / "cluster-config-1.yaml").read_text()
    assert settings.parse(text) == Features()
    assert [c.region for c in config.parse(text)] == ["cluster-1", "cluster-2"]
