"""
Storage types and their options: (required, optional).

A required option cannot be changed unless it is also in the second set.
"""

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param

CONTENTS = frozenset({"images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"})


def _content(value: str) -> None:
    for kind in formats.split_list(value):
        if kind not in CONTENTS:
            raise FormatError(f"invalid content type '{kind}'\n")


_NODES = formats.listed(formats.node)
OPTIONS = {
    "path": Param(format=formats.absolute_path),
    "content": Param(format=_content),
    "nodes": Param(format=_NODES),
    "disable": Param("boolean"),
    "shared": Param("boolean"),
    "format": Param(enum=("raw", "qcow2", "subvol", "vmdk")),
    "prune-backups": Param(),
    "max-protected-backups": Param("integer", minimum=-1),
    "maxfiles": Param("integer", minimum=0, until=8),
    "bwlimit": Param(),
    "preallocation": Param(enum=("off", "metadata", "falloc", "full")),
    "is_mountpoint": Param(),
    "mkdir": Param("boolean"),
    "create-base-path": Param("boolean"),
    "create-subdirs": Param("boolean"),
    "content-dirs": Param(),
    "server": Param(),
    "export": Param(format=formats.absolute_path),
    "share": Param(),
    "username": Param(),
    "password": Param(max_length=256),
    "domain": Param(max_length=256),
    "smbversion": Param(),
    "subdir": Param(),
    "options": Param(),
    "vgname": Param(),
    "thinpool": Param(),
    "base": Param(),
    "saferemove": Param("boolean"),
    "saferemove_throughput": Param(),
    "tagged_only": Param("boolean"),
    "pool": Param(),
    "blocksize": Param(),
    "sparse": Param("boolean"),
    "mountpoint": Param(),
    "monhost": Param(),
    "krbd": Param("boolean"),
    "keyring": Param(),
    "data-pool": Param(),
    "namespace": Param(),
    "fs-name": Param(),
    "fuse": Param("boolean"),
    "datastore": Param(),
    "fingerprint": Param(),
    "encryption-key": Param(),
    "master-pubkey": Param(),
    "port": Param("integer", minimum=1, maximum=65535),
    "portal": Param(),
    "target": Param(),
    "volume": Param(),
    "transport": Param(),
    "server2": Param(),
    "iscsiprovider": Param(),
    "nowritecache": Param("boolean"),
    "comstar_hg": Param(),
    "comstar_tg": Param(),
    "lio_tpg": Param(),
    "zfs-base-path": Param(version=9),
    "snapshot-as-volume-chain": Param("boolean", version=9),
    "skip-cert-verification": Param("boolean"),
    "resourcegroup": Param(),
    "controller": Param(),
}
FIXED = frozenset({"path", "server", "export", "share", "vgname", "thinpool", "base", "datastore",
                   "portal", "target", "volume", "iscsiprovider"})  # fmt: skip

_ALL = "content nodes disable shared bwlimit"
_FILES = (
    f"{_ALL} format prune-backups max-protected-backups maxfiles preallocation mkdir "
    "create-base-path create-subdirs content-dirs snapshot-as-volume-chain"
)


def _type(required: str, allowed: str) -> tuple[tuple[str, ...], frozenset[str]]:
    return tuple(required.split()), frozenset(allowed.split())


TYPES = {
    "btrfs": _type("path", f"{_FILES} is_mountpoint"),
    "cephfs": _type("", f"{_FILES} path monhost username subdir fuse keyring fs-name options"),
    "cifs": _type(
        "server share", f"{_FILES} path username password domain smbversion subdir options"
    ),
    "dir": _type("path", f"{_FILES} is_mountpoint"),
    "esxi": _type("server username", f"{_ALL} password port skip-cert-verification"),
    "glusterfs": _type("volume", f"{_FILES} path server server2 transport"),
    "iscsi": _type("portal target", _ALL),
    "iscsidirect": _type("portal target", _ALL),
    "lvm": _type(
        "vgname", f"{_ALL} base saferemove saferemove_throughput tagged_only "
        "snapshot-as-volume-chain"
    ),
    "lvmthin": _type("vgname thinpool", _ALL),
    "nfs": _type("server export", f"{_FILES} path options"),
    "pbs": _type(
        "server datastore", f"{_ALL} username password fingerprint encryption-key master-pubkey "
        "namespace port prune-backups max-protected-backups maxfiles"
    ),
    "rbd": _type("", f"{_ALL} pool monhost username krbd keyring data-pool namespace"),
    "zfs": _type(
        "pool portal target blocksize iscsiprovider",
        f"{_ALL} pool blocksize nowritecache sparse comstar_hg comstar_tg lio_tpg zfs-base-path",
    ),
    "zfspool": _type("pool", f"{_ALL} pool blocksize sparse mountpoint"),
    "drbd": _type("resourcegroup", f"{_ALL} resourcegroup controller"),
}  # fmt: skip


def types(major: int) -> tuple[str, ...]:
    """
    The types that the API of a major version accepts; drbd is LINBIT's plugin, for world files
    only.
    """
    removed = {"drbd"} | ({"glusterfs"} if major >= 9 else set())
    return tuple(sorted(set(TYPES) - removed))


def supported_content(kind: str) -> frozenset[str]:
    """The content types that a storage type supports."""
    if kind in {"dir", "nfs", "cifs", "glusterfs", "btrfs"}:
        return CONTENTS
    if kind == "cephfs":
        return CONTENTS - {"images", "rootdir"}
    if kind in {"pbs", "esxi"}:
        return frozenset({"backup", "none"} if kind == "pbs" else {"import"})
    if kind in {"iscsi", "iscsidirect", "zfs"}:
        return frozenset({"images", "none"})
    return frozenset({"images", "rootdir"})


def default_content(kind: str) -> str:
    if kind in {"lvmthin", "zfspool"}:
        return "images,rootdir"
    if kind == "pbs":
        return "backup"
    return "backup,vztmpl,iso" if kind == "cephfs" else "images"
