"""
Storage types: their options, content types and image formats, as the plugins of PVE declare them.

A required option must be given at creation. A fixed option cannot be changed or deleted.
"""

from dataclasses import dataclass

CONTENTS = frozenset({"images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"})
_ALL = "content nodes disable"
_BACKUPS = "prune-backups max-protected-backups maxfiles"
_FOLDERS = "mkdir create-base-path create-subdirs"
_FILES = f"{_ALL} {_BACKUPS} {_FOLDERS} format preallocation bwlimit content-dirs"
_REMOVED = {"maxfiles": 9}  # option: first version without it
_ADDED = {"snapshot-as-volume-chain": 9, "saferemove-stepsize": 9}  # option: first version with it


@dataclass(frozen=True, slots=True)
class StorageType:
    """What one storage type accepts."""

    required: tuple[str, ...]
    fixed: frozenset[str]
    optional: frozenset[str]
    content: frozenset[str]
    default_content: str
    formats: tuple[str, ...] = ("raw",)
    lists_formats: bool = True  # whether PVE 8 lists the formats

    def has_option(self, name: str, major: int) -> bool:
        if _REMOVED.get(name, 99) <= major or _ADDED.get(name, 0) > major:
            return False
        return name in self.optional or name in self.required


def _type(
    required: str,
    optional: str,
    content: str,
    default: str,
    *,
    fixed: str = "",
    formats: str = "",
) -> StorageType:
    """A type whose required options are fixed, and the others of ``fixed`` too."""
    return StorageType(
        tuple(required.split()),
        frozenset(f"{required} {fixed}".split()),
        frozenset(optional.split()),
        frozenset(content.split()),
        default,
        tuple((formats or "raw").split()),
        bool(formats),
    )


_ANY = " ".join(sorted(CONTENTS))
_REMOTE = " ".join(sorted(CONTENTS - {"none"}))
_GUESTS = "images rootdir"
_CHAIN = "snapshot-as-volume-chain"
_IMAGES = "raw qcow2 vmdk"

TYPES: dict[str, StorageType] = {
    "btrfs": _type(
        "path", f"{_ALL} {_BACKUPS} {_FOLDERS} format preallocation shared is_mountpoint nocow",
        _ANY, "images,rootdir", formats="raw subvol",
    ),
    "cephfs": _type(
        "path", f"{_FILES} monhost subdir options username fuse keyring fs-name",
        "vztmpl iso backup snippets import", "backup",
    ),
    "cifs": _type(
        "path server share",
        f"{_FILES} subdir username password domain smbversion options {_CHAIN}",
        _REMOTE, "images", fixed=_CHAIN, formats=_IMAGES,
    ),
    "dir": _type(
        "path", f"{_FILES} shared is_mountpoint {_CHAIN}", _ANY, "images,rootdir",
        fixed=_CHAIN, formats=f"{_IMAGES} subvol",
    ),
    "esxi": StorageType(
        ("server", "username"), frozenset(),
        frozenset(f"{_ALL} shared password port skip-cert-verification".split()),
        frozenset({"import"}), "import", ("raw", "qcow2", "vmdk"),
    ),
    "glusterfs": _type(
        "path volume", f"{_FILES} server server2 transport",
        "images vztmpl iso backup snippets import", "images", formats=_IMAGES,
    ),
    "iscsi": _type("portal target", f"{_ALL} bwlimit", "images none", "images"),
    "iscsidirect": _type("portal target", f"{_ALL} bwlimit", "images none", "images"),
    "lvm": _type(
        "vgname",
        f"{_ALL} shared bwlimit base saferemove saferemove-stepsize saferemove_throughput"
        f" tagged_only {_CHAIN}",
        _GUESTS, "images", fixed="base",
    ),
    "lvmthin": _type("thinpool vgname", f"{_ALL} bwlimit", _GUESTS, "images,rootdir"),
    "nfs": _type(
        "path server export", f"{_FILES} options {_CHAIN}", _REMOTE, "images",
        fixed=_CHAIN, formats=_IMAGES,
    ),
    "pbs": _type(
        "server datastore",
        f"{_ALL} {_BACKUPS} namespace port username password encryption-key master-pubkey"
        " fingerprint",
        "backup none", "backup",
    ),
    "rbd": _type(
        "", f"{_ALL} bwlimit monhost pool data-pool namespace username krbd keyring", _GUESTS,
        "images",
    ),
    "zfs": _type(
        "portal target pool blocksize iscsiprovider",
        f"{_ALL} bwlimit nowritecache sparse comstar_hg comstar_tg lio_tpg zfs-base-path",
        "images", "images",
    ),
    "zfspool": _type(
        "pool", f"{_ALL} bwlimit blocksize sparse mountpoint", _GUESTS, "images,rootdir",
        formats="raw subvol",
    ),
    "drbd": _type(
        "resourcegroup", f"{_ALL} bwlimit controller", _GUESTS, "images"
    ),
}  # fmt: skip
MOUNTED = frozenset({"nfs", "cifs", "cephfs", "glusterfs"})  # path defaults to /mnt/pve/<name>
SELECT_EXISTING = frozenset({"iscsi", "iscsidirect"})


def types(major: int) -> tuple[str, ...]:
    """
    The types that the API of a major version accepts; drbd is LINBIT's plugin, for world files
    only.
    """
    removed = {"drbd"} | ({"glusterfs"} if major >= 9 else set())
    return tuple(sorted(set(TYPES) - removed))


def default_content(kind: str) -> str:
    return TYPES[kind].default_content
