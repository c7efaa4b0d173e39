"""
Storage types and their options: (required, optional).

A required option cannot be changed unless it is also in the second set.
"""

CONTENTS = frozenset({"images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"})


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
