"""
Which address and port each hosted control plane listens on.

``control_planes`` in the configuration file sets either ``address``, one address of this machine
for all tenants with a port for each or, with ``sni``, one port for all, or ``addresses``, from
which each tenant gets an address of its own with port 6443, added to ``interface`` if that is set.
Without it control planes listen on loopback, which only programs of this machine reach. The address
of a tenant is kept in its folder while the configuration has it.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from moxwell import config_file
from moxwell.api.infra.address_ranges import AddressRange, parse_address_ranges
from moxwell.atomic_file import write_private
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes import etcd_settings
from moxwell.embedded.controlplanes.interfaces import Interfaces
from moxwell.embedded.controlplanes.sni.settings import SniSettings, parse_sni
from moxwell.embedded.ports import PORT_RANGE, free_port, is_free
from moxwell.errors import Busy, Invalid
from moxwell.runtime.key import Key
from moxwell.scheduling.addresses import choose_address

SECTION = "control_planes"
KEYS = frozenset(
    {"address", "addresses", "interface", "ports", "sni", "konnectivity", "addons", "etcd"}
)
FILE = "address"
LOOPBACK = "127.0.0.1"
API_PORT = 6443
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}")


class AddressesExhausted(Busy):
    """Every configured address is used by another tenant."""

    reason = "AddressesExhausted"


class ControlPlaneAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The configured addresses; ``ranges`` is empty if all tenants share ``address``."""

    address: str = LOOPBACK
    ranges: tuple[AddressRange, ...] = ()
    ports: tuple[int, int] = PORT_RANGE  # the second one is excluded
    sni: SniSettings | None = None  # a proxy listens on ``address``, control planes on loopback
    konnectivity: str | None = None  # the image of its agents; empty: the default; None: without
    interface: str = ""  # to which addresses of ``ranges`` are added; empty: they are there
    etcd_hosts: tuple[str, ...] = (LOOPBACK,)  # one for each member

    def permits(self, host: str) -> bool:
        """Whether a tenant may keep an address."""
        return any(host in each for each in self.ranges) if self.ranges else host == self.address

    def check(self) -> None:
        """Refuse an address that this machine does not have; those of ranges may come later."""
        if not self.ranges:
            is_free(0, self.address)

    def is_local(self) -> bool:
        """Whether only programs of this machine reach the control planes."""
        return not self.ranges and ipaddress.ip_address(self.address).is_loopback

    def new_port(self, host: str) -> int:
        """A free port of an address; 6443 on an address that one tenant has for itself."""
        if any(host in each for each in self.ranges) and is_free(API_PORT, host):
            return API_PORT
        return free_port(host, self.ports)


class TenantAddresses:
    """Assigns an address to each tenant; ``roots`` have the folders ``NAMESPACE/NAME``."""

    def __init__(
        self,
        configured: ControlPlaneAddresses,
        roots: tuple[Path, ...],
        interfaces: Interfaces | None = None,
    ) -> None:
        self._configured, self._roots = configured, roots
        self._interfaces = interfaces or Interfaces()

    def host(self, folder: Path) -> str:
        """The address of the tenant with this folder, which exists or is created."""
        configured, file = self._configured, folder / FILE
        if not configured.ranges:
            file.unlink(missing_ok=True)
            return LOOPBACK if configured.sni else configured.address
        known = file.read_text() if file.exists() else ""
        if known and configured.permits(known):
            self._interfaces.ensure(folder, configured.interface, known)
            return known
        self._interfaces.release(folder)
        chosen = choose_address(configured.ranges, set(self._used()))
        if chosen is None:
            raise AddressesExhausted(
                f"each address of {SECTION}.addresses is used by a tenant: add one, or delete a "
                "tenant"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, chosen.encode())
        self._interfaces.ensure(folder, configured.interface, chosen)
        return chosen

    def release(self, key: Key) -> None:
        """Remove the address of a tenant that is deleted from the interface, if it was added."""
        for root in self._roots:
            self._interfaces.release(root / key.namespace / key.name)

    def _used(self) -> Iterator[str]:
        for root in self._roots:
            for file in root.glob(f"*/*/{FILE}"):
                yield file.read_text()


def loopback(_: Path) -> str:
    """The address of a tenant that only programs of this machine reach."""
    return LOOPBACK


def parse(text: str) -> ControlPlaneAddresses:
    """The addresses of a configuration text; loopback if it does not set any."""
    section = config_file.parse_mapping(text).get(SECTION)
    if section is None:
        return ControlPlaneAddresses()
    if not isinstance(section, dict):
        raise InvalidConfig(f"{SECTION}: must be a mapping with address or addresses")
    config_file.refuse_unknown(SECTION, section, KEYS)
    if "address" in section and "addresses" in section:
        raise InvalidConfig(f"{SECTION}: set address or addresses, not both")
    if "sni" in section and "addresses" in section:
        raise InvalidConfig(f"{SECTION}: sni needs address, the one of the proxy, not addresses")
    found = ControlPlaneAddresses(
        ranges=_ranges(section),
        ports=_ports(section),
        sni=parse_sni(section),
        konnectivity=_konnectivity(section.get("konnectivity")),
        interface=_interface(section),
        etcd_hosts=etcd_settings.parse(section.get("etcd")),
    )
    if "address" in section:
        return msgspec.structs.replace(found, address=_address(section["address"]))
    return found


def _address(value: object) -> str:
    try:
        ip = ipaddress.ip_address(str(value))
    except ValueError:
        raise InvalidConfig(f"{SECTION}.address: must be an IP address of this machine") from None
    if ip.is_unspecified or ip.is_multicast:
        raise InvalidConfig(
            f"{SECTION}.address: {ip} is not an address that nodes can connect to; set one of this "
            "machine's addresses"
        )
    return str(ip)


def _ranges(section: Mapping[str, Any]) -> tuple[AddressRange, ...]:
    if "addresses" not in section:
        return ()
    texts = section["addresses"]
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise InvalidConfig(f"{SECTION}.addresses: must be a list of addresses or ranges a-b")
    try:
        return parse_address_ranges(texts)
    except Invalid as error:
        raise InvalidConfig(f"{SECTION}.addresses: {error}") from None


def _interface(section: Mapping[str, Any]) -> str:
    name = section.get("interface", "")
    if not name:
        return ""
    if "addresses" not in section:
        raise InvalidConfig(f"{SECTION}.interface: needs addresses, which are added to it")
    if not isinstance(name, str) or not _INTERFACE.fullmatch(name):
        raise InvalidConfig(f"{SECTION}.interface: must be the name of an interface, such as eth0")
    return name


def _konnectivity(value: object) -> str | None:
    if value is None or value is False:
        return None
    if value is True:
        return ""
    if not isinstance(value, dict) or set(value) != {"image"} or not value["image"]:
        raise InvalidConfig(f"{SECTION}.konnectivity: must be true, or a mapping with image")
    return str(value["image"])


def _ports(section: Mapping[str, Any]) -> tuple[int, int]:
    if "ports" not in section:
        return PORT_RANGE
    first, _, last = str(section["ports"]).partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536):
        raise InvalidConfig(f"{SECTION}.ports: must be a range like 20000-31999")
    return int(first), int(last) + 1
