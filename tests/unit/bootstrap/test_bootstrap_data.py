"""The bootstrap ISO: identity, network and bootstrap data for cloud-init, Ignition and Talos."""

import json
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.infra.mac_address import choose_mac
from moxwell.bootstrap.bootstrap_data import (
    BootstrapData,
    BootstrapIdentity,
    GuestLocation,
    nocloud_files,
)
from moxwell.bootstrap.iso import build_iso, read_iso
from moxwell.bootstrap.network import (
    GuestNetwork,
    InterfaceAddress,
    Nic,
    RoutingRule,
    StaticRoute,
    Vrf,
)
from moxwell.bootstrap.vendor_data import EMPTY
from moxwell.errors import Invalid

ME = BootstrapIdentity("worker-1", "proxmox://region-1/10001", "v1.31.4")
MAC = choose_mac("uid", "net0")
STATIC = Nic(
    "net0",
    MAC,
    (
        InterfaceAddress("10.0.0.5", 24, "10.0.0.1", 100),
        InterfaceAddress("2001:db8::5", 64, "2001:db8::1"),
    ),
    dns=("8.8.8.8",),
)
DHCP = Nic("net1", choose_mac("uid", "net1"), dhcp4=True, mtu=1400)
ROUTED = Nic(
    "net2",
    choose_mac("uid", "net2"),
    (InterfaceAddress("192.0.2.7", 24, "192.0.2.1"),),
    routes=(StaticRoute("default", "192.0.2.1", 50, 500), StaticRoute("default", is6=True)),
    policies=(RoutingRule(from_="192.0.2.0/24", table=500, priority=100),),
    default4=False,
)
VRF = Vrf(
    "vrf-ext",
    500,
    ("net2",),
    (StaticRoute("10.8.0.0/16", "192.0.2.1"),),
    (RoutingRule(to="default"),),
)
NETWORK = GuestNetwork((STATIC, DHCP, ROUTED), (VRF,))


def files(
    bootstrap: BootstrapData, network: GuestNetwork = NETWORK, who: BootstrapIdentity = ME
) -> dict[str, bytes]:
    return nocloud_files(bootstrap, who, network)


def test_the_place_is_there_for_labels_of_the_node() -> None:
    who = BootstrapIdentity("w", "proxmox://r/1", place=GuestLocation("r", "zone-a", "pve1"))
    meta = yaml.safe_load(files(BootstrapData(), who=who)["meta-data"])
    assert (meta["region"], meta["zone"], meta["proxmox-node"]) == ("r", "zone-a", "pve1")
    assert "zone" not in yaml.safe_load(files(BootstrapData())["meta-data"])


def test_network_config_v2() -> None:
    config = yaml.safe_load(files(BootstrapData())["network-config"])
    assert config["version"] == 2
    assert config["ethernets"]["eth0"] == {
        "match": {"macaddress": MAC.lower()},
        "set-name": "eth0",
        "dhcp4": False,
        "dhcp6": False,
        "addresses": ["10.0.0.5/24", "2001:db8::5/64"],
        "routes": [
            {"to": "0.0.0.0/0", "via": "10.0.0.1", "metric": 100},
            {"to": "::/0", "via": "2001:db8::1"},
        ],
        "nameservers": {"addresses": ["8.8.8.8"]},
    }
    assert config["ethernets"]["eth1"]["dhcp4"] is True
    assert config["ethernets"]["eth1"]["mtu"] == 1400
    assert config["ethernets"]["eth2"]["routes"] == [
        {"to": "0.0.0.0/0", "via": "192.0.2.1", "metric": 50, "table": 500},
        {"to": "::/0", "scope": "link"},
    ]
    assert config["ethernets"]["eth2"]["routing-policy"] == [
        {"from": "192.0.2.0/24", "table": 500, "priority": 100}
    ]
    assert config["vrfs"]["vrf-ext"] == {
        "table": 500,
        "interfaces": ["eth2"],
        "routes": [{"to": "10.8.0.0/16", "via": "192.0.2.1"}],
        "routing-policy": [{"to": "0.0.0.0/0", "table": 500}],
    }


def test_instance_id_makes_everybodys_kubeadm_line_right() -> None:
    meta = yaml.safe_load(files(BootstrapData())["meta-data"])
    assert "proxmox://" + meta["instance-id"] == ME.provider_id == meta["provider-id"]
    assert meta["local-hostname"] == "worker-1"
    assert meta["kubernetes-version"] == "v1.31.4"


def test_user_data_goes_through_unchanged() -> None:
    data = b"## template: jinja\n#cloud-config\n{{ ds.meta_data.instance_id }}\n"
    assert files(BootstrapData(data))["user-data"] == data


def test_no_bootstrap_data_is_a_bare_machine() -> None:
    assert files(BootstrapData())["user-data"].startswith(b"#cloud-config\n")


