"""Translates a ProxmoxTemplate to the template that is built. Pure."""

import msgspec

from moxwell.api.karpenter.proxmox_templates import (
    ProxmoxTemplate,
    ProxmoxTemplateSpec,
    TemplateNetwork,
    TemplatePciDevice,
)
from moxwell.bootstrap.node_software import InvalidNodeSoftware, NodeSoftware
from moxwell.controllers.infra.template_build.design import (
    Baking,
    TemplateDesign,
    TemplateImage,
    checked_tags,
)
from moxwell.controllers.infra.template_build.hardware import (
    TemplateHardware,
    TemplateNic,
    config_of,
)
from moxwell.errors import Invalid
from moxwell.pve import property_strings
from moxwell.pve.ownership import Mark

BAKE = "moxwell.dev/bake"  # annotation: the node software that a builder guest installs


def design_of_object(obj: ProxmoxTemplate) -> TemplateDesign:
    """The design of a ProxmoxTemplate, which owns its copies by its UID."""
    spec = obj.spec
    source = spec.source_image
    image = TemplateImage(
        url=source.url,
        checksum=source.checksum or "",
        checksum_type=source.checksum_type or "",
        name=source.image_name or "",
    )
    return TemplateDesign(
        name=obj.name,
        mark=Mark(obj.uid),
        image=image,
        storages=spec.storage_ids,
        hardware=config_of(hardware_of(spec)),
        tags=checked_tags(spec.tags),
        description=spec.description or "",
        pool=spec.resource_pool or "",
        baking=baking_of(obj),
    )


def built_tags(obj: ProxmoxTemplate) -> tuple[str, ...]:
    """The tags of the copies that were built from an object, and of its present revision."""
    try:
        return (Mark(obj.uid).tag, design_of_object(obj).revision_tag)
    except Invalid:  # the controller of the object reports it; copies of an earlier spec remain
        return (Mark(obj.uid).tag,)


def baking_of(obj: ProxmoxTemplate) -> Baking | None:
    """The node software in the annotation; None: the image becomes the template as it is."""
    text = (obj.metadata.annotations or {}).get(BAKE)
    if not text:
        return None
    try:
        return Baking(msgspec.json.decode(text, type=NodeSoftware))
    except msgspec.MsgspecError as error:
        raise InvalidNodeSoftware(
            f'the annotation {BAKE} must be JSON such as {{"kubernetes": "v1.34.1"}}: {error}'
        ) from error


def hardware_of(spec: ProxmoxTemplateSpec) -> TemplateHardware:
    """The hardware; a cloud-init drive is needed only for addresses."""
    nics = tuple(_nic(nic) for nic in spec.network)
    servers = dict.fromkeys(s for nic in spec.network for s in nic.dns_servers or ())
    flags = f",flags={';'.join(spec.cpu.flags)}" if spec.cpu.flags else ""
    return TemplateHardware(
        nics=nics,
        machine=spec.machine,
        uefi=spec.bios == "ovmf",
        tpm=spec.tpm.version if spec.tpm else "",
        cpu=spec.cpu.type + flags,
        agent=_agent(spec),
        vga=_vga(spec),
        cloud_init_drive=any(nic.addresses for nic in nics) or bool(servers),
        on_boot=spec.on_boot,
        pci=tuple(_pci(device) for device in spec.pci_devices),
        nameservers=tuple(servers),
    )


def _agent(spec: ProxmoxTemplateSpec) -> str:
    agent = spec.agent
    if agent is None or not agent.enabled:
        return "0"
    options = {
        "type": agent.type,
        "freeze-fs-on-backup": agent.fs_freeze_on_backup,
        "fstrim_cloned_disks": agent.fs_trim_cloned_disks,
    }
    return property_strings.render("enabled=1", options)


def _vga(spec: ProxmoxTemplateSpec) -> str:
    if spec.vga is None:
        return "std"
    return property_strings.render(spec.vga.type, {"memory": spec.vga.memory})


def _nic(nic: TemplateNetwork) -> TemplateNic:
    parts = {
        "ip": nic.address4,
        "gw": nic.gateway4,
        "ip6": nic.address6,
        "gw6": nic.gateway6,
    }
    return TemplateNic(
        bridge=nic.bridge,
        model=nic.model,
        vlan=nic.vlan,
        mtu=nic.mtu if nic.model == "virtio" else None,
        firewall=nic.firewall,
        addresses={key: value for key, value in parts.items() if value},
    )


def _pci(device: TemplatePciDevice) -> str:
    options = {"mdev": device.mdev or None, "pcie": device.pcie, "x-vga": device.xvga}
    return property_strings.render(f"mapping={device.mapping}", options)
