"""Which address a Service gets and what is written: pure."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.api.infra.ranges import parse_ranges
from moxwell.controllers.cloud.settings import Balancer
from moxwell.kernel import addresses

Json = dict[str, Any]
SHARE = "moxwell.dev/lb-sharing-key"
WISH = "moxwell.dev/lb-address"
GIVEN = "moxwell.dev/lb-allocated"
ANNOUNCERS = {
    "metallb": "metallb.io/loadBalancerIPs",
    "kube-vip": "kube-vip.io/loadbalancerIPs",
    "cilium": "lbipam.cilium.io/ips",
}
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


def is_ours(service: Json, settings: Balancer) -> bool:
    """A Service that asks for an address of our class."""
    spec = service["spec"]
    ours = spec.get("loadBalancerClass") == settings.class_
    return bool(spec.get("type") == "LoadBalancer" and ours)


def notes(service: Json) -> Mapping[str, str]:
    """Its annotations."""
    found: Mapping[str, str] = service["metadata"].get("annotations") or {}
    return found


def given(service: Json) -> str:
    """The address a Service has from us."""
    return notes(service).get(GIVEN, "")


def ports(service: Json) -> set[tuple[str, int]]:
    """What it listens on."""
    return {(p.get("protocol", "TCP"), int(p["port"])) for p in service["spec"].get("ports") or ()}


def choose(service: Json, others: Iterable[Json], settings: Balancer) -> tuple[str, str]:
    """The address, or the sentence that says why there is none."""
    others = [o for o in others if given(o)]
    taken = {given(o) for o in others}
    wish = notes(service).get(WISH) or service["spec"].get("loadBalancerIP") or ""
    shared = [o for o in others if _shares(service, o)]
    for other in shared:
        clash = ports(service) & ports(other)
        if not clash and (not wish or wish == given(other)):
            return given(other), ""
    ranges = parse_ranges(settings.pool)
    if wish:
        if not any(wish in r for r in ranges):
            return "", f"{wish} is not in the pool"
        return ("", f"{wish} belongs to another Service") if wish in taken else (wish, "")
    found = addresses.choose_address(ranges, taken)
    return (found, "") if found else ("", "the pool has no free address: add addresses to it")


def _shares(one: Json, other: Json) -> bool:
    key = notes(one).get(SHARE)
    return bool(key) and key == notes(other).get(SHARE)


def change(service: Json, address: str, settings: Balancer) -> Json:
    """The annotations to write."""
    wanted = {GIVEN: address}
    if settings.announcer:
        wanted[ANNOUNCERS[settings.announcer]] = address
    return {"metadata": {"annotations": wanted}}


def status(address: str) -> Json:
    """Where the Service is reached."""
    return {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}


def mac_of(uid: str) -> str:
    """A locally administered MAC that stands for a Service in PVE's IPAM."""
    digest = hashlib.sha256(uid.encode()).digest()[:5]
    return ":".join(["02", *(f"{b:02X}" for b in digest)])
