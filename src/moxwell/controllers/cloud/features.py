"""
The ``features`` section of a configuration file of proxmox-cloud-controller-manager. Pure.

The flat form of ``network`` in its documentation, which its code does not read, is accepted too. An
unknown key is an error.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from moxwell import config_file
from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.config_file import InvalidConfig
from moxwell.errors import Invalid

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FEATURES = {"provider", "ha_group", "force_update_labels", "network", "load_balancer"}
OTHERS = {  # keys of the storage driver and of other controllers in the same file
    "controllerVmID", "controllerVMID", "volumeTenant", "staticVolumes", "ownVolumesByPrefix",
    "adoptGuests", "credentialHosts", "crossNamespaceCredentials", "autoscaler",
    "fullClones", "instanceTypesFile", "nodeSettingFile", "nodePolicy", "proxmoxVMID",
}  # fmt: skip
NETWORK = {"mode", "external_ip_cidrs", "ip_sort_order", "ipv6_support_disabled"}
BALANCER = {"mode", "class", "pool", "region", "vnet", "zone", "ipam", "announcer"}
MODES = ("default", "qemu", "auto")
Announcer = Literal["", "metallb", "kube-vip", "cilium"]
ANNOUNCERS: Mapping[str, Announcer] = {name: name for name in get_args(Announcer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerFeatures:
    """How Services of type LoadBalancer get addresses."""

    mode: Literal["none", "ipam"] = "none"
    class_: str = "moxwell.dev/ipam"
    pool: tuple[str, ...] = ()  # addresses, ranges and CIDRs
    region: str = ""  # of the IPAM; optional if there is only one region
    vnet: str = ""  # addresses are reserved in the IPAM of Proxmox VE
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
    excluded: tuple[Network, ...] = ()
    order: tuple[Network, ...] = ()
    ipv6: bool = True
    load_balancer: LoadBalancerFeatures = LoadBalancerFeatures()


def parse(text: str) -> Features:
    """The features of a whole configuration file."""
    return from_mapping(config_file.parse_mapping(text).get("features") or {})


def from_mapping(features: Mapping[str, Any]) -> Features:
    """Features from the content of ``features``."""
    _known("features", features, FEATURES | OTHERS | NETWORK)
    network = {k: v for k, v in features.items() if k in NETWORK}
    nested = features.get("network") or {}
    if isinstance(nested, str):  # the flat form, network: qemu
        nested = {"mode": nested}
    _known("features.network", nested, NETWORK)
    network |= nested
    mode = str(network.get("mode") or "default")
    if mode not in MODES:
        raise InvalidConfig(f"features.network.mode is {mode!r}: use {', '.join(MODES)}")
    provider = str(features.get("provider") or "default")
    if provider not in {"default", "capmox"}:
        raise InvalidConfig(f"features.provider is {provider!r}: use default or capmox")
    external, never = _networks("external_ip_cidrs", network.get("external_ip_cidrs"))
    order, ignored = _networks("ip_sort_order", network.get("ip_sort_order"))
    return Features(
        provider="capmox" if provider == "capmox" else "default",
        ha_group=_flag("ha_group", features),
        force_update_labels=_flag("force_update_labels", features),
        mode=mode,
        external=external,
        excluded=never + ignored,
        order=order,
        ipv6=not _flag("ipv6_support_disabled", network),
        load_balancer=_load_balancer(features.get("load_balancer") or {}),
    )


def _load_balancer(given: Mapping[str, Any]) -> LoadBalancerFeatures:
    _known("features.load_balancer", given, BALANCER)
    mode = str(given.get("mode") or "none")
    if mode not in {"none", "ipam"}:
        raise InvalidConfig(f"features.load_balancer.mode is {mode!r}: use none or ipam")
    announcer = str(given.get("announcer") or "")
    if announcer not in ANNOUNCERS:
        raise InvalidConfig(
            f"features.load_balancer.announcer is {announcer!r}: use metallb, kube-vip or cilium"
        )
    pool = given.get("pool") or ()
    if mode == "ipam" and not pool and not given.get("vnet"):
        raise InvalidConfig("features.load_balancer: mode ipam needs a pool, a vnet or both")
    if given.get("vnet") and not given.get("zone"):
        raise InvalidConfig("features.load_balancer: a vnet needs its SDN zone")
    return LoadBalancerFeatures(
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
    """Addresses, ranges and CIDRs, as a list or separated by commas."""
    texts = given.split(",") if isinstance(given, str) else list(given)
    pool = tuple(str(text).strip() for text in texts)
    try:
        parse_address_ranges(pool)
    except Invalid as error:
        raise InvalidConfig(f"features.load_balancer.pool: {error}") from error
    return pool


def _flag(key: str, given: Mapping[str, Any]) -> bool:
    return config_file.parse_flag(f"features: {key}", given.get(key))


def _known(where: str, given: Any, keys: set[str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"{where} must be a mapping")
    config_file.refuse_unknown(where, given, keys)


def _networks(key: str, given: Any) -> tuple[tuple[Network, ...], tuple[Network, ...]]:
    """Included networks and, written with ``!``, excluded ones."""
    texts = given.split(",") if isinstance(given, str) else list(given or ())
    included: list[Network] = []
    excluded: list[Network] = []
    for text in (str(t).strip() for t in texts):
        if not text:
            continue
        try:
            network = ipaddress.ip_network(text.lstrip("!"), strict=False)
        except ValueError as error:
            raise InvalidConfig(f"features.network.{key}: {text!r} is not a network") from error
        (excluded if text.startswith("!") else included).append(network)
    return tuple(included), tuple(excluded)
