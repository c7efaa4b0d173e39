"""``/etc/network/interfaces``: how PVE reads back what it wrote, and the text of the file."""

import difflib
import ipaddress
from collections.abc import Iterator

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.state import Row

_OLD, _NEW = "/etc/network/interfaces", "/etc/network/interfaces.new"
_DERIVED = frozenset({
    *("type", "method", "method6", "families", "priority", "cidr", "cidr6", "autostart", "active"),
    *("comments", "comments6", "address", "netmask", "address6", "netmask6"),
})  # fmt: skip
_KINDS = {
    "bridge": {"bridge_ports": "", "bridge_stp": "off", "bridge_fd": "0"},
    "bond": {"bond_mode": "balance-rr", "bond_miimon": "100"},
}


def as_read(iface: str, row: Row, priority: int) -> Row:
    """The settings of an interface as they are read from the file."""
    found = {"priority": priority, **_KINDS.get(str(row["type"]), {}), **row}
    for suffix in ("", "6"):
        _add_cidr(found, suffix)
        comment = str(found.pop(f"comments{suffix}", "") or "")
        if comment:
            found[f"comments{suffix}"] = comment.rstrip("\n") + "\n"
    families = [f for f, key in (("inet", "address"), ("inet6", "address6")) if found.get(key)]
    found["families"] = families or ["inet"]
    if found.get("bridge_vlan_aware"):
        found["bridge_vids"] = " ".join(formats.split_list(str(found.get("bridge_vids", "2-4094"))))
    raw, _, tag = iface.rpartition(".")
    if found["type"] == "vlan" and raw:
        found |= {"vlan-raw-device": raw, "vlan-id": tag}
    return {k: v for k, v in found.items() if k not in ("autostart", "bridge_vlan_aware") or v}


def _add_cidr(row: Row, suffix: str) -> None:
    """Method, prefix length and CIDR that follow from an address."""
    address, netmask, cidr = (f"{name}{suffix}" for name in ("address", "netmask", "cidr"))
    row[f"method{suffix}"] = "static" if row.get(address) else "manual"
    row.pop(cidr, None)
    if row.get(address):
        network = ipaddress.ip_interface(f"{row[address]}/{row[netmask]}").network
        row[netmask] = str(network.prefixlen)
        row[cidr] = f"{row[address]}/{row[netmask]}"


def difference(old: dict[str, Row], new: dict[str, Row]) -> str:
    """The difference of two files."""
    lines = difflib.unified_diff(_text(old), _text(new), _OLD, _NEW, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _text(interfaces: dict[str, Row]) -> list[str]:
    lines = ["auto lo", "iface lo inet loopback", ""]
    for iface, row in sorted(interfaces.items(), key=lambda pair: int(pair[1]["priority"])):
        lines += [*_stanza(iface, row), ""]
    return lines


def _stanza(iface: str, row: Row) -> Iterator[str]:
    if row.get("autostart"):
        yield f"auto {iface}"
    for family, suffix in (("inet", ""), ("inet6", "6")):
        if family == "inet6" and family not in row["families"]:
            continue
        yield f"iface {iface} {family} {row[f'method{suffix}']}"
        for name in ("cidr", "gateway"):
            if row.get(f"{name}{suffix}"):
                yield f"\t{'address' if name == 'cidr' else name} {row[f'{name}{suffix}']}"
        if not suffix:
            yield from (f"\t{name.replace('_', '-')} {row[name]}" for name in sorted(_own(row)))
        yield from (f"#{line}" for line in str(row.get(f"comments{suffix}", "")).splitlines())


def _own(row: Row) -> set[str]:
    """The options that are written with their names."""
    return {name for name in row if name not in _DERIVED | {"gateway", "gateway6"}}
