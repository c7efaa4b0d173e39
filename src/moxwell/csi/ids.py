"""
Volume ids, snapshot ids, node ids and disk names, and the WWN and serial of a volume. Pure.

A volume id is ``region/zone/storage/disk`` as in proxmox-csi-plugin, with an empty zone for shared
storage. WWN and serial are hashes of the volume id, so a guest can identify the volume of a device
in any slot. A malformed id is treated as a volume that does not exist.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from moxwell.errors import Missing

LEGACY_WWN = re.compile(
    r"0x5056432d494430?[0-9a-f]{2,4}"
)  # "PVC-ID" and the slot number, set by proxmox-csi-plugin
LONGEST_NAME = 63
LONGEST_SNAPSHOT_NAME = 32
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_UNSAFE_SNAPSHOT = re.compile(r"[^A-Za-z0-9_-]+")
_SNAPSHOT_NAME = re.compile(r"(?!clone-|s-|current$|pending$)[A-Za-z][A-Za-z0-9_-]{1,31}")
_OWNER = re.compile(r"(?:.*/)?(?:vm|base)-(\d+)-[^/]+|pm-[0-9a-f]{8}_(\d+)")
_SNAPSHOT = re.compile(
    r"vm-\d+-pvc-snap-(?P<name>.+)-(?P<source>[a-z2-7]{16})(?:-t[a-z2-7]{16})?(?:\.\w+)?"
)
_TENANT = re.compile(r"(?:vm|base)-\d+-.+-t([a-z2-7]{16})(?:\.(?:raw|qcow2|vmdk))?")
TENANT_SUFFIX = 18  # characters of "-t" and a tenant key
_GO_SNAPSHOT = re.compile(r"vm-\d+-snapshot-[0-9a-f-]{36}(?:\.\w+)?")
_PROVIDER = re.compile(r"proxmox://(?P<region>[^/]+)/(?P<vmid>\d+)")


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """
    The WWN and serial by which a guest identifies a disk; both are derived from the volume id.
    """

    wwn: str
    serial: str

    @property
    def path(self) -> str:
        return f"/dev/disk/by-id/wwn-{self.wwn}"


@dataclass(frozen=True, slots=True)
class VolumeId:
    """The id of a volume, or of a snapshot that is a full copy."""

    region: str
    host: str  # empty on shared storage
    storage: str
    disk: str

    def __str__(self) -> str:
        return f"{self.region}/{self.host}/{self.storage}/{self.disk}"

    @property
    def volid(self) -> str:
        return f"{self.storage}:{self.disk}"

    @property
    def name(self) -> str:
        """The file name of the disk without directory and extension."""
        return re.sub(r"\.(raw|qcow2|vmdk)$", "", self.disk.rpartition("/")[2])

    @property
    def owner(self) -> int:
        """The VMID in the disk's name; 0 if there is none."""
        match = _OWNER.fullmatch(self.disk)
        return int(match[1] or match[2]) if match else 0

    @property
    def identity(self) -> DiskIdentity:
        digest = hashlib.sha256(str(self).encode()).hexdigest()
        return DiskIdentity(f"0x5{digest[:15]}", f"pvc{digest[15:32]}")


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """The id of a native snapshot: ``region/zone/storage/disk@name``."""

    volume: VolumeId
    snapname: str

    def __str__(self) -> str:
        return f"{self.volume}@{self.snapname}"


def find_snapshot(text: str) -> SnapshotId | None:
    """Parse the id of a native snapshot; None if it has another form."""
    front, at, snapname = text.rpartition("@")
    volume = find_volume(front) if at and snapname else None
    return SnapshotId(volume, snapname) if volume is not None else None


def proxmox_snapshot_name(name: str) -> str:
    """The snapshot name in Proxmox: starts with a letter and fits the limits of every storage."""
    if _SNAPSHOT_NAME.fullmatch(name):
        return name
    return f"s-{_UNSAFE_SNAPSHOT.sub('-', name)[: LONGEST_SNAPSHOT_NAME - 19]}-{_short_hash(name)}"


