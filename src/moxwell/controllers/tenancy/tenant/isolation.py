"""
The resource pool, the VNet and the API token of a tenant in a region. Pure.

The comment of a pool or token and the alias of a VNet name the tenant's namespace; an object with
another comment or alias is never changed.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from moxwell.api.cozystack import Tenant, TenantVnet
from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.controllers.tenancy.tenant.firewall import group_name, owner_comment
from moxwell.errors import Invalid
from moxwell.pve.endpoints.sdn import SdnSubnet, SdnVnet, SdnZone
from moxwell.pve.steps import (
    ApplySdn,
    DeletePool,
    DeleteVnet,
    EnsurePool,
    EnsureVnet,
    RevokeToken,
    TenantToken,
    VnetSubnet,
)

LAST_TAG = {"vlan": 4094, "qinq": 4094, "vxlan": 16777215, "evpn": 16777215}  # by type of zone
ALIAS_PREFIX = "moxwell-tenant="
POOL, VNET, TOKEN = "pool", "vnet", "token"
IsolationStep = EnsurePool | DeletePool | EnsureVnet | DeleteVnet | ApplySdn | RevokeToken
BUILT_IN_IPAM = "pve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedIsolation:
    """What exists in one region; ``error`` if it could not be read."""

    region: str
    parent: str = ""  # the pool that Moxwell is limited to
    pool_comment: str | None = None  # None: there is no pool
    members: int = 0
    zones: tuple[SdnZone, ...] = ()  # read while there is no VNet
    vnet: SdnVnet | None = None
    subnets: tuple[SdnSubnet, ...] = ()
    vnet_pending: bool = False  # a change of the VNet is not applied
    vnet_used: bool = False  # a machine of the tenant names it
    token_comment: str | None = None
    token_granted: bool = False  # with its right on the pool, and its secret is stored
    error: str = ""

    def exists(self, namespace: str) -> frozenset[str]:
        """What of the tenant exists."""
        mark = owner_comment(namespace)
        found = {
            POOL: self.pool_comment or "",
            VNET: self.vnet.alias if self.vnet else mark if self.vnet_pending else "",
            TOKEN: self.token_comment or "",
        }
        return frozenset(name for name, text in found.items() if mark in text.split())


def wanted(tenant: Tenant) -> frozenset[str]:
    """What the tenant is to have; a token needs the pool that it has rights on."""
    spec = tenant.spec
    found = {POOL} if spec.proxmox.pool or spec.proxmox.token else set()
    found |= {TOKEN} if spec.proxmox.token else set()
    return frozenset(found | ({VNET} if spec.network.vnet is not None else set()))


def is_isolated(tenant: Tenant) -> bool:
    """Whether machines of the tenant must use its own pool and network."""
    return bool(wanted(tenant)) or tenant.spec.network.vlan is not None


def vnet_name(namespace: str) -> str:
    """Proxmox allows eight characters."""
    digest = hashlib.sha256(namespace.encode()).digest()
    return "mx" + base64.b32encode(digest).decode().lower()[:6]


def pool_name(namespace: str, parent: str) -> str:
    """``mox-NAME``, below the pool that Moxwell is limited to."""
    return f"{parent}/{group_name(namespace)}" if parent else group_name(namespace)


def token_of(namespace: str, seen: ObservedIsolation) -> TenantToken:
    return TenantToken(
        region=seen.region,
        name=namespace,
        pool=pool_name(namespace, seen.parent),
        comment=owner_comment(namespace),
    )


def secret_name(region: str) -> str:
    """The Secret with the tenant's token for a region."""
    return f"proxmox-{region.lower().replace('_', '-').replace('.', '-')}"


def check_bridge(tenant: Tenant) -> None:
    """Raise Invalid if the nodes of a tenant would be on two networks."""
    if tenant.spec.network.bridge and tenant.spec.network.vnet is not None:
        raise Invalid("spec.network: give a bridge or a vnet, not both")


def subnet_of(tenant: Tenant) -> VnetSubnet | None:
    """The subnet of the VNet; Invalid if its parts do not fit together."""
    given = tenant.spec.network.vnet
    if given is None or not given.subnet:
        return None
    try:
        network = ipaddress.ip_network(given.subnet)
        outside = given.gateway and ipaddress.ip_address(given.gateway) not in network
    except ValueError as error:
        raise Invalid(f"spec.network.vnet: {error}") from error
    if outside:
        raise Invalid(f"spec.network.vnet.gateway: {given.gateway} is not in {given.subnet}")
    return VnetSubnet(
        cidr=given.subnet,
        gateway=given.gateway,
        snat=given.snat,
        dhcp_ranges=tuple(_dhcp_ranges(tenant, network)) if given.dhcp else (),
    )


