"""
Checks CSI volume capabilities: the access modes and file systems that the driver supports.

A Proxmox disk can be attached to one guest at a time, so multi-node modes are rejected, also the
read-only ones.
"""

from collections.abc import Iterable

from moxwell.csi.parameters import FILESYSTEMS
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid

_MODE = csi.VolumeCapability.AccessMode
SUPPORTED = frozenset(
    {
        _MODE.SINGLE_NODE_WRITER,
        _MODE.SINGLE_NODE_READER_ONLY,
        _MODE.SINGLE_NODE_SINGLE_WRITER,
        _MODE.SINGLE_NODE_MULTI_WRITER,
    }
)


def unsupported(capabilities: Iterable[csi.VolumeCapability]) -> str:
    """The reason why the capabilities are not supported; empty if they are."""
    for capability in capabilities:
        if not (capability.HasField("mount") or capability.HasField("block")):
            return "volume capability must be either mount or block"
        if capability.access_mode.mode not in SUPPORTED:
            name = _MODE.Mode.Name(capability.access_mode.mode)
            return f"access mode {name} is not supported: a volume can be on one node at a time"
        kind = capability.mount.fs_type
        if kind and kind not in FILESYSTEMS:
            return f"file system {kind} is not supported; use {', '.join(FILESYSTEMS)}"
    return ""


def check_capabilities(capabilities: Iterable[csi.VolumeCapability]) -> None:
    """Raise Invalid unless capabilities are given and all of them are supported."""
    given = [c for c in capabilities if c.ListFields()]
    if not given:
        raise Invalid("volume capability is missing")
    reason = unsupported(given)
    if reason:
        raise Invalid(reason)


def is_read_only(capability: csi.VolumeCapability) -> bool:
    return bool(capability.access_mode.mode == _MODE.SINGLE_NODE_READER_ONLY)
