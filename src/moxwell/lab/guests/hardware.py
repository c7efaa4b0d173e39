"""
The hardware and network interfaces that a simulated guest sees.

Pure: derived from the VM configuration and the network-config of the config drive. An interface
with DHCP gets an address derived from its MAC address.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
_NET = re.compile(r"net(\d+)$")


class SimulatedVm(Protocol):
    """The VM as the simulator shows it to its guest operating system."""

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
    def live_config(self) -> dict[str, Any]: ...
    def load(self) -> tuple[float, float]: ...
    def report_load(self, cpu: float, memory: float, /) -> None: ...


@dataclass(frozen=True, slots=True)
class GuestInterface:
    """One network interface with its addresses in CIDR notation."""

    name: str
    mac: str
    addresses: tuple[str, ...]


def cpus(conf: Mapping[str, Any]) -> int:
    """The number of vCPUs."""
    return int(conf.get("vcpus") or int(conf.get("cores") or 1) * int(conf.get("sockets") or 1))


def memory_mib(conf: Mapping[str, Any]) -> int:
    """The memory in MiB; newer PVE releases write ``current=``."""
    text = str(conf.get("memory") or 512)
    return int(text.partition(",")[0].removeprefix("current="))


def network_devices(conf: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name (``ethN``) and MAC address of each network device, in order."""
    numbered = sorted((int(m[1]), k) for k in conf if (m := _NET.match(k)))
    for index, key in numbered:
        mac = _MAC.search(str(conf[key]))
        if mac:
            yield f"eth{index}", mac[0].lower()


def interfaces(conf: Mapping[str, Any], network: Mapping[str, Any]) -> tuple[GuestInterface, ...]:
    """The network interfaces, configured by the network-config."""
    wanted = {_match_mac(e): (name, e) for name, e in (network.get("ethernets") or {}).items()}
    found = []
    for default, mac in network_devices(conf):
        name, ethernet = wanted.get(mac, (default, {"dhcp4": not network}))
        addresses = tuple(str(a) for a in ethernet.get("addresses") or ())
        if ethernet.get("dhcp4") and not any("." in a for a in addresses):
            addresses += (_dhcp_address(mac),)
        found.append(GuestInterface(str(ethernet.get("set-name") or name), mac, addresses))
    return tuple(found)


def _match_mac(ethernet: Mapping[str, Any]) -> str:
    return str((ethernet.get("match") or {}).get("macaddress") or "").lower()


def _dhcp_address(mac: str) -> str:
    digest = hashlib.sha256(mac.encode()).digest()
    return f"10.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}/10"


def cdrom_drives(conf: Mapping[str, Any]) -> tuple[str, ...]:
    """The CD-ROM drives, in boot order."""
    named = [k for k, v in conf.items() if re.match(r"(ide|sata|scsi)\d+$", k)]
    media = [k for k in named if "media=cdrom" in str(conf[k])]
    return tuple(sorted(media))
