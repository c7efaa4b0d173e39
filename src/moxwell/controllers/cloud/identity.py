"""
What a node is told about itself: provider ID, labels, instance type, addresses. Pure.

Labels carry what schedulers and storage need: region, zone, size, and on which hosts the guest may
run. A label is only ever set to what is true now; whether it may be *changed* is decided elsewhere.
"""

import base64
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moxwell.api.core.nodes import Node, NodeAddress
from moxwell.controllers.cloud.features import Features, Network

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
TYPE, OLD_TYPE = "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"
PVE = "topology.proxmox.sinextra.dev/"
HA = "group.topology.proxmox.sinextra.dev/"
CPU_MODEL, CAPACITY = "node.moxwell.dev/host-cpu-model", "node.moxwell.dev/capacity-class"
INSTANCE_ID = "proxmox.sinextra.dev/instance-id"
NODE_IP = "alpha.kubernetes.io/provided-node-ip"
_SKU = re.compile(r"^[a-zA-Z0-9_.-]+$")
_VALUE = re.compile(r"[^A-Za-z0-9_.-]+")
_IGNORED = re.compile(
    r"lo|(cilium_|dummy|cni|flannel|veth|docker|kube-|cali|lxc|tunl|vxlan|antrea-|ovn|nodelocaldns)"
    r".*|br-[0-9a-f]{12}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a guest is and what it is, as Proxmox says."""

    region: str
    vmid: int
    host: str
    zone: str
    uuid: str = ""
    cores: int = 0
    memory_mib: int = 0
    sku: str = ""
    ha_groups: tuple[str, ...] = ()
    cpu_model: str = ""
    dedicated: bool = False
    inside: tuple[tuple[str, str], ...] = ()  # interface, address; as the agent says
    agent_silent: bool = False


def provider_id(place: Place, features: Features) -> str:
    """``proxmox://region/vmid``, or the form of CAPMOX's clusters."""
    if features.provider == "capmox" and place.uuid:
        return f"proxmox://{place.uuid}"
    return f"proxmox://{place.region}/{place.vmid}"


def zone(place: Place, features: Features) -> str:
    """The zone of a node; with ``ha_group`` the first group its guest belongs to."""
    group = label_value(place.ha_groups[0]) if features.ha_group and place.ha_groups else ""
    return group or place.zone


def instance_type(place: Place) -> str:
    """The SKU in the guest's SMBIOS if it is a label, else its shape."""
    if place.sku and _SKU.match(place.sku) and len(place.sku) <= 63:
        return place.sku
    return f"{place.cores}VCPU-{max(1, place.memory_mib // 1024)}GB"


def read_sku(smbios: Mapping[str, str]) -> str:
    """The SKU of an ``smbios1`` property, which may be coded."""
    text = smbios.get("sku", "")
    if smbios.get("base64") == "1" and text:
        try:
            return base64.b64decode(text, validate=True).decode()
        except ValueError:
            return ""
    return text


def topology(place: Place, features: Features) -> dict[str, str]:
    """The labels that say where; these change with a migration."""
    where = zone(place, features)
    return {
        REGION: place.region,
        ZONE: where,
        OLD_REGION: place.region,
        OLD_ZONE: where,
        f"{PVE}region": place.region,
        f"{PVE}zone": place.zone,
    }


def labels(place: Place, features: Features) -> dict[str, str]:
    """Everything a new node is labelled with."""
    kind = instance_type(place)
    found = topology(place, features) | {TYPE: kind, OLD_TYPE: kind}
    found |= ha_labels(place)
    found[CAPACITY] = "dedicated" if place.dedicated else "shared"
    if model := label_value(place.cpu_model):
        found[CPU_MODEL] = model
    return found


def ha_labels(place: Place) -> dict[str, str]:
    """One for each group or rule the guest belongs to."""
    return {f"{HA}{name}": "" for name in map(label_value, place.ha_groups) if name}


def label_value(text: str) -> str:
    """A text as a label's value: no spaces, no more than 63 characters."""
    return _VALUE.sub("-", text.replace("(R)", "").replace("(TM)", ""))[:63].strip("-_.")


# Addresses


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a node, or the sentence that says why they are not right."""

    found: tuple[NodeAddress, ...] = ()
    why_not: str = ""


def addresses(node: Node, place: Place, features: Features) -> Addresses:
    """What the node's status should list."""
    try:
        given = _given(node)
    except ValueError as error:
        return Addresses(why_not=f"the kubelet's --node-ip is no address: {error}")
    inside = _inside(place, features) if features.mode in {"qemu", "auto"} else []
    if features.mode == "qemu" and not inside:
        silent = place.agent_silent
        why = "the guest agent does not answer" if silent else "the guest has no address"
        return Addresses(why_not=f"no addresses yet: {why}")
    missing = [a for a in given if inside and a not in inside]
    if missing:
        has = ", ".join(inside)
        return Addresses(
            why_not=f"the kubelet's --node-ip {missing[0]} is none of the guest's ({has})"
        )
    known = [a.address for a in node.status.addresses if a.type in {"InternalIP", "ExternalIP"}]
    wanted = _sorted(inside or given or known, features.order)
    if given:
        wanted = _node_ip_first(wanted, given, features)
    rows = [NodeAddress(type=_type(a, features), address=a) for a in wanted]
    host = next((a for a in node.status.addresses if a.type == "Hostname"), None)
    rows.append(host or NodeAddress(type="Hostname", address=node.name))
    return Addresses(tuple(rows))


def _given(node: Node) -> list[str]:
    """What the kubelet was told by ``--node-ip``, each in one spelling."""
    texts = node.metadata.annotations.get(NODE_IP, "").split(",")
    return [str(ipaddress.ip_address(text.strip())) for text in texts if text.strip()]


def _inside(place: Place, features: Features) -> list[str]:
    found = []
    for name, text in place.inside:
        address = ipaddress.ip_address(text)
        if _IGNORED.fullmatch(name) or address.is_loopback or address.is_link_local:
            continue
        if address.version == 6 and not features.ipv6:
            continue
        if any(address in network for network in features.never):
            continue
        found.append(str(address))
    return found


def _sorted(found: Iterable[str], order: Sequence[Network]) -> list[str]:
    """By the networks of the sort order, then IPv4 before IPv6, then as found."""

    def rank(text: str) -> tuple[int, int]:
        address = ipaddress.ip_address(text)
        for number, network in enumerate(order):
            if address in network:
                return (number, address.version)
        return (len(order), address.version)

    return sorted(found, key=rank)


def _type(text: str, features: Features) -> str:
    address = ipaddress.ip_address(text)
    outside = any(address in network for network in features.external)
    return "ExternalIP" if outside else "InternalIP"


def _node_ip_first(found: Sequence[str], given: Sequence[str], features: Features) -> list[str]:
    """The addresses the kubelet was told come first and are the only ones of their type."""
    taken = {_type(a, features) for a in given}
    return [*given, *(a for a in found if _type(a, features) not in taken)]
