"""
The hardware and the network a simulated guest sees: sizes, addresses, interfaces.

Pure: from the guest's Proxmox configuration and the network-config on its seed. A card with DHCP
gets the address that a well-kept DHCP server would: always the same for the same MAC.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
_NET = re.compile(r"net(\d+)$")


class View(Protocol):
    """What the simulator shows a guest of itself."""

    @property
    def region(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def vmid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def conf(self) -> dict[str, Any]: ...
    @property
    def setup_seconds(self) -> float: ...
    def media(self, drive: str, /) -> bytes | None: ...
    def power_off(self) -> Any: ...
    def reboot(self) -> Any: ...
    def plugged(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Interface:
    """One network card with its addresses, as ``address/prefix``."""

    name: str
    mac: str
    addresses: tuple[str, ...]


def cpus(conf: Mapping[str, Any]) -> int:
    """How many processors the guest counts."""
    return int(conf.get("vcpus") or int(conf.get("cores") or 1) * int(conf.get("sockets") or 1))


def memory_mib(conf: Mapping[str, Any]) -> int:
    """How much memory the guest counts; PVE writes ``current=`` in newer releases."""
    text = str(conf.get("memory") or 512)
    return int(text.partition(",")[0].removeprefix("current="))


def cards(conf: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """``ethN`` and MAC of each card, in order."""
    numbered = sorted((int(m[1]), k) for k in conf if (m := _NET.match(k)))
    for index, key in numbered:
        mac = _MAC.search(str(conf[key]))
        if mac:
            yield f"eth{index}", mac[0].lower()


def interfaces(conf: Mapping[str, Any], network: Mapping[str, Any]) -> tuple[Interface, ...]:
    """The cards with what the network-config gives them."""
    wanted = {_match_mac(e): (name, e) for name, e in (network.get("ethernets") or {}).items()}
    found = []
    for default, mac in cards(conf):
        name, ethernet = wanted.get(mac, (default, {"dhcp4": not network}))
        addresses = tuple(str(a) for a in ethernet.get("addresses") or ())
        if ethernet.get("dhcp4") and not any("." in a for a in addresses):
            addresses += (_leased(mac),)
        found.append(Interface(str(ethernet.get("set-name") or name), mac, addresses))
    return tuple(found)


def _match_mac(ethernet: Mapping[str, Any]) -> str:
    return str((ethernet.get("match") or {}).get("macaddress") or "").lower()


def _leased(mac: str) -> str:
    digest = hashlib.sha256(mac.encode()).digest()
    return f"10.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}/10"


def drives(conf: Mapping[str, Any]) -> tuple[str, ...]:
    """Drives that may hold a medium, in the order a boot looks at them."""
    named = [k for k, v in conf.items() if re.match(r"(ide|sata|scsi)\d+$", k)]
    media = [k for k in named if "media=cdrom" in str(conf[k])]
    return tuple(sorted(media))
