"""
Volume names per storage type, and their paths on a host.

File storages (dir, nfs, cifs, cephfs) use ``100/vm-100-disk-0.qcow2``, block storages
``vm-100-disk-0``; linked clones have the name of their base as prefix, except on LVM-thin. LINSTOR
(type drbd) generates names.
"""

import re
from dataclasses import dataclass

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.state import SimStorage

FILE_TYPES = frozenset({"dir", "nfs", "cifs", "cephfs", "glusterfs", "btrfs"})
_FILE = re.compile(r"[^/\s]+\.(raw|qcow2|vmdk|subvol)")
_SAFE = r"[ a-zA-Z0-9\-.+=_]"
_OTHERS = (
    ("iso", re.compile(r"iso/([^/]+\.(?:iso|img))", re.I)),
    ("vztmpl", re.compile(r"vztmpl/([^/]+\.tar(?:\.(?:gz|xz|zst|bz2))?)", re.I)),
    ("backup", re.compile(r"backup/([^/]+\.(?:tgz|(?:tar|vma)(?:\.(?:gz|lzo|zst|bz2))?))")),
    ("snippets", re.compile(r"snippets/([^/]+)")),
    ("import", re.compile(rf"import/({_SAFE}+\.(?:ova|ovf|qcow2|raw|vmdk))")),
)
FOLDERS = {
    "iso": "template/iso",
    "vztmpl": "template/cache",
    "backup": "dump",
    "snippets": "snippets",
    "import": "import",
}
_BLOCK = {
    "lvm": (re.compile(r"()()(vm)-(\d+)-\S+"), "lvm"),
    "lvmthin": (re.compile(r"()()(vm|base)-(\d+)-\S+"), "lvm"),
    "zfspool": (
        re.compile(r"(?:((?:base|basevol)-(\d+)-\S+)/)?(base|basevol|vm|subvol)-(\d+)-\S+"),
        "zfs",
    ),
    "rbd": (re.compile(r"(?:(base-(\d+)-\S+)/)?(base|vm)-(\d+)-\S+"), "rbd"),
    "drbd": (re.compile(r"()()(vm)-(\d+)-[a-z]\S*|pm-[0-9a-f]{8}_(\d+)"), "PVE"),
}
_FEATURES = {
    "lvm": {"copy": "base current", "rename": "current"},
    "lvmthin": {
        "snapshot": "current",
        "clone": "base snap",
        "template": "current",
        "copy": "base current snap",
        "rename": "current",
    },
    "zfspool": {
        "snapshot": "current snap",
        "clone": "base",
        "template": "current",
        "copy": "base current",
        "replicate": "base current",
        "rename": "current",
    },
    "rbd": {
        "snapshot": "current snap",
        "clone": "base snap",
        "template": "current",
        "copy": "base current snap",
        "rename": "current",
    },
    "drbd": {"snapshot": "current", "copy": "base current", "rename": "current"},
}
_BTRFS_RAW = {
    "snapshot": "current snap",
    "clone": "base current snap",
    "template": "current",
    "copy": "base current snap",
    "rename": "current",
}
_FILE_FEATURES = {
    "snapshot": ("current snap", ("qcow2",)),
    "clone": ("base", ("qcow2", "raw", "vmdk")),
    "template": ("current", ("qcow2", "raw", "vmdk", "subvol")),
    "copy": ("base current", ("qcow2", "raw", "vmdk")),
    "rename": ("current", ("qcow2", "raw", "vmdk")),
}


@dataclass(frozen=True, slots=True)
class VolumeName:
    """A parsed volume name."""

    kind: str  # images, iso, vztmpl, backup, snippets, import
    file: str  # last path component
    vmid: int | None = None  # owner
    base: str | None = None  # file name of the base of a linked clone
    base_vmid: int | None = None
    is_base: bool = False
    format: str = "raw"


def has_path(storage: SimStorage) -> bool:
    """Whether it is a file storage."""
    return storage.type in FILE_TYPES


def split_volid(volid: str) -> tuple[str, str]:
    """Split ``shared:100/x`` to (shared, 100/x); raises PVE's error if invalid."""
    match = re.fullmatch(r"([a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]):(.+)", volid, re.S)
    if match is None:
        raise die(f"unable to parse volume ID '{volid}'")
    return match[1], match[2]


def parse_file(name: str) -> tuple[str, bool]:
    """(format, is base) of an image file name."""
    match = _FILE.fullmatch(name)
    if match is None:
        raise die(f"unable to parse volume filename '{name}'")
    return match[1], name.startswith("base-")


def parse_name(storage: SimStorage, name: str) -> VolumeName:
    """Parse a volume name of this storage."""
    if has_path(storage):
        return _parse_path(name)
    pattern, label = _BLOCK.get(storage.type, (None, storage.type))
    match = pattern.fullmatch(name) if pattern is not None else None
    if match is None:
        raise die(f"unable to parse {label} volume name '{name}'")
    if storage.type == "drbd" and match[4] is None:
        return VolumeName("images", name, int(match[5]))
    sort = match[3]
    return VolumeName(
        "images",
        name.rpartition("/")[2],
        int(match[4]),
        match[1] or None,
        int(match[2]) if match[2] else None,
        sort in ("base", "basevol"),
        _block_format(storage, sort, name),
    )


