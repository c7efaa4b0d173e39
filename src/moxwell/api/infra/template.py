"""Template selection, disks, PCI devices, HA and the claim of a ProxmoxMachine."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from moxwell.api.kinds import ValidationRule
from moxwell.api.meta import Value

Tag = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_\-\+\.]*$")]
DiskName = Annotated[str, Meta(pattern=r"^(scsi|virtio|sata|ide)[0-9]+$")]
Cache = Literal["none", "writethrough", "writeback", "unsafe", "directsync"]


class TemplateSelector(Value, frozen=True, kw_only=True):
    """Selects a template by its tags."""

    match_tags: Annotated[tuple[Tag, ...], Meta(min_length=1)] = field(name="matchTags", default=())
    match_policy: Literal["exact", "uniqueSubset", "bestSubset"] | None = field(
        name="matchPolicy", default=None
    )


class BootVolume(Value, frozen=True, kw_only=True):
    """
    The boot disk, which can only grow; without a name it is the disk that the guest boots from.
    """

    disk: str = ""
    size_gb: Annotated[int, Meta(ge=5)] = field(name="sizeGb")


class ExtraDisk(Value, frozen=True, kw_only=True):
    """An additional disk."""

    disk: DiskName
    size_gb: Annotated[int, Meta(ge=1)] = field(name="sizeGb")
    storage: str | None = None  # default: the machine's storage
    format: Literal["raw", "qcow2", "vmdk"] | None = None
    ssd: bool | None = None
    discard: bool | None = None
    iothread: bool | None = None
    backup: bool | None = None
    replicate: bool | None = None
    cache: Cache | None = None
    read_only: bool | None = field(name="readOnly", default=None)
    serial: str | None = None


class MachineDisks(Value, frozen=True, kw_only=True):
    """The disks of a machine."""

    boot_volume: BootVolume | None = field(name="bootVolume", default=None)
    extra: tuple[ExtraDisk, ...] = ()
    # what happens to an extra disk that is removed from the list (changes: InPlace)
    when_removed: Literal["Keep", "Delete"] | None = field(name="whenRemoved", default=None)


class PciDeviceSpec(Value, frozen=True, kw_only=True):
    """A host's PCI device passed through to the guest, by resource mapping or address."""

    mapping: str | None = None
    host: str | None = None
    mdev: str | None = None
    pcie: bool | None = None
    primary_gpu: bool | None = field(name="primaryGPU", default=None)
    rombar: bool | None = None

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "has(self.mapping) != has(self.host)",
            "set either mapping or host",
            lambda self, old: (self.mapping is None) != (self.host is None),
        ),
    )


class HighAvailability(Value, frozen=True, kw_only=True):
    """Registration with the Proxmox HA manager."""

    group: str | None = None  # on Proxmox VE 9 and later, the node affinity rule of this name
    max_restart: Annotated[int, Meta(ge=0)] | None = field(name="maxRestart", default=None)
    max_relocate: Annotated[int, Meta(ge=0)] | None = field(name="maxRelocate", default=None)


class VmidRangeSpec(Value, frozen=True, kw_only=True):
    """The range of VMIDs for this machine."""

    start: Annotated[int, Meta(ge=100, le=999_999_999)]
    end: Annotated[int, Meta(ge=100, le=999_999_999)]

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.end >= self.start",
            "end must not be less than start",
            lambda self, old: self.end >= self.start,
        ),
    )


class ProxmoxMachineChecks(Value, frozen=True, kw_only=True):
    """Checks to skip before a machine counts as ready."""

    skip_cloud_init_status: bool | None = field(name="skipCloudInitStatus", default=None)
    skip_qemu_guest_agent: bool | None = field(name="skipQemuGuestAgent", default=None)


class MetadataSettings(Value, frozen=True, kw_only=True):
    """Settings of the guest's cloud-init metadata."""

    provider_id_injection: bool | None = field(name="providerIDInjection", default=None)


class AppliedDisk(Value, frozen=True, kw_only=True):
    """An extra disk, and the volume observed in its slot."""

    disk: str
    volume: str = ""


class LastApplied(Value, frozen=True, kw_only=True):
    """
    Settings of the spec that Moxwell has applied to the guest.

    Settings that are removed from the spec are removed from the guest only if they are listed here.
    """

    tags: tuple[str, ...] = ()
    firewall_groups: tuple[str, ...] = field(name="firewallGroups", default=())
    disks: tuple[AppliedDisk, ...] = ()
    ha_group: str = field(name="haGroup", default="")
    hardware_hash: str = field(name="hardwareHash", default="")  # of the spec the guest matched


class Claim(Value, frozen=True, kw_only=True):
    """
    What the controller decided for a machine before it created anything, and what it applied since.

    It is part of the spec because ``clusterctl move`` drops the status, and with it the only
    reference to the guest. ``detour`` and ``left`` are earlier names of ``migrateAfterClone`` and
    ``staleClones``; they are converted when an object is read and never written.
    """

    host: str
    uuid: str
    zone: str = ""
    template: int = 0
    template_host: str = field(name="templateHost", default="")
    storage: str = ""
    iso_storage: str = field(name="isoStorage", default="")
    linked: bool = False
    # the clone is created on the template's host, then migrated
    migrate_after_clone: bool = field(name="migrateAfterClone", default=False)
    # region/VMID of abandoned clones, until they are known to be deleted
    stale_clones: tuple[str, ...] = field(name="staleClones", default=())
    applied: LastApplied | None = None
    detour: bool = False
    left: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.detour:
            force_setattr(self, "migrate_after_clone", True)
            force_setattr(self, "detour", False)
        if self.left:
            both = tuple(dict.fromkeys([*self.stale_clones, *self.left]))
            force_setattr(self, "stale_clones", both)
            force_setattr(self, "left", ())
