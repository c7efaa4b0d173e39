"""
Parameters of StorageClass, VolumeAttributesClass and VolumeSnapshotClass: parsing and validation.

One table declares every parameter; parsing, validation and the reference page read it. Pure.
Parameters that can change later are not only in the volume context, which is immutable: the driver
merges the changed values from its journal at every ControllerPublishVolume.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.errors import Invalid

SIDECAR_PREFIX = "csi.storage.k8s.io/"
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
FILESYSTEMS = ("ext4", "xfs")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its key, type and description."""

    key: str
    kind: str  # text, flag, number, or the choices separated by |
    text: str
    default: str = ""
    mutable: bool = False


STORAGE_CLASS: tuple[Parameter, ...] = (
    Parameter("storage", "text", "Proxmox storage for the disks; required."),
    Parameter("region", "text", "Region, if the topology does not determine it."),
    Parameter("storageFormat", "raw|qcow2", "Format of disks on file-based storages.", "raw"),
    Parameter("cache", "directsync|none|writeback|writethrough|unsafe", "Cache mode of QEMU."),
    Parameter("aio", "native|threads|io_uring", "Asynchronous I/O mode of QEMU."),
    Parameter("ssd", "flag", "Emulate an SSD; enables discard and mounts with noatime."),
    Parameter("iothread", "flag", "Use an I/O thread for the disk.", "true"),
    Parameter("blockSize", "number", "Block size for mkfs."),
    Parameter("inodeSize", "number", "Inode size for mkfs."),
    Parameter(
        "cloneMode",
        "auto|full|linked",
        "How restores and clones are made: `full` copies all data; `linked` shares blocks with the "
        "snapshot (on Ceph the snapshot cannot be deleted before the clone); `auto` uses a linked "
        "clone only if it does not depend on the snapshot.",
        "auto",
    ),
    Parameter("replicate", "flag", "Replicate the disk to other hosts (ZFS storage replication)."),
    Parameter("replicateZones", "text", "Hosts that have the disk, separated by commas."),
    Parameter("replicateSchedule", "text", "Schedule of the replication jobs.", "*/15", True),
    Parameter("backup", "flag", "Include the disk in backups of the guest.", "false", True),
    Parameter("diskIOPS", "number", "Limit of reads and of writes per second.", mutable=True),
    Parameter("diskMBps", "number", "Limit of reads and of writes in MB/s.", mutable=True),
)
SNAPSHOT_CLASS: tuple[Parameter, ...] = (
    Parameter("zone", "text", "Host for copies of mode `root`; default: the host of the source."),
    Parameter(
        "snapshotMode",
        "auto|storage|copy|root",
        "`storage`: native snapshot of the storage (LVM-thin, Ceph RBD, btrfs, qcow2); `copy`: "
        "full clone by Proxmox; `root`: full copy by the storage API, which only root@pam may "
        "use; `auto`: `storage` if the storage supports it, otherwise `copy`.",
        "auto",
    ),
    Parameter(
        "whileAttached",
        "refuse|copy",
        "Whether a full copy of an attached disk is refused or made although it is inconsistent. "
        "Native snapshots of LVM-thin, Ceph and btrfs are crash-consistent and always allowed.",
        "refuse",
    ),
)
_BY_KEY = {p.key: p for p in STORAGE_CLASS}
MUTABLE = frozenset(p.key for p in STORAGE_CLASS if p.mutable)


def reject_unknown(given: Mapping[str, str], known: frozenset[str], what: str) -> None:
    """Reject the first unknown key and suggest the closest known one."""
    for key in given:
        if key in known or key.startswith(SIDECAR_PREFIX):
            continue
        near = difflib.get_close_matches(key, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"
        raise Invalid(f"unknown {what} parameter {key!r}{hint}")


def _check(parameter: Parameter, value: str) -> None:
    word = value.strip().lower()
    if parameter.kind == "flag" and word not in _TRUE | _FALSE:
        raise Invalid(f"{parameter.key} must be true or false, not {value!r}")
    if parameter.kind == "number" and not word.isdigit():
        raise Invalid(f"{parameter.key} must be a number, not {value!r}")
    if "|" in parameter.kind and value not in parameter.kind.split("|"):
        raise Invalid(f"{parameter.key} must be one of {parameter.kind}, not {value!r}")


def check_mutable(given: Mapping[str, str]) -> None:
    """Reject parameters that a VolumeAttributesClass cannot change; has no side effects."""
    reject_unknown(given, MUTABLE, "mutable")
    for key, value in given.items():
        if key in _BY_KEY:
            _check(_BY_KEY[key], value)


@dataclass(frozen=True, slots=True)
class VolumeParameters:
    """The validated parameters of a volume."""

    given: Mapping[str, str]

    @classmethod
    def parse(
        cls, given: Mapping[str, str], mutable: Mapping[str, str] | None = None
    ) -> "VolumeParameters":
        reject_unknown(given, frozenset(_BY_KEY), "StorageClass")
        check_mutable(mutable or {})
        merged = {**given, **(mutable or {})}
        for key, value in merged.items():
            if key in _BY_KEY:
                _check(_BY_KEY[key], value)
        if not merged.get("storage"):
            raise Invalid("parameter storage is required: the name of a Proxmox storage")
        return cls(merged)

    @classmethod
    def of_context(
        cls, context: Mapping[str, str], changes: Mapping[str, str]
    ) -> "VolumeParameters":
        """The parameters a volume was created with, overridden by later changes."""
        return cls({k: v for k, v in {**context, **changes}.items() if k in _BY_KEY})

    def text(self, key: str) -> str:
        return self.given.get(key) or _BY_KEY[key].default

    def flag(self, key: str) -> bool:
        return self.text(key).strip().lower() in _TRUE

    def number(self, key: str) -> int | None:
        value = self.text(key)
        return int(value) if value.isdigit() else None

    @property
    def context(self) -> dict[str, str]:
        """The volume context: later calls read it, and proxmox-csi-plugin understands it too."""
        return {k: v for k, v in self.given.items() if k in _BY_KEY}

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(z.strip() for z in self.text("replicateZones").split(",") if z.strip())

    def drive(self, *, read_only: bool = False) -> dict[str, str]:
        """The drive options for Proxmox, without WWN and serial."""
        options = {"backup": str(int(self.flag("backup")))}
        if self.flag("iothread"):
            options["iothread"] = "1"
        if self.flag("ssd"):
            options |= {"ssd": "1", "discard": "on"}
        for key in ("cache", "aio"):
            if self.text(key):
                options[key] = self.text(key)
        for key, name in (("diskIOPS", "iops"), ("diskMBps", "mbps")):
            if self.text(key):
                options |= {f"{name}_rd": self.text(key), f"{name}_wr": self.text(key)}
        if read_only:
            options["ro"] = "1"
        if not self.flag("replicate"):
            options["replicate"] = "0"
        return options


@dataclass(frozen=True, slots=True)
class SnapshotParameters:
    """The parameters of a VolumeSnapshotClass."""

    zone: str = ""
    while_attached: bool = False  # copy although a running guest uses the disk
    mode: str = "auto"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SnapshotParameters":
        reject_unknown(given, frozenset(p.key for p in SNAPSHOT_CLASS), "VolumeSnapshotClass")
        for parameter in SNAPSHOT_CLASS:
            if parameter.key in given:
                _check(parameter, given[parameter.key])
        mode = given.get("snapshotMode") or "auto"
        return cls(given.get("zone", ""), given.get("whileAttached") == "copy", mode)
