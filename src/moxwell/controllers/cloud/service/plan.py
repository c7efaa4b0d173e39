"""
Which addresses a Service gets and what is written: pure.

In: a Service, the others, what is free. Out: for each of its IP families an address and the MAC it
is reserved under. The surprise: each address has a MAC of its own, because a Service may share the
one and have the other alone.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.features import Balancer
from moxwell.controllers.cloud.service.ipam import Free
from moxwell.scheduling import addresses

Json = dict[str, Any]
SHARE = "moxwell.dev/lb-sharing-key"
WISH = "moxwell.dev/lb-address"
GIVEN = "moxwell.dev/lb-allocated"
MAC = "moxwell.dev/lb-mac"
ANNOUNCERS = {
    "metallb": "metallb.io/loadBalancerIPs",
    "kube-vip": "kube-vip.io/loadbalancerIPs",
    "cilium": "lbipam.cilium.io/ips",
}
OURS = "02:"  # how the MACs begin that stand for Services; a guest's never do
FAMILIES = {"IPv4": 4, "IPv6": 6}
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING = "ToBeDeletedByClusterAutoscaler"


def is_ours(service: Json, settings: Balancer) -> bool:
    """A Service that asks for an address of our class."""
    spec = service["spec"]
    ours = spec.get("loadBalancerClass") == settings.class_
    return bool(spec.get("type") == "LoadBalancer" and ours)


def concerns(service: Json, settings: Balancer) -> bool:
    """It asks for an address, or has one that is to be given back; others are left alone."""
    return is_ours(service, settings) or bool(given(service))


def notes(service: Json) -> Mapping[str, str]:
    """Its annotations."""
    found: Mapping[str, str] = service["metadata"].get("annotations") or {}
    return found


@dataclass(frozen=True, slots=True)
class Grant:
    """An address, and the MAC that it is reserved under."""

    address: str
    mac: str

    @property
    def version(self) -> int:
        return ipaddress.ip_address(self.address).version


def given(service: Json) -> tuple[str, ...]:
    """The addresses a Service has from us, as noted."""
    return _parts(notes(service).get(GIVEN, ""))


def grants(service: Json) -> tuple[Grant, ...]:
    """The same with their MACs; what is no address is left out."""
    noted, own = _parts(notes(service).get(MAC, "")), mac_of(service["metadata"]["uid"])
    macs = [mac if mac.startswith(OURS) else own for mac in noted]  # never a guest's
    rows = zip_longest(given(service), macs[: len(given(service))], fillvalue=own)
    return tuple(Grant(address, mac) for address, mac in rows if _is_address(address))


def families(service: Json) -> tuple[int, ...]:
    """The IP versions it asks for, the first one first."""
    spec = service["spec"]
    asked = spec.get("ipFamilies")
    if not asked:
        dual = spec.get("ipFamilyPolicy") in ("PreferDualStack", "RequireDualStack")
        asked = ["IPv4", "IPv6"] if dual else ["IPv4"]
    return tuple(FAMILIES[f] for f in asked if f in FAMILIES)


def needs_all(service: Json) -> bool:
    """Whether one family without the other is not enough."""
    return bool(service["spec"].get("ipFamilyPolicy") == "RequireDualStack")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def ports(service: Json) -> set[tuple[str, int]]:
    """What it listens on."""
    return {(p.get("protocol", "TCP"), int(p["port"])) for p in service["spec"].get("ports") or ()}


def has_right(service: Json, address: str, others: Iterable[Json], free: Free) -> bool:
    """Whether an address noted on it is its own: annotations can be written by anybody."""
    if not _is_address(address) or not any(address in r for r in free.ranges):
        return False
    rivals = [o for o in others if address in given(o) and not _may_share(service, o)]
    return all(_age(service) < _age(rival) for rival in rivals)


def _age(service: Json) -> tuple[str, str]:
    meta = service["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta["uid"])


def choose(
    service: Json, version: int, others: Iterable[Json], free: Free
) -> tuple[Grant | None, str]:
    """What it gets of one IP version, and if there is nothing, why."""
    others, mine = [o for o in others if given(o)], mac_of(service["metadata"]["uid"])
    wish, stray = wished(service, version), _stray(service)
    if stray:
        return None, f"{stray} is of no IP family of the Service"
    for grant in _shareable(service, others, version):
        if wish in {"", grant.address}:
            return grant, ""
    before = free.of(mine, version)
    if before and wish in {"", before}:
        return Grant(before, mine), ""  # reserved in a pass that did not come to its end
    taken = {address for o in others for address in given(o)} | free.taken
    if wish:
        return _wished(wish, mine, taken, free)
    ranges = [r for r in free.ranges if r.version == version]
    found = addresses.choose_address(ranges, taken)
    why = f"there is no free IPv{version} address: add addresses to the pool"
    return (Grant(found, mine), "") if found else (None, why)


def wished(service: Json, version: int) -> str:
    """The address it asks for in words, of one version; what is no address counts as any."""
    for part in _wishes(service):
        if not _is_address(part) or ipaddress.ip_address(part).version == version:
            return part
    return ""


def _wishes(service: Json) -> tuple[str, ...]:
    return _parts(notes(service).get(WISH) or service["spec"].get("loadBalancerIP") or "")


def _stray(service: Json) -> str:
    """A wish that no family of the Service can fulfil."""
    of_families = {wished(service, version) for version in families(service)}
    return next((w for w in _wishes(service) if w not in of_families), "")


def is_missed(service: Json, version: int, free: Free) -> bool:
    """Whether somebody must be told that it has no address of a version: a preference is quiet."""
    prefers = service["spec"].get("ipFamilyPolicy") == "PreferDualStack"
    return not prefers or any(r.version == version for r in free.ranges)


def _shareable(service: Json, others: Sequence[Json], version: int) -> Iterable[Grant]:
    for other in others:
        if _may_share(service, other):
            yield from (g for g in grants(other) if g.version == version)


def _wished(wish: str, mine: str, taken: set[str], free: Free) -> tuple[Grant | None, str]:
    if not _is_address(wish) or not any(wish in r for r in free.ranges):
        return None, f"{wish} is not in the pool"
    return (None, f"{wish} is taken") if wish in taken else (Grant(wish, mine), "")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _may_share(one: Json, other: Json) -> bool:
    key = notes(one).get(SHARE)
    return bool(key) and key == notes(other).get(SHARE) and not ports(one) & ports(other)


def change(service: Json, given: Sequence[Grant], settings: Balancer) -> Json:
    """The annotations to write."""
    text = ",".join(g.address for g in given)
    wanted = {GIVEN: text}
    if settings.vnet:
        wanted[MAC] = ",".join(g.mac for g in given)
    if settings.announcer:
        wanted[ANNOUNCERS[settings.announcer]] = text
    version = service["metadata"].get("resourceVersion")
    return {"metadata": {"resourceVersion": version, "annotations": wanted}}


def undoing(service: Json) -> Json:
    """The annotations to take off a Service that is no longer ours."""
    text = notes(service).get(GIVEN)
    gone = [k for k in ANNOUNCERS.values() if notes(service).get(k) == text]
    return {"metadata": {"annotations": dict.fromkeys([GIVEN, MAC, *gone])}}


def status(given: Sequence[Grant]) -> Json:
    """Where the Service is reached."""
    rows = [{"ip": g.address, "ipMode": "VIP"} for g in given]
    return {"loadBalancer": {"ingress": rows}}


def mac_of(uid: str) -> str:
    """A locally administered MAC that stands for a Service in PVE's IPAM."""
    digest = hashlib.sha256(uid.encode()).digest()[:5]
    return OURS + ":".join(f"{b:02X}" for b in digest)


def carries(node: Node) -> bool:
    """Whether a node may take traffic of load balancers, by the rules of the service controller."""
    if EXCLUDED in node.metadata.labels or node.deleting:
        return False
    leaving = any(t.key == LEAVING for t in node.spec.taints)
    return not leaving and node.status.is_true("Ready")
