"""
What the ``features`` of a configuration file say, as proxmox-cloud-controller-manager reads them.

Keys of its documentation that its code does not read are read here too (``network`` written flat).
An unknown key is an error that names it.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from moxwell.errors import Invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FEATURES = {"provider", "ha_group", "force_update_labels", "network", "load_balancer"}
OTHERS = {"controllerVmID", "controllerVMID"}  # of the storage driver, in the same file
NETWORK = {"mode", "external_ip_cidrs", "ip_sort_order", "ipv6_support_disabled"}
BALANCER = {"mode", "class", "pool", "vnet", "zone", "ipam", "announcer"}
MODES = ("default", "qemu", "auto")


class InvalidFeatures(Invalid):
    """Features that cannot be used; the text names the key."""

    reason = "InvalidConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """How Services of type LoadBalancer get an address."""

    mode: Literal["none", "ipam"] = "none"
    class_: str = "moxwell.dev/ipam"
    pool: tuple[str, ...] = ()  # addresses, ranges and CIDRs
    vnet: str = ""  # or a subnet of PVE's own IPAM
    zone: str = ""
    ipam: str = "pve"
    announcer: Literal["", "metallb", "kube-vip", "cilium"] = ""


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
    except yaml.YAMLError as error:
        raise InvalidFeatures(f"the configuration is not YAML: {error}") from error
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
        ha_group=bool(features.get("ha_group")),
        force_update_labels=bool(features.get("force_update_labels")),
        mode=mode,
        external=external,
        never=never + ignored,
        order=order,
        ipv6=not network.get("ipv6_support_disabled"),
        balancer=_balancer(features.get("load_balancer") or {}),
    )


def _balancer(given: Mapping[str, Any]) -> Balancer:
    _known("features.load_balancer", given, BALANCER)
    mode = str(given.get("mode") or "none")
    if mode not in {"none", "ipam"}:
        raise InvalidFeatures(f"features.load_balancer.mode is {mode!r}: use none or ipam")
    announcer = str(given.get("announcer") or "")
    if announcer not in {"", "metallb", "kube-vip", "cilium"}:
        raise InvalidFeatures(
            f"features.load_balancer.announcer is {announcer!r}: use metallb, kube-vip or cilium"
        )
    pool = given.get("pool") or ()
    return Balancer(
        mode="ipam" if mode == "ipam" else "none",
        class_=str(given.get("class") or "moxwell.dev/ipam"),
        pool=(pool,) if isinstance(pool, str) else tuple(map(str, pool)),
        vnet=str(given.get("vnet") or ""),
        zone=str(given.get("zone") or ""),
        ipam=str(given.get("ipam") or "pve"),
        announcer=announcer,  # type: ignore[arg-type]
    )


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