def _block_format(storage: SimStorage, sort: str, name: str) -> str:
    if sort in ("subvol", "basevol"):
        return "subvol"
    return "qcow2" if storage.type == "lvm" and name.endswith(".qcow2") else "raw"


def _parse_path(name: str) -> VolumeName:
    parts = name.split("/")
    if parts[0].isdigit() and len(parts) == 4 and parts[2].isdigit():
        parse_file(parts[1])
        form, is_base = parse_file(parts[3])
        owner = int(parts[2])
        return VolumeName("images", parts[3], owner, parts[1], int(parts[0]), is_base, form)
    if parts[0].isdigit() and len(parts) > 1:
        form, is_base = parse_file("/".join(parts[1:]))
        return VolumeName("images", parts[1], int(parts[0]), is_base=is_base, format=form)
    for kind, pattern in _OTHERS:
        match = pattern.fullmatch(name)
        if match is not None:
            return _other(kind, match[1])
    raise die(f"unable to parse directory volume name '{name}'")


def _other(kind: str, file: str) -> VolumeName:
    if kind == "backup":
        owner = re.match(r"vzdump-(?:openvz|lxc|qemu)-(\d+)-.+", file)
        return VolumeName(kind, file, int(owner[1]) if owner else None)
    form = file.rpartition(".")[2] if kind == "import" else "raw"
    return VolumeName(kind, file, format=form)


def root_of(storage: SimStorage) -> str:
    """The directory of a file storage."""
    return str(storage.options.get("path") or f"/mnt/pve/{storage.name}")


def folder(storage: SimStorage, kind: str) -> str:
    """The directory of a content type on a file storage."""
    return f"{root_of(storage)}/{FOLDERS[kind]}"


def path_of(storage: SimStorage, name: str) -> str:
    """The path of a volume on a host."""
    parsed = parse_name(storage, name)
    options = storage.options
    if has_path(storage):
        if parsed.kind == "images":
            return f"{root_of(storage)}/images/{parsed.vmid}/{parsed.file}"
        return f"{folder(storage, parsed.kind)}/{parsed.file}"
    if storage.type in ("lvm", "lvmthin"):
        return f"/dev/{options.get('vgname', storage.name)}/{parsed.file}"
    if storage.type == "zfspool":
        pool = options.get("pool", storage.name)
        root = "/dev/zvol/" if parsed.format == "raw" else "/"
        return f"{root}{pool}/{parsed.file}"
    if storage.type == "rbd":
        return f"rbd:{options.get('pool', 'rbd')}/{parsed.file}"
    resource = parsed.file.partition("_")[0] if parsed.file.startswith("pm-") else parsed.file
    return f"/dev/drbd/by-res/{resource}/0"


def has_feature(storage: SimStorage, feature: str, name: str, snapshot: str | None = None) -> bool:
    """Whether the storage supports a feature for the volume or one of its snapshots."""
    parsed = parse_name(storage, name)
    key = "snap" if snapshot else "base" if parsed.is_base else "current"
    if storage.type == "lvm" and parsed.format == "qcow2" and feature == "snapshot":
        return key == "current" and has_volume_chain(storage)
    if not has_path(storage):
        return key in _FEATURES.get(storage.type, {}).get(feature, "").split()
    states, forms = _FILE_FEATURES.get(feature, ("", ()))
    if storage.type == "btrfs" and parsed.format == "raw":
        return key in _BTRFS_RAW.get(feature, "").split()
    if feature == "copy" and key == "snap":
        return parsed.format == "qcow2"
    return key in states.split() and parsed.format in forms


LINSTOR_NAME = re.compile(r"pm-[0-9a-f]{8}_\d+|vm-\d+-(disk-\d+|(state|pvc|fleece)-.+|cloudinit)")


def has_volume_chain(storage: SimStorage) -> bool:
    """Whether snapshots are volumes in a chain (PVE 9, qcow2 on LVM or directories)."""
    return bool(storage.options.get("snapshot-as-volume-chain"))


def default_format(storage: SimStorage) -> str:
    if has_path(storage):
        return str(storage.options.get("format", "raw"))
    return "qcow2" if storage.type == "lvm" and has_volume_chain(storage) else "raw"


def base_of(parsed: VolumeName) -> VolumeName | None:
    """The base image of a linked clone."""
    return VolumeName("images", parsed.base, parsed.base_vmid) if parsed.base else None


def join_name(storage: SimStorage, vmid: int, file: str, base: VolumeName | None = None) -> str:
    """The name of a new image, possibly a linked clone of a base."""
    if has_path(storage):
        front = f"{base.vmid}/{base.file}/" if base else ""
        return f"{front}{vmid}/{file}"
    if base is not None and storage.type in ("zfspool", "rbd"):
        return f"{base.file}/{file}"
    return file