@pytest.mark.parametrize("spec", ["2.3.0", "3.4.0"])
def test_ignition_merge(spec: str) -> None:
    theirs: dict[str, Any] = {"path": "/etc/hostname", "contents": {"source": "data:,theirs"}}
    document = {"ignition": {"version": spec}, "storage": {"files": [theirs]}}
    merged = json.loads(
        files(BootstrapData(json.dumps(document).encode(), "ignition"))["user-data"]
    )
    by_path = {f["path"]: f for f in merged["storage"]["files"]}
    assert by_path["/etc/hostname"] == theirs
    assert ("filesystem" in by_path["/etc/proxmox-env"]) == spec.startswith("2.")
    unit = unquote(by_path["/etc/systemd/network/00-eth0.network"]["contents"]["source"])
    assert f"MACAddress={MAC.lower()}" in unit
    assert "Address=10.0.0.5/24" in unit
    assert "Gateway=10.0.0.1\nMetric=100" in unit
    vrf = unquote(by_path["/etc/systemd/network/00-eth2.network"]["contents"]["source"])
    assert "VRF=vrf-ext" in vrf
    assert "[RoutingPolicyRule]\nFrom=192.0.2.0/24\nTable=500\nPriority=100" in vrf


def test_ignition_leaves_the_network_to_networkd() -> None:
    made = files(BootstrapData(b'{"ignition":{"version":"3.4.0"}}', "ignition"))
    assert yaml.safe_load(made["network-config"]) == {"version": 1, "config": []}


def test_talos_gets_its_provider_id() -> None:
    config = b"version: v1alpha1\nmachine:\n  type: worker\n---\napiVersion: v1alpha1\nkind: X\n"
    made = list(yaml.safe_load_all(files(BootstrapData(config, "talos"))["user-data"]))
    assert made[0]["machine"]["kubelet"]["extraArgs"] == {"provider-id": ME.provider_id}
    assert made[0]["machine"]["network"]["hostname"] == "worker-1"
    assert made[1]["kind"] == "X"


@pytest.mark.parametrize(
    "data", [b"version: v1alpha1\nmachine: {type: controlplane}\n", b"## anything\n"]
)
def test_data_without_a_format_is_passed_unchanged(data: bytes) -> None:
    """Cluster API's Talos provider names no format in its Secrets."""
    made = files(BootstrapData(data))
    assert made["user-data"] == data
    assert yaml.safe_load(made["meta-data"])["local-hostname"] == "worker-1"


@pytest.mark.parametrize(
    "bootstrap",
    [
        pytest.param(BootstrapData(b"not json", "ignition"), id="ignition that is no JSON"),
        pytest.param(BootstrapData(b"[]", "ignition"), id="ignition that is no object"),
        pytest.param(BootstrapData(b"a: [", "talos"), id="talos that is no YAML"),
        pytest.param(BootstrapData(b"a: b", "talos"), id="talos without machine"),
        pytest.param(BootstrapData(b"- b", "talos"), id="talos that is a list"),
        pytest.param(BootstrapData(b"", "kickstart"), id="an unknown format"),
    ],
)
def test_wrong_bootstrap_data_is_a_sentence(bootstrap: BootstrapData) -> None:
    with pytest.raises(Invalid, match="bootstrap"):
        files(bootstrap)


def test_bootstrap_data_is_never_printed() -> None:
    assert "token" not in repr(BootstrapData(b"token: abc"))


names = st.text("abcdefghij-", min_size=1, max_size=20)


@settings(deadline=None)
@given(content=st.dictionaries(names, st.binary(max_size=4096), min_size=1, max_size=4))
def test_iso_round_trip_and_same_bytes(content: dict[str, bytes]) -> None:
    image = build_iso(content)
    assert read_iso(image) == content
    assert image == build_iso(dict(reversed(content.items())))
    assert image[0x8028:0x8048].rstrip() == b"cidata"


@settings(deadline=None)
@given(owner=st.uuids(), n=st.integers(0, 31))
def test_macs_are_valid_and_stable(owner: object, n: int) -> None:
    mac = choose_mac(str(owner), f"net{n}")
    assert mac == choose_mac(str(owner), f"net{n}")
    assert mac.startswith("BC:24:11:")
    assert len(mac) == 17


@pytest.mark.parametrize("script", [EMPTY, b"#!/bin/sh\necho x\n"], ids=["none", "software"])
def test_cloud_init_keeps_the_instance_when_it_boots_without_the_iso(script: bytes) -> None:
    """A genuine guest boots again in tests/real/test_real_join.py."""
    lines = files(BootstrapData(b"#cloud-config\n{}\n", script=script))["vendor-data"].splitlines()
    assert lines[:2] == [b"#!/bin/sh", b"touch /var/lib/cloud/instance/manual-clean"]
    assert lines[2:] == script.splitlines()[1:]
