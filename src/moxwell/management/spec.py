"""The section ``management_cluster`` of the configuration file: what bootstrap creates. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from moxwell import config_file
from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.bootstrap import talos_documents
from moxwell.config_file import InvalidConfig
from moxwell.errors import Invalid

SECTION = "management_cluster"
KUBE_VIP_IMAGE = "ghcr.io/kube-vip/kube-vip:v1.0.1"
NO_VIRTUAL_IP, TALOS = "none", "talos"
_NAME = re.compile(r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")
_VERSION = re.compile(r"^v\d+\.\d+\.\d+$")


class ManagementZone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where some of the machines are: a region, its network and the hosts that may be used."""

    region: str
    name: str = ""
    hosts: tuple[str, ...] = ()  # empty: all hosts of the region
    bridge: str = "vmbr0"
    vlan: int = 0
    storage: str = ""
    addresses: tuple[str, ...] = ()
    prefix: int = 24
    gateway: str = ""


class ManagementTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The template that bootstrap makes; without it an existing one is found by its version."""

    image: str  # a URL, or a known name such as ubuntu-24.04
    checksum: str = ""  # sha256:…
    image_mirror: str = ""
    packages: str = ""
    packages_key: str = ""
    distribution_mirror: str = ""
    registry_mirrors: Mapping[str, str] = {}
    proxy: str = ""
    storages: tuple[str, ...] = ()


class ManagementTalos(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Talos machines are made."""

    template: str = ""  # the name of an existing template; without it, that of `template`
    patches: tuple[str, ...] = ()  # of their machine configuration, as YAML


class ManagementSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The management cluster."""

    kubernetes: str
    endpoint: str  # the address of the API: the virtual IP, or that of a load balancer
    zones: tuple[ManagementZone, ...]
    name: str = "management"
    namespace: str = "default"
    port: int = 6443
    replicas: int = 3
    cores: int = 4
    memory: int = 8192  # MiB
    disk: int = 40  # GB
    spread: Literal["Require", "Prefer"] = "Require"  # different hosts within a zone
    dns: tuple[str, ...] = ()
    pods: str = "10.244.0.0/16"
    services: str = "10.96.0.0/12"
    pool: str = ""
    template: ManagementTemplate | None = None
    bootstrap: Literal["kubeadm", "talos"] = "kubeadm"
    talos: ManagementTalos = ManagementTalos()
    virtual_ip: str = KUBE_VIP_IMAGE  # the image of kube-vip; "none": a load balancer exists
    virtual_ip_interface: str = "eth0"
    cni: Literal["bridge", "none"] = "none"  # bridge: the built-in one; none: in the manifests
    image_repository: str = ""  # of kubeadm's images
    ssh_keys: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()  # files: CNI, Cluster API, its providers; in this order
    operator: str = ""  # a file with manifests instead of the built-in ones
    operator_image: str = ""


def parse(text: str) -> ManagementSpec:
    """The section of a configuration text; raises InvalidConfig if it is missing or wrong."""
    section = config_file.parse_mapping(text).get(SECTION)
    if section is None:
        raise InvalidConfig(
            f"the configuration has no {SECTION}; see docs/howto-bootstrap.md for an example"
        )
    try:
        spec = msgspec.convert(section, ManagementSpec)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"{SECTION}: {error}") from None
    _check(spec)
    return spec


def _check(spec: ManagementSpec) -> None:
    problems: Mapping[str, Any] = {
        "name must have lower-case letters, digits and dashes": not _NAME.match(spec.name),
        "kubernetes must be a version such as v1.34.1": not _VERSION.match(spec.kubernetes),
        "replicas must be 1, 3 or 5, for a majority of etcd": spec.replicas not in (1, 3, 5),
        "zones must have at least one entry": not spec.zones,
        "zones must have different names": len(set(map(zone_name, spec.zones))) != len(spec.zones),
        "endpoint must be an IP address, or set virtual_ip to none": not is_address(spec.endpoint)
        and spec.virtual_ip != NO_VIRTUAL_IP,
        "talos is set; set bootstrap: talos too": spec.talos != ManagementTalos()
        and spec.bootstrap != TALOS,
        "pods and services must not overlap": _overlap(spec.pods, spec.services),
    }
    for problem, wrong in problems.items():
        if wrong:
            raise InvalidConfig(f"{SECTION}: {problem}")
    for zone in spec.zones:
        _check_zone(spec, zone)
    if spec.bootstrap == TALOS:
        _check_talos(spec)


def _check_talos(spec: ManagementSpec) -> None:
    """Refuse what Talos has no use for, and machines without a template of Talos."""
    problems: Mapping[str, Any] = {
        "set talos.template, or template with the URL of a Talos image": not spec.talos.template
        and spec.template is None,
        "talos.template names an existing template; remove it, or template": spec.talos.template
        and spec.template is not None,
        "template.image must be the URL of a Talos image": spec.template
        and not spec.template.image.startswith(("http://", "https://")),
        "template.packages and the like are for kubeadm; Talos brings its programs": spec.template
        and _installs_software(spec.template),
        "Talos has no SSH; remove ssh_keys": spec.ssh_keys,
        "image_repository is for kubeadm; set images in talos.patches": spec.image_repository,
        "cni: bridge needs plugins on the nodes, which was not tried with Talos; "
        "put a CNI into manifests": spec.cni == "bridge",
    }
    for problem, wrong in problems.items():
        if wrong:
            raise InvalidConfig(f"{SECTION} with bootstrap: talos: {problem}")
    for patch in spec.talos.patches:
        talos_documents.parse(patch, f"{SECTION}.talos.patches: a patch")


def _installs_software(template: ManagementTemplate) -> bool:
    own = (template.packages, template.packages_key, template.distribution_mirror)
    return any((*own, template.registry_mirrors, template.proxy))


def _check_zone(spec: ManagementSpec, zone: ManagementZone) -> None:
    where = f"{SECTION}.zones {zone_name(zone)}"
    if not zone.addresses or not zone.gateway:
        raise InvalidConfig(f"{where}: set addresses and gateway of the machines")
    try:
        ranges = parse_address_ranges(list(zone.addresses))
        network = ipaddress.ip_network(f"{zone.gateway}/{zone.prefix}", strict=False)
    except (Invalid, ValueError):
        raise InvalidConfig(f"{where}: addresses must be addresses or ranges a-b") from None
    for text in zone.addresses:
        ends = [ipaddress.ip_address(part.strip()) for part in text.split("-")]
        if any(end not in network for end in ends):
            raise InvalidConfig(f"{where}: {text} is not in {network}, the network of the gateway")
    if is_address(spec.endpoint) and any(spec.endpoint in each for each in ranges):
        raise InvalidConfig(
            f"{where}: addresses contain {spec.endpoint}, the endpoint; exclude it, "
            "or a machine could get it"
        )


def _overlap(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_network(one).overlaps(ipaddress.ip_network(other))
    except (ValueError, TypeError):
        raise InvalidConfig(f"{SECTION}: pods and services must be networks") from None


def is_address(text: str) -> bool:
    """Whether a text is an IP address; else it is a DNS name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def template_name(spec: ManagementSpec) -> str:
    """The name of the template of the machines; empty if it is found by the version."""
    if spec.bootstrap == TALOS:
        return spec.talos.template or f"{spec.name}-node"
    return ""


def zone_name(zone: ManagementZone) -> str:
    """The name of the failure domain."""
    return zone.name or zone.region
