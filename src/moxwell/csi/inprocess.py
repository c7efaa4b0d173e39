"""
Calls the CSI Controller service in this process, without a socket.

The embedded replacements of the CSI sidecars use it for tenant clusters. Errors are raised as they
are; ``is_exhausted`` returns which of them mean RESOURCE_EXHAUSTED.
"""

from collections.abc import Mapping, Sequence

import grpc

from moxwell.csi import errors
from moxwell.csi.controller import ControllerService
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import MoxwellError

_MODE = csi.VolumeCapability.AccessMode
_MODES = {
    "ReadWriteOnce": _MODE.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODE.SINGLE_NODE_SINGLE_WRITER,
    "ReadOnlyMany": _MODE.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": _MODE.MULTI_NODE_MULTI_WRITER,
}


def capability(modes: Sequence[str], fs_type: str, *, block: bool) -> list[csi.VolumeCapability]:
    """One volume capability per access mode, as external-provisioner builds them."""
    made = []
    for mode in modes:
        one = csi.VolumeCapability(access_mode=_MODE(mode=_MODES.get(mode, _MODE.UNKNOWN)))
        if block:
            one.block.SetInParent()
        else:
            one.mount.fs_type = fs_type
            one.mount.SetInParent()
        made.append(one)
    return made


def is_exhausted(error: MoxwellError) -> bool:
    """Return whether the error means RESOURCE_EXHAUSTED: another topology may have room."""
    return errors.status_code(error) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def create(
    controller: ControllerService,
    name: str,
    size: int,
    *,
    capabilities: Sequence[csi.VolumeCapability],
    parameters: Mapping[str, str],
    segments: Sequence[Mapping[str, str]] = (),
    source: csi.VolumeContentSource | None = None,
) -> csi.Volume:
    """Call CreateVolume."""
    locations = [csi.Topology(segments=dict(s)) for s in segments]
    request = csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=size),
        volume_capabilities=capabilities,
        parameters=dict(parameters),
        volume_content_source=source,
        accessibility_requirements=csi.TopologyRequirement(
            requisite=locations, preferred=locations
        ),
    )
    return (await controller.create_volume(request)).volume


def source_of(volume: str, snapshot: str) -> csi.VolumeContentSource | None:
    """The volume content source of a clone or restore."""
    kind = csi.VolumeContentSource
    if volume:
        return kind(volume=kind.VolumeSource(volume_id=volume))
    if snapshot:
        return kind(snapshot=kind.SnapshotSource(snapshot_id=snapshot))
    return None
