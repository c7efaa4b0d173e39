"""
What a StorageClass, VolumeAttributesClass or VolumeSnapshotClass may say.

In: the maps that Kubernetes hands over. Out: typed values, and the options of a drive. One table
declares every parameter; parsing, refusing and the reference page all read it. The surprise: what
can be changed later is *not* in the volume's context for good (that is immutable), so it is merged
from the driver's book at every attach.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from moxwell.errors import Invalid

OWN_PREFIX = "csi.storage.k8s.io/"
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
FILESYSTEMS = ("ext4", "xfs")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key: what it may be and what it does."""

    key: str
    kind: str  # text, flag, number, or the choices joined by |
    text: str
    default: str = ""
    mutable: bool = False


STORAGE_CLASS: tuple[Parameter, ...] = (
    Parameter("storage", "text", "Proxmox storage the disks are made on; required."),
    Parameter("region", "text", "Region, where the topology does not already say it."),
    Parameter("storageFormat", "raw|qcow2", "Format of disks on file storages.", "raw"),
    Parameter("cache", "directsync|none|writeback|writethrough|unsafe", "QEMU's cache mode."),
    Parameter("aio", "native|threads|io_uring", "QEMU's way of asynchronous I/O."),
    Parameter("ssd", "flag", "The guest sees an SSD; discard is passed on, mounts use noatime."),
    Parameter("iothread", "flag", "A thread of its own for the disk.", "true"),
    Parameter("blockSize", "number", "Block size that mkfs uses."),
    Parameter("inodeSize", "number", "Inode size that mkfs uses."),
    Parameter(
        "cloneMode",
        "auto|full|linked",
        "Restores and clones: `full` copies; `linked` shares blocks with the snapshot, which Ceph "
        "then keeps until the clone is gone; `auto` links only where nothing depends on it.",
        "auto",
    ),
    Parameter("replicate", "flag", "Keep copies on other hosts by Proxmox replication (ZFS)."),
    Parameter("replicateZones", "text", "Hosts that hold the copies, joined by commas."),
    Parameter(
        "replicateSchedule", "text", "How often copies are brought up to date.", "*/15", True
    ),
    Parameter("backup", "flag", "Include the disk in backups of the guest.", "false", True),
    Parameter("diskIOPS", "number", "Limit of reads and of writes per second.", mutable=True),
    Parameter("diskMBps", "number", "Limit of MB read and of MB written per second.", mutable=True),
)
SNAPSHOT_CLASS: tuple[Parameter, ...] = (
    Parameter("zone", "text", "Host that keeps copies made by `root`; default: the source's."),
    Parameter(
        "snapshotMode",
        "auto|storage|copy|root",
        "`storage`: the storage's own snapshot (LVM-thin, Ceph RBD, btrfs, qcow2); `copy`: a full "
        "copy by Proxmox's clone; `root`: a full copy by a call for root@pam alone; `auto`: the "
        "first that the storage can.",
        "auto",
    ),
    Parameter(
        "whileAttached",
        "refuse|copy",
        "A full copy of a disk in use is not of one moment: refuse it, or take it. The own "
        "snapshots of LVM-thin, Ceph and btrfs are of one moment and need no leave.",
        "refuse",
    ),
)
_BY_KEY = {p.key: p for p in STORAGE_CLASS}
MUTABLE = frozenset(p.key for p in STORAGE_CLASS if p.mutable)


def refuse_unknown(given: Mapping[str, str], known: frozenset[str], what: str) -> None:
    """Name the first key that nobody knows, and what was perhaps meant."""
    for key in given:
        if key in known or key.startswith(OWN_PREFIX):
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
    """Refuse what a VolumeAttributesClass cannot say; nothing was done yet."""
    refuse_unknown(given, MUTABLE, "mutable")
    for key, value in given.items():
        if key in _BY_KEY:
            _check(_BY_KEY[key], value)


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of a volume, checked."""

    given: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str], mutable: Mapping[str, str] | None = None) -> "Params":
        refuse_unknown(given, frozenset(_BY_KEY), "StorageClass")
        check_mutable(mutable or {})
        merged = {**given, **(mutable or {})}
        for key, value in merged.items():
            if key in _BY_KEY:
                _check(_BY_KEY[key], value)
        if not merged.get("storage"):
            raise Invalid("parameter storage is missing: name the Proxmox storage")
        return cls(merged)

    @classmethod
    def of_context(cls, context: Mapping[str, str], later: Mapping[str, str]) -> "Params":
        """What a volume was made with, and what was changed since."""
        return cls({k: v for k, v in {**context, **later}.items() if k in _BY_KEY})

    def text(self, key: str) -> str:
        return self.given.get(key) or _BY_KEY[key].default

    def flag(self, key: str) -> bool:
        return self.text(key).strip().lower() in _TRUE

    def number(self, key: str) -> int | None:
        value = self.text(key)
        return int(value) if value.isdigit() else None

    @property
    def context(self) -> dict[str, str]:
        """What every later call needs to know again; also read by the Go driver."""
        return {k: v for k, v in self.given.items() if k in _BY_KEY}

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(z.strip() for z in self.text("replicateZones").split(",") if z.strip())

    def drive(self, *, read_only: bool = False) -> dict[str, str]:
        """The options of the drive, apart from its identity."""
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
class SnapshotParams:
    """What a VolumeSnapshotClass says."""

    zone: str = ""
    live: bool = False
    mode: str = "auto"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "SnapshotParams":
        refuse_unknown(given, frozenset(p.key for p in SNAPSHOT_CLASS), "VolumeSnapshotClass")
        for parameter in SNAPSHOT_CLASS:
            if parameter.key in given:
                _check(parameter, given[parameter.key])
        mode = given.get("snapshotMode") or "auto"
        return cls(given.get("zone", ""), given.get("whileAttached") == "copy", mode)
