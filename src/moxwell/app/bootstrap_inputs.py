"""What ``moxwell bootstrap`` reads before it starts: configuration, manifests, regions."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from moxwell import config_file, yaml_documents
from moxwell.bootstrap.cloud_images import find_image
from moxwell.bootstrap.node_software import NodeSoftware, description_line
from moxwell.config_file import InvalidConfig
from moxwell.controllers.infra.template_build import hardware
from moxwell.controllers.infra.template_build.design import (
    TemplateDesign,
    TemplateImage,
    checked_tags,
)
from moxwell.embedded.controlplanes.addons.routed_cni import routed_cni
from moxwell.embedded.ports import https_url
from moxwell.errors import Invalid
from moxwell.management import operator_components, operator_config, spec
from moxwell.management.manifests import ManifestStage, check_kinds
from moxwell.management.objects import needed_kinds
from moxwell.management.spec import TALOS, ManagementSpec, ManagementTemplate
from moxwell.pve import config
from moxwell.pve.config import RegionConfig
from moxwell.pve.ownership import Mark

Json = dict[str, Any]
MARKS = uuid.UUID("6d6f7877-656c-5b6f-8f74-737472617000")  # namespace of the templates' marks


@dataclass(frozen=True, slots=True)
class BootstrapInputs:
    """The management cluster, the regions that it uses, and what is installed in it."""

    spec: ManagementSpec
    regions: tuple[RegionConfig, ...]
    stages: tuple[ManifestStage, ...]


def read_inputs(path: Path) -> BootstrapInputs:
    """Read the configuration file and the manifests it names, relative to its folder."""
    text = config_file.read_text(path)
    wanted, known = spec.parse(text), config.load(path)
    names = {region.region for region in known}
    missing = sorted({z.region for z in wanted.zones} - names)
    if missing:
        raise InvalidConfig(
            f"{spec.SECTION}.zones: no region {', '.join(missing)} is configured; "
            f"known are {', '.join(sorted(names))}"
        )
    stages = [_cni(wanted)] if wanted.cni == "bridge" else []
    stages += [_stage(path.parent / name) for name in wanted.manifests]
    stages.append(_operator(path.parent, wanted, known))
    check_kinds(stages, needed_kinds(wanted))
    return BootstrapInputs(wanted, known, tuple(stages))


def _stage(path: Path) -> ManifestStage:
    return ManifestStage(path.name, _documents(path))


def _documents(path: Path) -> tuple[Json, ...]:
    text = config_file.read_text(path)
    try:
        found = [doc for doc in yaml.load_all(text, yaml.CSafeLoader) if doc]
    except yaml.YAMLError as error:
        raise Invalid(f"{path} is not YAML{yaml_documents.line_of(error)}") from None
    for doc in found:
        if not isinstance(doc, dict) or not {"apiVersion", "kind", "metadata"} <= set(doc):
            raise Invalid(f"{path}: each document needs apiVersion, kind and metadata")
    return tuple(found)


def _cni(wanted: ManagementSpec) -> ManifestStage:
    """The built-in network of pods; it reaches the API without one."""
    image = wanted.operator_image or operator_components.IMAGE
    url = https_url(wanted.endpoint, wanted.port)
    return ManifestStage("cni", routed_cni(image, url, wanted.pods))


def _operator(
    folder: Path, wanted: ManagementSpec, regions: Sequence[RegionConfig]
) -> ManifestStage:
    """The operator of the management cluster: its own file, or the built-in components."""
    if wanted.operator:
        return ManifestStage("moxwell", _documents(folder / wanted.operator))
    files = operator_config.config_files(regions)
    return ManifestStage("moxwell", operator_components.configured(files, wanted.operator_image))


def template_mark(wanted: ManagementSpec) -> Mark:
    """The owner mark of the template of this management cluster."""
    return Mark(str(uuid.uuid5(MARKS, f"{wanted.namespace}/{wanted.name}")))


def template_design(
    wanted: ManagementSpec, template: ManagementTemplate, region: str
) -> TemplateDesign:
    """The template that bootstrap makes in a region."""
    found = find_image(template.image, template.image_mirror)
    kind, _, digits = template.checksum.partition(":")
    software = _software(wanted, template)
    zones = [zone for zone in wanted.zones if zone.region == region]
    hosts = [host for zone in zones for host in zone.hosts]
    zone = zones[0]
    nic = hardware.TemplateNic(bridge=zone.bridge, vlan=zone.vlan or None)
    design = TemplateDesign(
        name=f"{wanted.name}-node",
        mark=template_mark(wanted),
        image=TemplateImage(url=found.url, checksum=digits, checksum_type=kind if digits else ""),
        storages=template.storages,
        hardware=hardware.config_of(_hardware(wanted, nic)),
        tags=checked_tags([f"k8s-{wanted.kubernetes}", found.os] if software else [TALOS]),
        description=description_line(software) if software else "",
        pool=wanted.pool,
        hosts=tuple(hosts) if all(zone.hosts for zone in zones) else (),
    )
    design.check()
    return design


def _software(wanted: ManagementSpec, template: ManagementTemplate) -> NodeSoftware | None:
    """What machines install at their first boot; Talos brings its own."""
    if wanted.bootstrap == TALOS:
        return None
    software = NodeSoftware(
        kubernetes=wanted.kubernetes,
        packages=template.packages,
        packages_key=template.packages_key,
        distribution_mirror=template.distribution_mirror,
        image_repository=wanted.image_repository,
        registry_mirrors=dict(template.registry_mirrors),
        proxy=template.proxy,
    )
    software.check()
    return software


def _hardware(wanted: ManagementSpec, nic: hardware.TemplateNic) -> hardware.TemplateHardware:
    """Without the guest agent for Talos, whose usual images have none."""
    if wanted.bootstrap == TALOS:
        return hardware.TemplateHardware(nics=(nic,), agent="0")
    return hardware.TemplateHardware(nics=(nic,))
