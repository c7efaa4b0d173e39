"""
How a volume may be used: access modes and kinds that a disk of one guest can offer.

The surprise: a Proxmox disk belongs to one guest at a time, so nothing that several nodes share is
ever accepted, not even for reading.
"""

from collections.abc import Iterable

from moxwell.csi.parameters import FILESYSTEMS
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Invalid

_MODE = csi.VolumeCapability.AccessMode
ACCEPTED = frozenset(
    {
        _MODE.SINGLE_NODE_WRITER,
        _MODE.SINGLE_NODE_READER_ONLY,
        _MODE.SINGLE_NODE_SINGLE_WRITER,
        _MODE.SINGLE_NODE_MULTI_WRITER,
    }
)


def refusal_of(capabilities: Iterable[csi.VolumeCapability]) -> str:
    """Why these cannot be had; empty if they can."""
    for capability in capabilities:
        if not (capability.HasField("mount") or capability.HasField("block")):
            return "a volume is either mounted or a block device"
        if capability.access_mode.mode not in ACCEPTED:
            name = _MODE.Mode.Name(capability.access_mode.mode)
            return f"access mode {name} is not possible: a disk belongs to one node at a time"
        kind = capability.mount.fs_type
        if kind and kind not in FILESYSTEMS:
            return f"file system {kind} is not known; there are {', '.join(FILESYSTEMS)}"
    return ""


def check_capabilities(capabilities: Iterable[csi.VolumeCapability]) -> None:
    """Raise unless all of them are there and possible."""
    given = [c for c in capabilities if c.ListFields()]
    if not given:
        raise Invalid("volume capability is missing")
    why = refusal_of(given)
    if why:
        raise Invalid(why)


def is_read_only(capability: csi.VolumeCapability) -> bool:
    return bool(capability.access_mode.mode == _MODE.SINGLE_NODE_READER_ONLY)
