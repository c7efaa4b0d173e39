"""
What a guest's network is to be, as plain values, before any format is chosen.

:mod:`.netplan` writes them as network-config v2, :mod:`.ignition` as systemd-networkd units. NICs
are found by MAC inside the guest, and we choose the MAC from the owner's UID: so the seed disk can
be written before the guest exists, and a pass that is repeated writes the same.
"""

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """One address with its prefix, and the gateway behind which the rest of the world lies."""

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
    """A route; ``default`` needs ``is6`` to say of which family where ``via`` does not."""

    to: str
    via: str = ""
    metric: int | None = None
    table: int | None = None
    is6: bool = False


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """A routing rule: which table answers for which packets."""

    to: str = ""
    from_: str = ""
    table: int | None = None
    priority: int | None = None
    is6: bool = False


@dataclass(frozen=True, slots=True)
class Nic:
    """One network device inside the guest."""

    name: str  # as Proxmox calls it: net0
    mac: str
    addresses: tuple[InterfaceAddress, ...] = ()
    dhcp4: bool = False
    dhcp6: bool = False
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int | None = None
    routes: tuple[StaticRoute, ...] = ()
    policies: tuple[RoutingRule, ...] = ()
    default4: bool = True  # whether this NIC's gateways become default routes
    default6: bool = True

    @property
    def inside(self) -> str:
        """Its name inside the guest: ``net0`` is ``eth0``."""
        return "eth" + self.name.removeprefix("net")


@dataclass(frozen=True, slots=True)
class Vrf:
    """A routing domain of its own, with NICs (by Proxmox's names) enslaved to it."""

    name: str
    table: int
    interfaces: tuple[str, ...] = ()
    routes: tuple[StaticRoute, ...] = ()
    policies: tuple[RoutingRule, ...] = ()


@dataclass(frozen=True, slots=True)
class GuestNetwork:
    """All of it."""

    nics: tuple[Nic, ...] = ()
    vrfs: tuple[Vrf, ...] = ()


def gateway_routes(nic: Nic) -> tuple[StaticRoute, ...]:
    """The default routes that follow from the addresses' gateways; one for each gateway."""
    routes: dict[tuple[str, str], StaticRoute] = {}
    for address in nic.addresses:
        wanted = nic.default6 if address.is6 else nic.default4
        if address.gateway and wanted:
            to = "::/0" if address.is6 else "0.0.0.0/0"
            route = StaticRoute(to, address.gateway, address.metric, is6=address.is6)
            routes.setdefault((to, address.gateway), route)
    return tuple(routes.values())


def destination(route: StaticRoute) -> str:
    """``default`` spelled out, as old netplan wants it."""
    if route.to != "default":
        return route.to
    six = route.is6 or (bool(route.via) and ":" in route.via)
    return "::/0" if six else "0.0.0.0/0"
