"""
Provider ID, labels, instance type and addresses of a node, from its guest. Pure.

Labels carry what schedulers and storage need: region, zone, size and HA groups. ``node/plan.py``
decides whether an existing label may be changed.
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
class GuestIdentity:
    """The guest of a node: where it is and what it is."""

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
    agent_addresses: tuple[tuple[str, str], ...] = ()  # interface, address
    agent_running: bool = True


def provider_id(guest: GuestIdentity, features: Features) -> str:
    """``proxmox://region/vmid``; ``proxmox://uuid`` for clusters of CAPMOX."""
    if features.provider == "capmox" and guest.uuid:
        return f"proxmox://{guest.uuid}"
    return f"proxmox://{guest.region}/{guest.vmid}"


def zone(guest: GuestIdentity, features: Features) -> str:
    """The zone of a node; with ``ha_group`` the first group its guest belongs to."""
    group = label_value(guest.ha_groups[0]) if features.ha_group and guest.ha_groups else ""
    return group or guest.zone


def instance_type(guest: GuestIdentity) -> str:
    """The SKU of the guest's SMBIOS if it is a valid label value, else CPUs and memory."""
    if guest.sku and _SKU.match(guest.sku) and len(guest.sku) <= 63:
        return guest.sku
    return f"{guest.cores}VCPU-{max(1, guest.memory_mib // 1024)}GB"


def read_sku(smbios: Mapping[str, str]) -> str:
    """The SKU of an ``smbios1`` property, which may be base64."""
    text = smbios.get("sku", "")
    if smbios.get("base64") == "1" and text:
        try:
            return base64.b64decode(text, validate=True).decode()
        except ValueError:
            return ""
    return text


def topology(guest: GuestIdentity, features: Features) -> dict[str, str]:
    """Region and zone labels, which change with a migration."""
    where = zone(guest, features)
    return {
        REGION: guest.region,
        ZONE: where,
        OLD_REGION: guest.region,
        OLD_ZONE: where,
        f"{PVE}region": guest.region,
        f"{PVE}zone": guest.zone,
    }


def labels(guest: GuestIdentity, features: Features) -> dict[str, str]:
    """All labels of a new node."""
    kind = instance_type(guest)
    found = topology(guest, features) | {TYPE: kind, OLD_TYPE: kind}
    found |= ha_labels(guest)
    found[CAPACITY] = "dedicated" if guest.dedicated else "shared"
    if model := label_value(guest.cpu_model):
        found[CPU_MODEL] = model
    return found


def ha_labels(guest: GuestIdentity) -> dict[str, str]:
    """One label for each HA group or affinity rule of the guest."""
    return {f"{HA}{name}": "" for name in map(label_value, guest.ha_groups) if name}


def label_value(text: str) -> str:
    """A text as a valid label value."""
    return _VALUE.sub("-", text.replace("(R)", "").replace("(TM)", ""))[:63].strip("-_.")


# NodeAddresses


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """The addresses of a node, or why they are not known."""

    found: tuple[NodeAddress, ...] = ()
    why_not: str = ""


def addresses(node: Node, guest: GuestIdentity, features: Features) -> NodeAddresses:
    """The desired ``status.addresses`` of a node."""
    try:
        given = _given(node)
    except ValueError as error:
        return NodeAddresses(why_not=f"the kubelet's --node-ip is not an address: {error}")
    reported = _guest_addresses(guest, features) if features.mode in {"qemu", "auto"} else []
    if features.mode == "qemu" and not reported:
        why = "the guest has no address"
        if not guest.agent_running:
            why = "the guest agent does not answer"
        return NodeAddresses(why_not=f"no addresses yet: {why}")
    missing = [a for a in given if reported and a not in reported]
    if missing:
        has = ", ".join(reported)
        return NodeAddresses(
            why_not=f"the kubelet's --node-ip {missing[0]} is not an address of the guest ({has})"
        )
    known = [a.address for a in node.status.addresses if a.type in {"InternalIP", "ExternalIP"}]
    wanted = _sorted(reported or given or known, features.order)
    if given:
        wanted = _node_ip_first(wanted, given, features)
    rows = [NodeAddress(type=_type(a, features), address=a) for a in wanted]
    host = next((a for a in node.status.addresses if a.type == "Hostname"), None)
    rows.append(host or NodeAddress(type="Hostname", address=node.name))
    return NodeAddresses(tuple(rows))


def _given(node: Node) -> list[str]:
    """The addresses of the kubelet's ``--node-ip``, normalized."""
    texts = node.metadata.annotations.get(NODE_IP, "").split(",")
    return [str(ipaddress.ip_address(text.strip())) for text in texts if text.strip()]


def _guest_addresses(guest: GuestIdentity, features: Features) -> list[str]:
    found = []
    for name, text in guest.agent_addresses:
        address = ipaddress.ip_address(text)
        if _IGNORED.fullmatch(name) or address.is_loopback or address.is_link_local:
            continue
        if address.version == 6 and not features.ipv6:
            continue
        if any(address in network for network in features.excluded):
            continue
        found.append(str(address))
    return found


def _sorted(found: Iterable[str], order: Sequence[Network]) -> list[str]:
    """By the networks of ``ip_sort_order``, then IPv4 before IPv6, then as found."""

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
    """The addresses of ``--node-ip`` first; they are the only ones of their type."""
    taken = {_type(a, features) for a in given}
    return [*given, *(a for a in found if _type(a, features) not in taken)]
