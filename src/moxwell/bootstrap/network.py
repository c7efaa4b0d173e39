"""
The network configuration inside a guest as plain values.

:mod:`.netplan` renders it as network-config v2, :mod:`.ignition` as systemd-networkd units. NICs
are matched by MAC inside the guest.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An address with its prefix and gateway."""

    address: str
    prefix: int
    gateway: str = ""
    metric: int | None = None

    @property
    def cidr(self) -> str:
        return f"{self.address}/{self.prefix}"

    @property
    def is6(self) -> bool:
        return ipaddress.ip_address(self.address).version == 6


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A route; ``default`` needs ``is6`` if ``via`` does not show the family."""

    to: str
    via: str = ""
    metric: int | None = None
    table: int | None = None
    is6: bool = False


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """A routing policy rule: the table for matching packets."""

    to: str = ""
    from_: str = ""
    table: int | None = None
    priority: int | None = None
    is6: bool = False


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface of the guest."""

    name: str  # Proxmox's name: net0
    mac: str
    addresses: tuple[InterfaceAddress, ...] = ()
    dhcp4: bool = False
    dhcp6: bool = False
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int | None = None
    routes: tuple[StaticRoute, ...] = ()
    policies: tuple[RoutingRule, ...] = ()
    default4: bool = True  # whether the gateways of this NIC become default routes
    default6: bool = True

    @property
    def inside(self) -> str:
        """The name inside the guest: ``net0`` is ``eth0``."""
        return "eth" + self.name.removeprefix("net")


@dataclass(frozen=True, slots=True)
class Vrf:
    """A VRF with its NICs (by Proxmox's names)."""

    name: str
    table: int
    interfaces: tuple[str, ...] = ()
    routes: tuple[StaticRoute, ...] = ()
    policies: tuple[RoutingRule, ...] = ()


@dataclass(frozen=True, slots=True)
class HostBridge:
    """What the host has on a bridge; addresses with prefix, empty if there are none."""

    address4: str = ""
    address6: str = ""
    gateway4: str = ""
    gateway6: str = ""
    mtu: int = 0


@dataclass(frozen=True, slots=True)
class GuestNetwork:
    """All NICs and VRFs of a guest."""

    nics: tuple[Nic, ...] = ()
    vrfs: tuple[Vrf, ...] = ()
    bridges: Mapping[str, HostBridge] = field(default_factory=dict)  # by NIC, if they were read


def gateway_routes(nic: Nic) -> tuple[StaticRoute, ...]:
    """The default routes to the gateways of the addresses, one per gateway."""
    routes: dict[tuple[str, str], StaticRoute] = {}
    for address in nic.addresses:
        wanted = nic.default6 if address.is6 else nic.default4
        if address.gateway and wanted:
            to = "::/0" if address.is6 else "0.0.0.0/0"
            route = StaticRoute(to, address.gateway, address.metric, is6=address.is6)
            routes.setdefault((to, address.gateway), route)
    return tuple(routes.values())


def destination(route: StaticRoute) -> str:
    """The destination as a prefix, as old netplan needs it."""
    if route.to != "default":
        return route.to
    six = route.is6 or (bool(route.via) and ":" in route.via)
    return "::/0" if six else "0.0.0.0/0"
