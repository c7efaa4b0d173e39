"""CSI controller calls with default parameters, for tests and benchmarks."""

import asyncio
from collections.abc import Mapping

from moxwell.csi.controller import ControllerService
from moxwell.csi.errors import OperationPending
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi import node_id

GIB = 1 << 30
MODE = csi.VolumeCapability.AccessMode
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
MOUNT = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=MODE(mode=MODE.SINGLE_NODE_WRITER),
)


async def create(
    control: ControllerService,
    name: str,
    storage: str = "ceph",
    *,
    region: str = "r1",
    zone: str = "",
    gib: int = 1,
    params: Mapping[str, str] | None = None,
    mutable: Mapping[str, str] | None = None,
    source: csi.VolumeContentSource | None = None,
) -> csi.Volume:
    segments = {REGION: region, ZONE: zone} if zone else {REGION: region}
    request = csi.CreateVolumeRequest(
        name=name,
        capacity_range=csi.CapacityRange(required_bytes=gib * GIB),
        volume_capabilities=[MOUNT],
        parameters={"storage": storage, **(params or {})},
        mutable_parameters=dict(mutable or {}),
        volume_content_source=source,
        accessibility_requirements=csi.TopologyRequirement(
            requisite=[csi.Topology(segments=segments)]
        ),
    )
    return (await control.create_volume(request)).volume


async def attach(
    control: ControllerService, volume: csi.Volume, vmid: int = 101, *, node: str = ""
) -> dict[str, str]:
    region = volume.volume_id.partition("/")[0]
    request = csi.ControllerPublishVolumeRequest(
        volume_id=volume.volume_id,
        node_id=node or node_id(vmid, region),
        volume_capability=MOUNT,
        volume_context=volume.volume_context,
    )
    return dict((await control.controller_publish_volume(request)).publish_context)


async def detach(control: ControllerService, volume: csi.Volume, vmid: int = 101) -> None:
    region = volume.volume_id.partition("/")[0]
    await control.controller_unpublish_volume(
        csi.ControllerUnpublishVolumeRequest(
            volume_id=volume.volume_id, node_id=node_id(vmid, region)
        )
    )


async def delete(control: ControllerService, volume: csi.Volume) -> None:
    await control.delete_volume(csi.DeleteVolumeRequest(volume_id=volume.volume_id))


async def delete_replicated(control: ControllerService, volume: csi.Volume) -> None:
    """Delete a volume as the sidecar does: Proxmox removes replication jobs within a minute."""
    for _ in range(3):
        try:
            return await delete(control, volume)
        except OperationPending:
            await asyncio.sleep(61)
    raise AssertionError("the replicas are not deleted")


async def expand(control: ControllerService, volume: csi.Volume, gib: int) -> int:
    request = csi.ControllerExpandVolumeRequest(
        volume_id=volume.volume_id, capacity_range=csi.CapacityRange(required_bytes=gib * GIB)
    )
    return int((await control.controller_expand_volume(request)).capacity_bytes)


async def modify(control: ControllerService, volume: csi.Volume, **mutable: str) -> None:
    await control.controller_modify_volume(
        csi.ControllerModifyVolumeRequest(volume_id=volume.volume_id, mutable_parameters=mutable)
    )


async def snapshot(
    control: ControllerService, name: str, volume: csi.Volume, **params: str
) -> csi.Snapshot:
    request = csi.CreateSnapshotRequest(
        name=name, source_volume_id=volume.volume_id, parameters=params
    )
    return (await control.create_snapshot(request)).snapshot


async def unsnapshot(control: ControllerService, snapshot: csi.Snapshot) -> None:
    request = csi.DeleteSnapshotRequest(snapshot_id=snapshot.snapshot_id)
    await control.delete_snapshot(request)


async def snapshots(
    control: ControllerService, *, source_volume_id: str = "", snapshot_id: str = ""
) -> list[csi.Snapshot]:
    found = await control.list_snapshots(
        csi.ListSnapshotsRequest(source_volume_id=source_volume_id, snapshot_id=snapshot_id)
    )
    return [entry.snapshot for entry in found.entries]


async def volumes(control: ControllerService) -> list[str]:
    found = await control.list_volumes(csi.ListVolumesRequest())
    return [entry.volume.volume_id for entry in found.entries]


def of_snapshot(snapshot: csi.Snapshot) -> csi.VolumeContentSource:
    source = csi.VolumeContentSource.SnapshotSource(snapshot_id=snapshot.snapshot_id)
    return csi.VolumeContentSource(snapshot=source)


def of_volume(volume: csi.Volume) -> csi.VolumeContentSource:
    source = csi.VolumeContentSource.VolumeSource(volume_id=volume.volume_id)
    return csi.VolumeContentSource(volume=source)
