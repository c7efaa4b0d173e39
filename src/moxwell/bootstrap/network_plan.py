"""
From a machine's spec to its network: which devices, which addresses to ask for, and the result.

In flow the spec, the ground and the NICs that the template has; out flow the devices, the address
claims they need and, once those are answered, the network that goes on the seed disk. A machine
that names no devices keeps its template's. A default device without any pool uses DHCP.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from moxwell.api.infra.mac_address import mac_of
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.network import NetworkDevice, PolicySpec, PoolRef, RouteSpec, VrfSpec
from moxwell.api.infra.zone_settings import METRIC, ZoneSettings
from moxwell.bootstrap.network import (
    GuestNetwork,
    InterfaceAddress,
    Nic,
    RoutingRule,
    StaticRoute,
    Vrf,
)


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """One address to ask for."""

    name: str  # of the claim
    device: str
    pool: PoolRef
    metric: int | None = None


def devices_of(
    spec: ProxmoxMachineSpec, template_nics: Mapping[str, str]
) -> tuple[NetworkDevice, ...]:
    """The devices of a machine: its own, else its template's, else one."""
    given = spec.network.network_devices if spec.network else ()
    if not given:
        names = sorted(template_nics, key=_number) or ["net0"]
        given = tuple(NetworkDevice(name=name) for name in names)
    return _with_defaults(given)


def _with_defaults(devices: tuple[NetworkDevice, ...]) -> tuple[NetworkDevice, ...]:
    """The first device is the default of a family that nobody claims."""
    out = sorted(devices, key=lambda d: _number(d.name))
    for field in ("default_ipv4", "default_ipv6"):
        if all(getattr(d, field) is None for d in out):
            out[0] = structs.replace(out[0], **{field: True})
    return tuple(out)


def address_requests(
    machine: str, devices: tuple[NetworkDevice, ...], ground: ZoneSettings
) -> tuple[AddressRequest, ...]:
    """Every address to ask for, with the names CAPMOX gives the claims."""
    wants: list[AddressRequest] = []
    for device in devices:
        chosen = [(p.ref, p.metric) for p in ground.pools if _takes(device, p.family)]
        chosen += [(ref, None) for ref in device.ip_pool_ref]
        for index, (ref, metric) in enumerate(chosen):
            name = f"{machine}-{device.name}-{index:02d}-inet"
            wants.append(AddressRequest(name, device.name, ref, metric))
    return tuple(wants)


def _takes(device: NetworkDevice, family: int) -> bool:
    four = bool(device.default_ipv4) and not device.dhcp4
    six = bool(device.default_ipv6) and not device.dhcp6
    return {4: four, 6: six}.get(family, four or six)


def network_of(
    owner: str,
    spec: ProxmoxMachineSpec,
    devices: tuple[NetworkDevice, ...],
    ground: ZoneSettings,
    addresses: Mapping[str, tuple[InterfaceAddress, ...]],
) -> GuestNetwork:
    """The network, with the addresses each device was given."""
    nics = [
        _nic(owner, device, ground, addresses.get(device.name, ()), rank)
        for rank, device in enumerate(devices)
    ]
    vrfs = spec.network.vrfs if spec.network else ()
    return GuestNetwork(tuple(nics), tuple(_vrf(v) for v in vrfs))


def _nic(
    owner: str,
    device: NetworkDevice,
    ground: ZoneSettings,
    given: tuple[InterfaceAddress, ...],
    rank: int,
) -> Nic:
    default = bool(device.default_ipv4 or device.default_ipv6)
    nothing = not given and not device.ip_pool_ref and default and device.dhcp4 is None
    ranked = tuple(_ranked(a, METRIC + 100 * rank if rank else None) for a in given)
    return Nic(
        device.name,
        mac_of(owner, device),
        ranked,
        dhcp4=bool(device.dhcp4) or (nothing and not device.dhcp6),
        dhcp6=bool(device.dhcp6),
        dns=device.dns_servers or ground.dns,
        search=device.search_domains,
        mtu=device.link_mtu if device.link_mtu and device.link_mtu > 1 else None,
        routes=tuple(_route(r) for r in device.routes),
        policies=tuple(_policy(p) for p in device.routing_policy),
    )


def _ranked(address: InterfaceAddress, metric: int | None) -> InterfaceAddress:
    """Default routes of further devices must not compete with the first one's."""
    if address.metric is not None or metric is None:
        return address
    return InterfaceAddress(address.address, address.prefix, address.gateway, metric)


def _route(route: RouteSpec) -> StaticRoute:
    return StaticRoute(route.to, route.via, route.metric, route.table, bool(route.is6))


def _policy(policy: PolicySpec) -> RoutingRule:
    return RoutingRule(policy.to, policy.from_, policy.table, policy.priority, bool(policy.is6))


def _vrf(vrf: VrfSpec) -> Vrf:
    return Vrf(
        vrf.name,
        vrf.table,
        vrf.interfaces,
        tuple(_route(r) for r in vrf.routes),
        tuple(_policy(p) for p in vrf.routing_policy),
    )


def _number(name: str) -> int:
    digits = name.removeprefix("net")
    return int(digits) if digits.isdigit() else 0