def find_volume(text: str) -> VolumeId | None:
    """Parse a volume id; None if it is malformed."""
    parts = text.split("/", 3)
    if len(parts) != 4 or not (parts[0] and parts[2] and parts[3]):
        return None
    return VolumeId(*parts)


def get_volume(text: str) -> VolumeId:
    found = find_volume(text)
    if found is None:
        raise Missing(f"volume {text!r} does not exist: ids have the form region/zone/storage/disk")
    return found


def base_name(disk: str) -> str:
    """The file name of a disk without its directory."""
    return disk.rpartition("/")[2]


def _short_hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode().lower()


def safe_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A name that every storage accepts; a hash replaces what had to be removed."""
    cleaned = _UNSAFE.sub("-", name)
    if cleaned == name and len(name) <= longest:
        return name
    return f"{cleaned[: longest - 17]}-{_short_hash(name)}"


def disk_name(
    owner: int, name: str, *, tenant: str = "", extension: str = "", linstor: bool = False
) -> str:
    """``vm-9999-pvc-…-t<tenant key>``; earlier versions had no tenant key.

    LINSTOR rejects foreign names without ``-pvc-`` and names of more than 48 characters, so that a
    hash replaces the volume's name there.
    """
    if linstor and tenant:
        return f"vm-{owner}-pvc-{_short_hash(name)}{_suffix(tenant)}{extension}"
    safe = safe_name(name, LONGEST_NAME - TENANT_SUFFIX if tenant else LONGEST_NAME)
    if linstor and not safe.startswith("pvc-"):
        safe = f"pvc-{safe}"
    return f"vm-{owner}-{safe}{_suffix(tenant)}{extension}"


def _suffix(tenant: str) -> str:
    return f"-t{tenant}" if tenant else ""


def tenant_key(driver: str, tenant: str) -> str:
    """The key of a driver's tenant, which is part of the names of its disks."""
    return _short_hash(f"{driver}/{tenant}")


def tenant_key_in(disk: str) -> str:
    """The tenant key in a disk's name; empty if there is none."""
    match = _TENANT.fullmatch(base_name(disk))
    return match[1] if match else ""


def volume_name(volume: VolumeId) -> str:
    """The name of the volume in a disk's name without tenant key."""
    return volume.name.removeprefix(f"vm-{volume.owner}-")


def snapshot_name(
    owner: int, name: str, source: str, *, tenant: str = "", extension: str = ""
) -> str:
    """
    The disk name of a snapshot that is a full copy: its name and a hash of the source volume id.
    """
    return f"{snapshot_prefix(owner, name)}{_short_hash(source)}{_suffix(tenant)}{extension}"


def snapshot_prefix(owner: int, name: str) -> str:
    return f"vm-{owner}-pvc-snap-{safe_name(name, 46)}-"


def source_hash(disk: str) -> str | None:
    """The hash of the source volume id in a snapshot's disk name; None for other disks."""
    match = _SNAPSHOT.fullmatch(disk.rpartition("/")[2])
    return match["source"] if match else None


def is_snapshot_disk(disk: str) -> bool:
    """Return whether a disk is a snapshot copy, made by this driver or by proxmox-csi-plugin."""
    name = disk.rpartition("/")[2]
    return source_hash(disk) is not None or _GO_SNAPSHOT.fullmatch(name) is not None


def is_snapshot_of(disk: str, source: str) -> bool:
    return source_hash(disk) == _short_hash(source)


@dataclass(frozen=True, slots=True)
class NodeId:
    """A parsed node id: the name of a Node, a guest, or both."""

    name: str = ""
    region: str = ""
    vmid: int = 0


def parse_node(text: str) -> NodeId:
    """Parse ``proxmox://region/vmid`` (ours), ``name/vmid`` and ``name`` (proxmox-csi-plugin's)."""
    match = _PROVIDER.fullmatch(text)
    if match:
        return NodeId(region=match["region"], vmid=int(match["vmid"]))
    name, slash, vmid = text.partition("/")
    if slash and vmid.isdigit():
        return NodeId(name=name, vmid=int(vmid))
    return NodeId(name=text)
