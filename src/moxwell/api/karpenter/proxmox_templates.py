"""
ProxmoxTemplate and ProxmoxUnmanagedTemplate of karpenter-provider-proxmox.

Fields, defaults and bounds are those of the provider's CRDs. The URL of an image may also name a
port or an IP address, which the provider refuses.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.fields import AGE, READY, Resources, validated
from moxwell.api.karpenter.proxmox import (
    PROVIDER_GROUP,
    PROVIDER_VERSION,
    ZONES,
    GuestTags,
    ResourcePoolName,
)
from moxwell.api.kinds import Column, Object, ValidationRule, kind
from moxwell.api.meta import Value

Text = Annotated[str, Meta(min_length=1)]
ChecksumType = Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
CpuType = Literal["host", "kvm64", "x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4"]
NicModel = Literal["e1000", "e1000e", "rtl8139", "virtio", "vmxnet3"]


class SourceImage(Value, frozen=True, kw_only=True):
    """The cloud image that a host downloads."""

    url: Annotated[str, Meta(pattern=r"^https?://[0-9A-Za-z.:@_%\[\]-]+(/[^\t\n\f\r ]*)?$")]
    image_name: Annotated[str, Meta(min_length=1, max_length=64)] | None = field(
        name="imageName", default=None
    )
    checksum: Annotated[str, Meta(min_length=32, max_length=128)] | None = None
    checksum_type: ChecksumType | None = field(name="checksumType", default=None)


class TemplateTpm(Value, frozen=True, kw_only=True):
    version: Literal["v1.2", "v2.0"] = "v2.0"


class TemplateAgent(Value, frozen=True, kw_only=True):
    """The QEMU guest agent."""

    enabled: bool = False
    type: Literal["virtio", "isa"] = "virtio"
    fs_freeze_on_backup: bool | None = field(name="fsFreezeOnBackup", default=None)
    fs_trim_cloned_disks: bool | None = field(name="fsTrimClonedDisks", default=None)


class TemplateCpu(Value, frozen=True, kw_only=True):
    type: CpuType = "x86-64-v2-AES"
    flags: Annotated[tuple[str, ...], Meta(max_length=10)] = ()


class TemplateVga(Value, frozen=True, kw_only=True):
    type: Literal["none", "serial0", "std", "vmware"] = "std"
    memory: Annotated[int, Meta(ge=4, le=512)] | None = None


class TemplateNetwork(Value, frozen=True, kw_only=True):
    """A network device of the template."""

    name: Text | None = None
    bridge: Text
    model: NicModel = "virtio"
    mtu: Annotated[
        int,
        validated(
            (
                "self == 1 || ( self >= 576 && self <= 65520)",
                "mtu is 1 (the bridge's) or 576 to 65520",
            )
        ),
    ] = 1500
    vlan: Annotated[int, Meta(ge=1, le=4094)] | None = None
    firewall: bool | None = None
    address4: Text | None = None
    address6: Text | None = None
    gateway4: Text | None = None
    gateway6: Text | None = None
    dns_servers: Annotated[tuple[str, ...], Meta(min_length=1)] | None = field(
        name="dnsServers", default=None
    )


class TemplatePciDevice(Value, frozen=True, kw_only=True):
    """A PCI device by its resource mapping."""

    mapping: Text
    mdev: str | None = None
    pcie: bool | None = None
    xvga: bool | None = None


class ProxmoxTemplateSpec(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxTemplate."""

    region: Text | None = None
    description: Text | None = None
    source_image: SourceImage = field(name="sourceImage")
    storage_ids: Annotated[tuple[str, ...], Meta(min_length=1)] = field(name="storageIDs")
    machine: Literal["pc", "q35"] = "q35"
    bios: Literal["seabios", "ovmf"] = "seabios"
    tpm: TemplateTpm | None = None
    agent: TemplateAgent | None = None
    cpu: Annotated[TemplateCpu, validated(default={"type": "x86-64-v2-AES"})] = TemplateCpu()
    vga: TemplateVga | None = None
    network: Annotated[tuple[TemplateNetwork, ...], Meta(min_length=1, max_length=6)]
    pci_devices: Annotated[tuple[TemplatePciDevice, ...], Meta(max_length=6)] = field(
        name="pciDevices", default=()
    )
    tags: GuestTags = ()
    resource_pool: ResourcePoolName | None = field(name="resourcePool", default=None)
    on_boot: bool | None = field(name="onBoot", default=None)


class ProxmoxTemplateStatus(Value, frozen=True, kw_only=True):
    """The observed state of a template; a zone is ``region/host/VMID``."""

    conditions: tuple[Condition, ...] = ()
    resources: Resources = field(default_factory=dict)
    zones: tuple[str, ...] = ()
    image_id: str = field(name="imageID", default="")


@kind(
    group=PROVIDER_GROUP,
    version=PROVIDER_VERSION,
    plural="proxmoxtemplates",
    scope="Cluster",
    categories=("karpenter",),
    status=True,
    columns=(
        ZONES,
        Column("Machine", ".spec.machine"),
        Column("CPU", ".spec.cpu.type"),
        Column("VGA", ".spec.vga.type"),
        READY,
        AGE,
    ),
)
class ProxmoxTemplate(Object, frozen=True, kw_only=True):
    """A template that is made from a cloud image on every host that needs it."""

    spec: ProxmoxTemplateSpec
    status: ProxmoxTemplateStatus = field(default_factory=ProxmoxTemplateStatus)


class ProxmoxUnmanagedTemplateSpec(Value, frozen=True, kw_only=True):
    """Which existing templates are meant; all tags must match."""

    region: Text | None = None
    template_name: Text | None = field(name="templateName", default=None)
    tags: Annotated[tuple[str, ...], Meta(min_length=1, max_length=10)] | None = None

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.templateName) || has(self.tags)",
            "at least one of templateName or tags must be specified",
            lambda self, old: self.template_name is not None or self.tags is not None,
        ),
    )


@kind(
    group=PROVIDER_GROUP,
    version=PROVIDER_VERSION,
    plural="proxmoxunmanagedtemplates",
    scope="Cluster",
    categories=("karpenter",),
    status=True,
    columns=(ZONES, Column("Name", ".spec.templateName"), READY, AGE),
)
class ProxmoxUnmanagedTemplate(Object, frozen=True, kw_only=True):
    """Templates that somebody else made, found by name or tags."""

    spec: ProxmoxUnmanagedTemplateSpec
    status: ProxmoxTemplateStatus = field(default_factory=ProxmoxTemplateStatus)


KINDS = (ProxmoxTemplate, ProxmoxUnmanagedTemplate)
