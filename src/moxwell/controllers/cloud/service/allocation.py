"""
The addresses of a Service: which it asks for, which it has, which it may get. Pure.

Each address of a Service is reserved under a MAC address of its own, because a Service may share
one address with another Service and have the other one alone.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service.ipam import AvailableAddresses
from moxwell.scheduling import addresses

Json = dict[str, Any]
SHARING_KEY = "moxwell.dev/lb-sharing-key"
REQUESTED_ADDRESS = "moxwell.dev/lb-address"
ALLOCATED = "moxwell.dev/lb-allocated"
MAC = "moxwell.dev/lb-mac"
ANNOUNCERS = {
    "metallb": "metallb.io/loadBalancerIPs",
    "kube-vip": "kube-vip.io/loadbalancerIPs",
    "cilium": "lbipam.cilium.io/ips",
}
SERVICE_MAC_PREFIX = "02:"  # MAC addresses of guests never begin so
FAMILIES = {"IPv4": 4, "IPv6": 6}
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
SCALE_DOWN_TAINT = "ToBeDeletedByClusterAutoscaler"


def has_our_class(service: Json, settings: LoadBalancerFeatures) -> bool:
    """Whether the Service is a load balancer of our class."""
    spec = service["spec"]
    ours = spec.get("loadBalancerClass") == settings.class_
    return bool(spec.get("type") == "LoadBalancer" and ours)


def is_managed(service: Json, settings: LoadBalancerFeatures) -> bool:
    """Whether it asks for an address of ours, or has one that must be released."""
    return has_our_class(service, settings) or bool(allocated_addresses(service))


def annotations(service: Json) -> Mapping[str, str]:
    """The annotations of a Service."""
    found: Mapping[str, str] = service["metadata"].get("annotations") or {}
    return found


@dataclass(frozen=True, slots=True)
class AddressAllocation:
    """An address and the MAC address that it is reserved for."""

    address: str
    mac: str

    @property
    def version(self) -> int:
        return ipaddress.ip_address(self.address).version


def allocated_addresses(service: Json) -> tuple[str, ...]:
    """The addresses that the annotation of a Service lists."""
    return _parts(annotations(service).get(ALLOCATED, ""))


def allocations(service: Json) -> tuple[AddressAllocation, ...]:
    """The same with their MAC addresses; invalid addresses are left out."""
    listed, own = allocated_addresses(service), mac_of(service["metadata"]["uid"])
    macs = [
        mac if mac.startswith(SERVICE_MAC_PREFIX) else own  # never that of a guest
        for mac in _parts(annotations(service).get(MAC, ""))
    ]
    rows = zip_longest(listed, macs[: len(listed)], fillvalue=own)
    return tuple(AddressAllocation(address, mac) for address, mac in rows if _is_address(address))


def families(service: Json) -> tuple[int, ...]:
    """The IP versions that a Service asks for, in its order."""
    spec = service["spec"]
    asked = spec.get("ipFamilies")
    if not asked:
        dual = spec.get("ipFamilyPolicy") in ("PreferDualStack", "RequireDualStack")
        asked = ["IPv4", "IPv6"] if dual else ["IPv4"]
    return tuple(FAMILIES[f] for f in asked if f in FAMILIES)


def requires_dual_stack(service: Json) -> bool:
    """Whether the Service must have an address of both families."""
    return bool(service["spec"].get("ipFamilyPolicy") == "RequireDualStack")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def ports(service: Json) -> set[tuple[str, int]]:
    """Protocols and ports of a Service."""
    return {(p.get("protocol", "TCP"), int(p["port"])) for p in service["spec"].get("ports") or ()}


def owns_address(
    service: Json, address: str, others: Iterable[Json], available: AvailableAddresses
) -> bool:
    """
    Whether an address in its annotation belongs to the Service.

    Anybody can write the annotation: of two Services that list it, the older one owns it.
    """
    if not _is_address(address) or not any(address in r for r in available.ranges):
        return False
    rivals = [o for o in others if address in allocated_addresses(o) and not _may_share(service, o)]
    return all(_age(service) < _age(rival) for rival in rivals)


def _age(service: Json) -> tuple[str, str]:
    meta = service["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta["uid"])


def choose_address(
    service: Json, version: int, others: Iterable[Json], available: AvailableAddresses
) -> tuple[AddressAllocation | None, str]:
    """An address of one IP version for the Service; else None and the reason."""
    others, mine = [o for o in others if allocated_addresses(o)], mac_of(service["metadata"]["uid"])
    requested, unusable = requested_address(service, version), _unusable_request(service)
    if unusable:
        return None, f"{unusable} is not of an IP family of the Service"
    for shared in _shareable_allocations(service, others, version):
        if requested in {"", shared.address}:
            return shared, ""
    before = available.reserved_for(mine, version)
    if before and requested in {"", before}:
        return AddressAllocation(before, mine), ""  # reserved in an interrupted pass
    taken = {address for o in others for address in allocated_addresses(o)} | available.reserved
    if requested:
        return _check_request(requested, mine, taken, available)
    ranges = [r for r in available.ranges if r.version == version]
    found = addresses.choose_address(ranges, taken)
    why = f"no free IPv{version} address: add addresses to the pool"
    return (AddressAllocation(found, mine), "") if found else (None, why)


def requested_address(service: Json, version: int) -> str:
    """The address of one version that the Service requests; an invalid text matches both."""
    for part in _requests(service):
        if not _is_address(part) or ipaddress.ip_address(part).version == version:
            return part
    return ""


def _requests(service: Json) -> tuple[str, ...]:
    return _parts(
        annotations(service).get(REQUESTED_ADDRESS) or service["spec"].get("loadBalancerIP") or ""
    )


def _unusable_request(service: Json) -> str:
    """A requested address that belongs to no IP family of the Service."""
    of_families = {requested_address(service, version) for version in families(service)}
    return next((r for r in _requests(service) if r not in of_families), "")


def is_required(service: Json, version: int, available: AvailableAddresses) -> bool:
    """Whether a missing address of a version is a failure; a mere preference is not."""
    prefers = service["spec"].get("ipFamilyPolicy") == "PreferDualStack"
    return not prefers or any(r.version == version for r in available.ranges)


def _shareable_allocations(
    service: Json, others: Sequence[Json], version: int
) -> Iterable[AddressAllocation]:
    for other in others:
        if _may_share(service, other):
            yield from (a for a in allocations(other) if a.version == version)


def _check_request(
    requested: str, mine: str, taken: set[str], available: AvailableAddresses
) -> tuple[AddressAllocation | None, str]:
    if not _is_address(requested) or not any(requested in r for r in available.ranges):
        return None, f"{requested} is not in the pool"
    if requested in taken:
        return None, f"{requested} is taken"
    return AddressAllocation(requested, mine), ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _may_share(one: Json, other: Json) -> bool:
    key = annotations(one).get(SHARING_KEY)
    return (
        bool(key) and key == annotations(other).get(SHARING_KEY) and not ports(one) & ports(other)
    )


def annotation_patch(
    service: Json, allocated: Sequence[AddressAllocation], settings: LoadBalancerFeatures
) -> Json:
    """The merge patch that records the addresses of a Service."""
    text = ",".join(a.address for a in allocated)
    wanted = {ALLOCATED: text}
    if settings.vnet:
        wanted[MAC] = ",".join(a.mac for a in allocated)
    if settings.announcer:
        wanted[ANNOUNCERS[settings.announcer]] = text
    version = service["metadata"].get("resourceVersion")
    return {"metadata": {"resourceVersion": version, "annotations": wanted}}


def removal_patch(service: Json) -> Json:
    """The merge patch that removes our annotations."""
    text = annotations(service).get(ALLOCATED)
    copies = [k for k in ANNOUNCERS.values() if annotations(service).get(k) == text]
    return {"metadata": {"annotations": dict.fromkeys([ALLOCATED, MAC, *copies])}}


def status(allocated: Sequence[AddressAllocation]) -> Json:
    """The status of a Service with these addresses."""
    rows = [{"ip": a.address, "ipMode": "VIP"} for a in allocated]
    return {"loadBalancer": {"ingress": rows}}


def mac_of(uid: str) -> str:
    """A locally administered MAC address that stands for a Service in the IPAM."""
    digest = hashlib.sha256(uid.encode()).digest()[:5]
    return SERVICE_MAC_PREFIX + ":".join(f"{b:02X}" for b in digest)


def may_carry_traffic(node: Node) -> bool:
    """Whether load balancers may use a node, by the rules of the upstream service controller."""
    if EXCLUDED in node.metadata.labels or node.deleting:
        return False
    scaled_down = any(t.key == SCALE_DOWN_TAINT for t in node.spec.taints)
    return not scaled_down and node.status.is_true("Ready")
