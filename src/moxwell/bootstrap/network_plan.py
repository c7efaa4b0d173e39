"""
Translates a machine's spec to network devices, address requests and the guest's network. Pure.

A machine that specifies no devices has those of its template. A default device without pools uses
DHCP.
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
    """An address to claim for a device."""

    name: str  # of the IPAddressClaim
    device: str
    pool: PoolRef
    metric: int | None = None


def devices_of(
    spec: ProxmoxMachineSpec, template_nics: Mapping[str, str]
) -> tuple[NetworkDevice, ...]:
    """The devices of a machine: those of the spec, else of the template, else one."""
    given = spec.network.network_devices if spec.network else ()
    if not given:
        names = sorted(template_nics, key=_number) or ["net0"]
        given = tuple(NetworkDevice(name=name) for name in names)
    return _with_defaults(given)


def _with_defaults(devices: tuple[NetworkDevice, ...]) -> tuple[NetworkDevice, ...]:
    """Make the first device the default of each family that has none."""
    out = sorted(devices, key=lambda d: _number(d.name))
    for field in ("default_ipv4", "default_ipv6"):
        if all(getattr(d, field) is None for d in out):
            out[0] = structs.replace(out[0], **{field: True})
    return tuple(out)


def address_requests(
    machine: str, devices: tuple[NetworkDevice, ...], zone: ZoneSettings
) -> tuple[AddressRequest, ...]:
    """The addresses to claim, with CAPMOX's names for the claims."""
    wants: list[AddressRequest] = []
    for device in devices:
        chosen = [(p.ref, p.metric) for p in zone.pools if _takes(device, p.family)]
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
    zone: ZoneSettings,
    addresses: Mapping[str, tuple[InterfaceAddress, ...]],
) -> GuestNetwork:
    """The guest's network with the addresses given to each device."""
    nics = [
        _nic(owner, device, zone, addresses.get(device.name, ()), rank)
        for rank, device in enumerate(devices)
    ]
    vrfs = spec.network.vrfs if spec.network else ()
    return GuestNetwork(tuple(nics), tuple(_vrf(v) for v in vrfs))


def _nic(
    owner: str,
    device: NetworkDevice,
    zone: ZoneSettings,
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
        dns=device.dns_servers or zone.dns,
        search=device.search_domains,
        mtu=device.link_mtu if device.link_mtu and device.link_mtu > 1 else None,
        routes=tuple(_route(r) for r in device.routes),
        policies=tuple(_policy(p) for p in device.routing_policy),
    )


def _ranked(address: InterfaceAddress, metric: int | None) -> InterfaceAddress:
    """Give default routes of further devices a higher metric than those of the first."""
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
