"""
What the ``features`` of a configuration file say, as proxmox-cloud-controller-manager reads them.

Keys of its documentation that its code does not read are read here too (``network`` written flat).
An unknown key is an error that names it.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import yaml

from moxwell.api.infra.address_ranges import parse_ranges
from moxwell.errors import Invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FEATURES = {"provider", "ha_group", "force_update_labels", "network", "load_balancer"}
OTHERS = {"controllerVmID", "controllerVMID"}  # of the storage driver, in the same file
NETWORK = {"mode", "external_ip_cidrs", "ip_sort_order", "ipv6_support_disabled"}
BALANCER = {"mode", "class", "pool", "region", "vnet", "zone", "ipam", "announcer"}
TRUE = {"1", "on", "true", "yes"}
FALSE = {"", "0", "off", "false", "no"}
MODES = ("default", "qemu", "auto")
Announcer = Literal["", "metallb", "kube-vip", "cilium"]
ANNOUNCERS: Mapping[str, Announcer] = {name: name for name in get_args(Announcer)}


class InvalidFeatures(Invalid):
    """Features that cannot be used; the text names the key."""

    reason = "InvalidConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """How Services of type LoadBalancer get an address."""

    mode: Literal["none", "ipam"] = "none"
    class_: str = "moxwell.dev/ipam"
    pool: tuple[str, ...] = ()  # addresses, ranges and CIDRs
    region: str = ""  # whose IPAM; may be left out where there is only one region
    vnet: str = ""  # of PVE's own IPAM: the pool, if given, lies in its subnets
    zone: str = ""
    ipam: str = "pve"
    announcer: Announcer = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """How the cloud controller behaves."""

    provider: Literal["default", "capmox"] = "default"
    ha_group: bool = False
    force_update_labels: bool = False
    mode: str = "default"
    external: tuple[Network, ...] = ()
    never: tuple[Network, ...] = ()
    order: tuple[Network, ...] = ()
    ipv6: bool = True
    balancer: Balancer = Balancer()


def parse(text: str) -> Features:
    """The features of a whole configuration file."""
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:  # not quoted, nor kept as the cause: it shows a token's line
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise InvalidFeatures(f"the configuration is not YAML{place}") from None
    if not isinstance(document, dict):
        raise InvalidFeatures("the configuration is not a mapping")
    return from_mapping(document.get("features") or {})


def from_mapping(features: Mapping[str, Any]) -> Features:
    """Features from what stands under ``features``."""
    _known("features", features, FEATURES | OTHERS | NETWORK)
    network = {k: v for k, v in features.items() if k in NETWORK}
    nested = features.get("network") or {}
    if isinstance(nested, str):  # the documentation's flat form: network: qemu
        nested = {"mode": nested}
    _known("features.network", nested, NETWORK)
    network |= nested
    mode = str(network.get("mode") or "default")
    if mode not in MODES:
        raise InvalidFeatures(f"features.network.mode is {mode!r}: use {', '.join(MODES)}")
    provider = str(features.get("provider") or "default")
    if provider not in {"default", "capmox"}:
        raise InvalidFeatures(f"features.provider is {provider!r}: use default or capmox")
    external, never = _networks("external_ip_cidrs", network.get("external_ip_cidrs"))
    order, ignored = _networks("ip_sort_order", network.get("ip_sort_order"))
    return Features(
        provider="capmox" if provider == "capmox" else "default",
        ha_group=_flag("ha_group", features),
        force_update_labels=_flag("force_update_labels", features),
        mode=mode,
        external=external,
        never=never + ignored,
        order=order,
        ipv6=not _flag("ipv6_support_disabled", network),
        balancer=_balancer(features.get("load_balancer") or {}),
    )


def _balancer(given: Mapping[str, Any]) -> Balancer:
    _known("features.load_balancer", given, BALANCER)
    mode = str(given.get("mode") or "none")
    if mode not in {"none", "ipam"}:
        raise InvalidFeatures(f"features.load_balancer.mode is {mode!r}: use none or ipam")
    announcer = str(given.get("announcer") or "")
    if announcer not in ANNOUNCERS:
        raise InvalidFeatures(
            f"features.load_balancer.announcer is {announcer!r}: use metallb, kube-vip or cilium"
        )
    pool = given.get("pool") or ()
    if mode == "ipam" and not pool and not given.get("vnet"):
        raise InvalidFeatures("features.load_balancer: mode ipam wants a pool, a vnet, or both")
    if given.get("vnet") and not given.get("zone"):
        raise InvalidFeatures("features.load_balancer: a vnet wants its SDN zone")
    return Balancer(
        mode="ipam" if mode == "ipam" else "none",
        class_=str(given.get("class") or "moxwell.dev/ipam"),
        pool=_pool(pool),
        region=str(given.get("region") or ""),
        vnet=str(given.get("vnet") or ""),
        zone=str(given.get("zone") or ""),
        ipam=str(given.get("ipam") or "pve"),
        announcer=ANNOUNCERS[announcer],
    )


def _pool(given: Any) -> tuple[str, ...]:
    """Addresses, ranges and CIDRs: a list, or one text with commas."""
    texts = given.split(",") if isinstance(given, str) else list(given)
    pool = tuple(str(text).strip() for text in texts)
    try:
        parse_ranges(pool)
    except Invalid as error:
        raise InvalidFeatures(f"features.load_balancer.pool: {error}") from error
    return pool


def _flag(key: str, given: Mapping[str, Any]) -> bool:
    """A text like "false" is not true."""
    word = str(given.get(key) or "").strip().lower()
    if word not in TRUE | FALSE:
        raise InvalidFeatures(f"features: {key} must be true or false, not {given[key]!r}")
    return word in TRUE


def _known(where: str, given: Any, keys: set[str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidFeatures(f"{where} must be a mapping")
    for key in given:
        if key not in keys:
            raise InvalidFeatures(
                f"{where}.{key} is not known: there are {', '.join(sorted(keys))}"
            )


def _networks(key: str, given: Any) -> tuple[tuple[Network, ...], tuple[Network, ...]]:
    """Networks to take and, behind ``!``, networks never to take."""
    texts = given.split(",") if isinstance(given, str) else list(given or ())
    taken: list[Network] = []
    never: list[Network] = []
    for text in (str(t).strip() for t in texts):
        if not text:
            continue
        try:
            network = ipaddress.ip_network(text.lstrip("!"), strict=False)
        except ValueError as error:
            raise InvalidFeatures(f"features.network.{key}: {text!r} is no network") from error
        (never if text.startswith("!") else taken).append(network)
    return tuple(taken), tuple(never)
