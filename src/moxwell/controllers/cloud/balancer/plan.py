"""Which address a Service gets and what is written: pure."""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.controllers.cloud.balancer.ipam import Free
from moxwell.controllers.cloud.settings import Balancer
from moxwell.kernel import addresses

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


def given(service: Json) -> str:
    """The address a Service has from us."""
    return notes(service).get(GIVEN, "")


def mac(service: Json) -> str:
    """The MAC its address is reserved under; sharers have that of the first."""
    return notes(service).get(MAC) or mac_of(service["metadata"]["uid"])


def ports(service: Json) -> set[tuple[str, int]]:
    """What it listens on."""
    return {(p.get("protocol", "TCP"), int(p["port"])) for p in service["spec"].get("ports") or ()}


def has_right(service: Json, others: Iterable[Json], free: Free) -> bool:
    """Whether the address noted on it is its own: annotations can be written by anybody."""
    address = given(service)
    if not _is_address(address) or not any(address in r for r in free.ranges):
        return False
    rivals = [o for o in others if given(o) == address and not _may_share(service, o)]
    return all(_age(service) < _age(rival) for rival in rivals)


def _age(service: Json) -> tuple[str, str]:
    meta = service["metadata"]
    return str(meta.get("creationTimestamp", "")), str(meta["uid"])


def choose(service: Json, others: Iterable[Json], free: Free) -> tuple[str, str, str]:
    """The address, the MAC it is reserved under, and if there is none, why."""
    others, mine = [o for o in others if given(o)], mac_of(service["metadata"]["uid"])
    wish = notes(service).get(WISH) or service["spec"].get("loadBalancerIP") or ""
    for other in others:
        if _may_share(service, other) and wish in {"", given(other)}:
            return given(other), mac(other), ""
    before = free.of(mine)
    if before and wish in {"", before}:
        return before, mine, ""  # reserved in a pass that did not come to its end
    taken = {given(o) for o in others} | free.taken
    if wish:
        return _wished(wish, mine, taken, free)
    version = 6 if (service["spec"].get("ipFamilies") or ["IPv4"])[0] == "IPv6" else 4
    ranges = [r for r in free.ranges if r.version == version]
    found = addresses.choose_address(ranges, taken)
    why = f"there is no free IPv{version} address: add addresses to the pool"
    return (found, mine, "") if found else ("", "", why)


def _wished(wish: str, mine: str, taken: set[str], free: Free) -> tuple[str, str, str]:
    if not _is_address(wish) or not any(wish in r for r in free.ranges):
        return "", "", f"{wish} is not in the pool"
    return ("", "", f"{wish} is taken") if wish in taken else (wish, mine, "")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _may_share(one: Json, other: Json) -> bool:
    key = notes(one).get(SHARE)
    return bool(key) and key == notes(other).get(SHARE) and not ports(one) & ports(other)


def change(service: Json, address: str, mac: str, settings: Balancer) -> Json:
    """The annotations to write."""
    wanted = {GIVEN: address}
    if settings.vnet:
        wanted[MAC] = mac
    if settings.announcer:
        wanted[ANNOUNCERS[settings.announcer]] = address
    version = service["metadata"].get("resourceVersion")
    return {"metadata": {"resourceVersion": version, "annotations": wanted}}


def undoing(service: Json) -> Json:
    """The annotations to take off a Service that is no longer ours."""
    address = given(service)
    gone = [k for k in ANNOUNCERS.values() if notes(service).get(k) == address]
    return {"metadata": {"annotations": dict.fromkeys([GIVEN, MAC, *gone])}}


def status(address: str) -> Json:
    """Where the Service is reached."""
    return {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}


def mac_of(uid: str) -> str:
    """A locally administered MAC that stands for a Service in PVE's IPAM."""
    digest = hashlib.sha256(uid.encode()).digest()[:5]
    return ":".join(["02", *(f"{b:02X}" for b in digest)])


def carries(node: Node) -> bool:
    """Whether a node may take traffic of load balancers, by the rules of the service controller."""
    if EXCLUDED in node.metadata.labels or node.deleting:
        return False
    leaving = any(t.key == LEAVING for t in node.spec.taints)
    return not leaving and node.status.is_true("Ready")
