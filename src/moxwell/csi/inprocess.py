"""
The driver's controller called without a socket: plain values in, plain values out.

For a control plane that runs in this process: what its stand-ins for the sidecars ask for becomes
the requests of the CSI specification, so that the very same code answers. The surprise: errors stay
what they were raised as; ``is_exhausted`` says which of them mean that there is no room.
"""

from collections.abc import Mapping, Sequence

import grpc

from moxwell.csi import errors
from moxwell.csi.controller import Controller
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
    """One capability for each access mode, as the provisioner makes them."""
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
    """No room just there; elsewhere there may be."""
    return errors.code_of(error) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def create(
    controller: Controller,
    name: str,
    size: int,
    *,
    capabilities: Sequence[csi.VolumeCapability],
    parameters: Mapping[str, str],
    segments: Sequence[Mapping[str, str]] = (),
    source: csi.VolumeContentSource | None = None,
) -> csi.Volume:
    """CreateVolume."""
    places = [csi.Topology(segments=dict(s)) for s in segments]
    request = csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=size),
        volume_capabilities=capabilities,
        parameters=dict(parameters),
        volume_content_source=source,
        accessibility_requirements=csi.TopologyRequirement(requisite=places, preferred=places),
    )
    return (await controller.create_volume(request)).volume


def source_of(volume: str, snapshot: str) -> csi.VolumeContentSource | None:
    """What a volume is to be a copy of."""
    kind = csi.VolumeContentSource
    if volume:
        return kind(volume=kind.VolumeSource(volume_id=volume))
    if snapshot:
        return kind(snapshot=kind.SnapshotSource(snapshot_id=snapshot))
    return None
