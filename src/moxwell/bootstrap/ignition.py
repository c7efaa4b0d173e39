"""
Merges hostname, environment and network into an Ignition document for Flatcar. Pure.

The document is that of the kubeadm bootstrap provider (spec 2.x or 3.x). Files that it already
contains stay as they are. Spec 2.x needs ``filesystem`` beside a path, and 3.x has no section
``networkd``, so networkd units are written as files in both.
"""

import json
from typing import Any
from urllib.parse import quote

from moxwell.bootstrap.network import (
    GuestNetwork,
    Nic,
    RoutingRule,
    StaticRoute,
    Vrf,
    destination,
    gateway_routes,
)
from moxwell.errors import Invalid

_UNITS = "/etc/systemd/network"


def merge(data: bytes, hostname: str, provider_id: str, network: GuestNetwork) -> bytes:
    """The document with our files added."""
    document = _parse(data)
    old_spec = str(document["ignition"].get("version", "")).startswith("2.")
    files = document.setdefault("storage", {}).setdefault("files", [])
    there = {f.get("path") for f in files}
    for path, text in _files(hostname, provider_id, network).items():
        if path not in there:
            files.append(_file(path, text, old_spec))
    return json.dumps(document, separators=(",", ":")).encode()


def _parse(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data or b'{"ignition":{"version":"3.4.0"}}')
    except ValueError as error:
        raise Invalid("the bootstrap data says it is Ignition but is not JSON") from error
    if not isinstance(document, dict) or not isinstance(document.get("ignition"), dict):
        raise Invalid("the bootstrap data says it is Ignition but has no `ignition` section")
    return document


def _file(path: str, text: str, old_spec: bool) -> dict[str, Any]:
    file: dict[str, Any] = {"path": path, "contents": {"source": f"data:,{quote(text)}"}}
    file["mode"] = 0o644
    if old_spec:
        file["filesystem"] = "root"
    else:
        file["overwrite"] = True
    return file


def _files(hostname: str, provider_id: str, network: GuestNetwork) -> dict[str, str]:
    env = {
        "COREOS_CUSTOM_HOSTNAME": hostname,
        "COREOS_CUSTOM_INSTANCE_ID": provider_id.removeprefix("proxmox://"),
        "COREOS_CUSTOM_PROVIDER_ID": provider_id,
    }
    files = {
        "/etc/hostname": hostname + "\n",
        "/etc/proxmox-env": "".join(f"{k}={v}\n" for k, v in env.items()),
    }
    masters = {name: vrf.name for vrf in network.vrfs for name in vrf.interfaces}
    for nic in network.nics:
        files[f"{_UNITS}/00-{nic.inside}.network"] = _network_unit(nic, masters.get(nic.name, ""))
    for vrf in network.vrfs:
        files[f"{_UNITS}/00-{vrf.name}.netdev"] = _netdev_unit(vrf)
        files[f"{_UNITS}/00-{vrf.name}.network"] = _vrf_unit(vrf)
    return files


def _network_unit(nic: Nic, master: str) -> str:
    dhcp = {(True, True): "yes", (True, False): "ipv4", (False, True): "ipv6"}
    lines = ["[Match]", f"MACAddress={nic.mac.lower()}", "", "[Network]"]
    lines += [f"DHCP={dhcp.get((nic.dhcp4, nic.dhcp6), 'no')}"]
    lines += [f"VRF={master}"] if master else []
    lines += [f"Address={a.cidr}" for a in nic.addresses]
    lines += [f"DNS={server}" for server in nic.dns]
    lines += [f"Domains={' '.join(nic.search)}"] if nic.search else []
    lines += ["", "[Link]", f"MTUBytes={nic.mtu}"] if nic.mtu else []
    for route in (*gateway_routes(nic), *nic.routes):
        lines += _route_section(route)
    for policy in nic.policies:
        lines += _policy_section(policy, policy.table)
    return "\n".join(lines) + "\n"


def _netdev_unit(vrf: Vrf) -> str:
    return f"[NetDev]\nName={vrf.name}\nKind=vrf\n\n[VRF]\nTable={vrf.table}\n"


def _vrf_unit(vrf: Vrf) -> str:
    lines = ["[Match]", f"Name={vrf.name}", "", "[Network]"]
    for route in vrf.routes:
        lines += _route_section(route)
    for policy in vrf.policies:
        lines += _policy_section(policy, policy.table if policy.table is not None else vrf.table)
    return "\n".join(lines) + "\n"


def _route_section(route: StaticRoute) -> list[str]:
    lines = ["", "[Route]", f"Destination={destination(route)}"]
    lines += [f"Gateway={route.via}"] if route.via else ["Scope=link"]
    lines += [f"Metric={route.metric}"] if route.metric is not None else []
    lines += [f"Table={route.table}"] if route.table is not None else []
    return lines


def _policy_section(policy: RoutingRule, table: int | None) -> list[str]:
    lines = ["", "[RoutingPolicyRule]"]
    lines += [f"To={policy.to}"] if policy.to else []
    lines += [f"From={policy.from_}"] if policy.from_ else []
    lines += [f"Table={table}"] if table is not None else []
    lines += [f"Priority={policy.priority}"] if policy.priority is not None else []
    return lines
