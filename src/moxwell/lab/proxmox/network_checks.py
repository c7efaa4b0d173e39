"""What PVE checks of a network interface before it is written."""

import ipaddress
from collections.abc import Iterator

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import param_error
from moxwell.lab.proxmox.state import Row

_PORTS = ("bridge_ports", "ovs_ports", "slaves", "ovs_bonds")
_GATEWAYS = {"gateway": "Default gateway", "gateway6": "Default ipv6 gateway"}


def check_interface(iface: str, given: Row, known: dict[str, Row]) -> None:
    """Check gateways, ports, the IPv6 address and the list of VLANs, in this order."""
    others = {name: row for name, row in known.items() if name != iface}
    for key, label in _GATEWAYS.items():
        for name in (n for n, row in others.items() if given.get(key) and row.get(key)):
            raise param_error({key: f"{label} already exists on interface '{name}'."})
    _check_ports(given, others)
    if given.get("address6"):
        _check_address6(str(given["address6"]))
    if given.get("bridge_vids") and not formats.split_list(str(given["bridge_vids"])):
        raise param_error({"bridge_vids": "VLAN list items are empty"})


def _ports(row: Row) -> Iterator[tuple[str, str]]:
    """(parameter, port) of an interface."""
    for name in _PORTS:
        yield from ((name, port) for port in formats.split_list(str(row.get(name) or "")))


def _check_ports(given: Row, others: dict[str, Row]) -> None:
    """A port belongs to one interface; the error names the first parameter with ports."""
    new = list(_ports(given))
    wanted = {port for _, port in new}
    for name, row in others.items():
        for _, port in _ports(row):
            if port in wanted:
                raise param_error({new[0][0]: f"{port} is already used on interface '{name}'."})


def _check_address6(text: str) -> None:
    address = ipaddress.IPv6Address(text)
    kinds = {
        "MULTICAST": address.is_multicast,
        "LOOPBACK": address.is_loopback,
        "UNSPECIFIED": address.is_unspecified,
    }
    for kind in (name for name, holds in kinds.items() if holds):
        text = f"address with type '{kind}', cannot be used as host IPv6 address."
        raise param_error({"address": text})
