"""
What volumes, snapshots and nodes are called, and how a disk is known by itself.

In: the texts that Kubernetes keeps. Out: values. A volume is ``region/zone/storage/disk`` as
proxmox-csi-plugin writes it, with an empty zone where every host sees it. Its WWN and serial are
hashes of that text, so a guest can tell which volume a device is, whatever slot it sits in.
The surprise: a text of another shape is not an error but a volume that does not exist.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from moxwell.errors import Missing

LEGACY_WWN = re.compile(
    r"0x5056432d494430?[0-9a-f]{2,4}"
)  # "PVC-ID" and the slot, by the Go driver
LONGEST_NAME = 63
LONGEST_TAKEN = 32
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_UNSAFE_TAKEN = re.compile(r"[^A-Za-z0-9_-]+")
_TAKEN = re.compile(r"(?!clone-|s-|current$|pending$)[A-Za-z][A-Za-z0-9_-]{1,31}")
_OWNER = re.compile(r"(?:.*/)?(?:vm|base)-(\d+)-[^/]+|pm-[0-9a-f]{8}_(\d+)")
_SNAPSHOT = re.compile(r"vm-\d+-pvc-snap-(?P<name>.+)-(?P<source>[a-z2-7]{16})(?:\.\w+)?")
_GO_SNAPSHOT = re.compile(r"vm-\d+-snapshot-[0-9a-f-]{36}(?:\.\w+)?")
_PROVIDER = re.compile(r"proxmox://(?P<region>[^/]+)/(?P<vmid>\d+)")


@dataclass(frozen=True, slots=True)
class Identity:
    """How a guest sees a disk: both are ours, both derive from the volume."""

    wwn: str
    serial: str

    @property
    def path(self) -> str:
        return f"/dev/disk/by-id/wwn-{self.wwn}"


@dataclass(frozen=True, slots=True)
class VolumeId:
    """A volume, or a snapshot that is a copy."""

    region: str
    host: str  # empty: every host sees it
    storage: str
    disk: str

    def __str__(self) -> str:
        return f"{self.region}/{self.host}/{self.storage}/{self.disk}"

    @property
    def volid(self) -> str:
        return f"{self.storage}:{self.disk}"

    @property
    def name(self) -> str:
        """The last part of the disk's name, without folder and extension."""
        return re.sub(r"\.(raw|qcow2|vmdk)$", "", self.disk.rpartition("/")[2])

    @property
    def owner(self) -> int:
        """The guest id that the disk's name carries; 0 if it carries none."""
        match = _OWNER.fullmatch(self.disk)
        return int(match[1] or match[2]) if match else 0

    @property
    def identity(self) -> Identity:
        digest = hashlib.sha256(str(self).encode()).hexdigest()
        return Identity(f"0x5{digest[:15]}", f"pvc{digest[15:32]}")


@dataclass(frozen=True, slots=True)
class TakenId:
    """A storage's own snapshot of a volume: ``region/zone/storage/disk@name``."""

    volume: VolumeId
    snapname: str

    def __str__(self) -> str:
        return f"{self.volume}@{self.snapname}"


def find_taken(text: str) -> TakenId | None:
    """The storage's own snapshot that a text names; None if it is of another shape."""
    front, at, snapname = text.rpartition("@")
    volume = find_volume(front) if at and snapname else None
    return TakenId(volume, snapname) if volume is not None else None


def taken_name(name: str) -> str:
    """What Proxmox calls a snapshot: a letter first, short enough for every storage."""
    if _TAKEN.fullmatch(name):
        return name
    return f"s-{_UNSAFE_TAKEN.sub('-', name)[: LONGEST_TAKEN - 19]}-{_short_hash(name)}"


def find_volume(text: str) -> VolumeId | None:
    """The volume a text names, or None where it cannot be one of ours."""
    parts = text.split("/", 3)
    if len(parts) != 4 or not (parts[0] and parts[2] and parts[3]):
        return None
    return VolumeId(*parts)


def get_volume(text: str) -> VolumeId:
    found = find_volume(text)
    if found is None:
        raise Missing(f"there is no volume {text!r}: ids look like region/zone/storage/disk")
    return found


def _short_hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode().lower()


def safe_name(name: str, longest: int = LONGEST_NAME) -> str:
    """A name that every storage takes; a hash stands for what had to go."""
    cleaned = _UNSAFE.sub("-", name)
    if cleaned == name and len(name) <= longest:
        return name
    return f"{cleaned[: longest - 17]}-{_short_hash(name)}"


def disk_name(owner: int, name: str, *, extension: str = "", linstor: bool = False) -> str:
    """``vm-9999-pvc-…``; LINSTOR takes no foreign name without ``-pvc-``."""
    safe = safe_name(name)
    if linstor and not safe.startswith("pvc-"):
        safe = f"pvc-{safe}"
    return f"vm-{owner}-{safe}{extension}"


def snapshot_name(owner: int, name: str, source: str, *, extension: str = "") -> str:
    """A snapshot's disk: its own name, and a hash of what it was taken of."""
    return f"{snapshot_prefix(owner, name)}{_short_hash(source)}{extension}"


def snapshot_prefix(owner: int, name: str) -> str:
    return f"vm-{owner}-pvc-snap-{safe_name(name, 46)}-"


def source_hash(disk: str) -> str | None:
    """The hash of a snapshot's source; None if the disk is no snapshot."""
    match = _SNAPSHOT.fullmatch(disk.rpartition("/")[2])
    return match["source"] if match else None


def is_snapshot_disk(disk: str) -> bool:
    """A copy that is a snapshot: ours by its hash, the Go driver's by the sidecar's prefix."""
    name = disk.rpartition("/")[2]
    return source_hash(disk) is not None or _GO_SNAPSHOT.fullmatch(name) is not None


def is_taken_of(disk: str, source: str) -> bool:
    return source_hash(disk) == _short_hash(source)


@dataclass(frozen=True, slots=True)
class NodeRef:
    """What a node id says: a Kubernetes name, a guest, or both."""

    name: str = ""
    region: str = ""
    vmid: int = 0


def parse_node(text: str) -> NodeRef:
    """``proxmox://region/vmid`` (ours), ``name/vmid`` and ``name`` (the Go driver's)."""
    match = _PROVIDER.fullmatch(text)
    if match:
        return NodeRef(region=match["region"], vmid=int(match["vmid"]))
    name, slash, vmid = text.partition("/")
    if slash and vmid.isdigit():
        return NodeRef(name=name, vmid=int(vmid))
    return NodeRef(name=text)