def _dhcp_ranges(
    tenant: Tenant, network: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> Iterator[str]:
    for each in parse_address_ranges(tenant.spec.network.ranges):
        first, last = (type(network[0])(number) for number in (each.first, each.last))
        if first not in network or last not in network:
            raise Invalid(f"spec.network.ranges: {first}-{last} is not in {network}")
        yield f"start-address={first},end-address={last}"


def refuse_foreign(namespace: str, want: frozenset[str], seen: ObservedIsolation) -> None:
    """Raise Invalid if what the tenant is to have belongs to somebody else."""
    have = seen.exists(namespace)
    present = {
        POOL: seen.pool_comment is not None and f"pool {pool_name(namespace, seen.parent)}",
        VNET: seen.vnet is not None and f"VNet {vnet_name(namespace)}",
        TOKEN: seen.token_comment is not None and f"token {token_of(namespace, seen).token_id}",
    }
    for name in sorted(want - have):
        if text := present[name]:
            raise Invalid(
                f"{text} in region {seen.region} exists already and does not belong to this tenant"
            )


def steps_of(
    tenant: Tenant, namespace: str, want: frozenset[str], seen: ObservedIsolation
) -> tuple[IsolationStep, ...]:
    """The steps that are due in a region, those that others depend on first."""
    if seen.error:
        return ()
    refuse_foreign(namespace, want, seen)
    have = seen.exists(namespace)
    mark, region = owner_comment(namespace), seen.region
    found: list[IsolationStep] = []
    pool = pool_name(namespace, seen.parent)
    if POOL in want - have:
        found.append(EnsurePool(region_name=region, pool=pool, comment=mark))
    found += _vnet_steps(tenant, namespace, want, seen)
    if TOKEN in have - want:
        found.append(RevokeToken(token=token_of(namespace, seen)))
    elif POOL in have - want and not seen.members:
        found.append(DeletePool(region_name=region, pool=pool, comment=mark))
    return tuple(found)


def _vnet_steps(
    tenant: Tenant, namespace: str, want: frozenset[str], seen: ObservedIsolation
) -> Iterator[IsolationStep]:
    mark, region, name = owner_comment(namespace), seen.region, vnet_name(namespace)
    given, subnet = tenant.spec.network.vnet, subnet_of(tenant)
    if VNET in want and given is not None and seen.vnet is None:
        refuse_zone(given, seen)
    if VNET in want and given is not None and not _matches(seen, given.zone, given.tag, subnet):
        yield EnsureVnet(
            region_name=region, vnet=name, alias=mark, zone=given.zone, tag=given.tag, subnet=subnet
        )
    elif VNET not in want and seen.vnet is not None and VNET in seen.exists(namespace):
        if not seen.vnet_used:
            yield DeleteVnet(region_name=region, vnet=name, alias=mark)
    elif seen.vnet_pending:
        yield ApplySdn(region_name=region, prefix=ALIAS_PREFIX)


def refuse_zone(given: TenantVnet, seen: ObservedIsolation) -> None:
    """Raise Invalid if Proxmox would not make the VNet in its zone."""
    zone = next((z for z in seen.zones if z.zone == given.zone), None)
    if zone is None:
        known = ", ".join(sorted(z.zone for z in seen.zones)) or "none"
        raise Invalid(
            f"spec.network.vnet.zone: region {seen.region} has no SDN zone {given.zone} that "
            f"Moxwell may use (known: {known}); create and apply it, or name another one"
        )
    if given.dhcp and zone.ipam not in ("", BUILT_IN_IPAM):
        raise Invalid(
            f"spec.network.vnet.dhcp: zone {zone.zone} in region {seen.region} uses the IPAM "
            f"{zone.ipam}, whose addresses Proxmox does not list: set ipam {BUILT_IN_IPAM} in "
            "the zone, or use network.ranges without dhcp"
        )
    last = LAST_TAG.get(zone.type)
    if last is None and given.tag is not None:
        raise Invalid(f"spec.network.vnet.tag: remove it, {zone.zone} is a {zone.type} zone")
    needed = zone.type != "qinq"  # a VNet without a tag is the untagged one of a QinQ zone
    if last is not None and (needed or given.tag) and not 1 <= (given.tag or 0) <= last:
        raise Invalid(
            f"spec.network.vnet.tag: a VNet of the {zone.type} zone {zone.zone} in region "
            f"{seen.region} needs a tag from 1 to {last}"
        )


def _matches(
    seen: ObservedIsolation, zone: str, tag: int | None, subnet: VnetSubnet | None
) -> bool:
    if seen.vnet is None or (seen.vnet.zone, seen.vnet.tag) != (zone, tag):
        return False
    if subnet is None:
        return not seen.subnets
    return len(seen.subnets) == 1 and subnet.matches(seen.subnets[0])
