"""
The Controller service: requests of the CSI specification in, its answers out.

Each method checks what the specification says about missing fields, hands values to the operation
of its name, and dresses the result. The surprise: what an id cannot be is answered before what an
argument must not be, since tests and sidecars look for NOT_FOUND first.
"""

from google.protobuf.timestamp_pb2 import Timestamp

from moxwell.csi import create, expand, listing, publish, restore, snapshots
from moxwell.csi.access_modes import check_capabilities, is_read_only, refusal_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import need
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.parameters import Params, SnapshotParams
from moxwell.csi.pvc import PVC_NAME, PVC_NAMESPACE
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Missing, MoxwellError
from moxwell.runtime.reconciler import Note

_RPC = csi.ControllerServiceCapability.RPC
CAPABILITIES = (
    _RPC.CREATE_DELETE_VOLUME,
    _RPC.PUBLISH_UNPUBLISH_VOLUME,
    _RPC.LIST_VOLUMES,
    _RPC.LIST_VOLUMES_PUBLISHED_NODES,
    _RPC.GET_CAPACITY,
    _RPC.CREATE_DELETE_SNAPSHOT,
    _RPC.LIST_SNAPSHOTS,
    _RPC.CLONE_VOLUME,
    _RPC.PUBLISH_READONLY,
    _RPC.EXPAND_VOLUME,
    _RPC.GET_VOLUME,
    _RPC.GET_VOLUME_HEALTH,
    _RPC.GET_SNAPSHOT,
    _RPC.SINGLE_NODE_MULTI_WRITER,
    _RPC.MODIFY_VOLUME,
)


class Controller:
    """csi.v1.Controller."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def controller_get_capabilities(
        self, _: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        rows = [csi.ControllerServiceCapability(rpc=_RPC(type=t)) for t in CAPABILITIES]
        return csi.ControllerGetCapabilitiesResponse(capabilities=rows)

    async def create_volume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        need(request.name, "name")
        check_capabilities(request.volume_capabilities)
        given = dict(request.parameters)
        params = Params.parse(given, dict(request.mutable_parameters))
        topology = request.accessibility_requirements
        wanted = [dict(t.segments) for t in (*topology.preferred, *topology.requisite)]
        source = request.volume_content_source
        order = create.Order(
            request.name,
            params,
            request.capacity_range.required_bytes,
            request.capacity_range.limit_bytes,
            wanted,
            source.snapshot.snapshot_id or source.volume.volume_id,
        )
        try:
            make = restore.create if order.source else create.create
            made = await make(self._driver, order)
        except MoxwellError as error:
            namespace = given.get(PVC_NAMESPACE, "")
            await self._driver.claims.tell(namespace, given.get(PVC_NAME, ""), error)
            raise
        if made.by:
            told = Note("Restored", f"{made.id} was made from {order.source} by {made.by}")
            await self._driver.claims.note(
                given.get(PVC_NAMESPACE, ""), given.get(PVC_NAME, ""), told
            )
        volume = csi.Volume(
            volume_id=str(made.id),
            capacity_bytes=made.size,
            volume_context=made.context,
            accessible_topology=[csi.Topology(segments=s) for s in made.segments],
        )
        if order.source:
            volume.content_source.CopyFrom(source)
        return csi.CreateVolumeResponse(volume=volume)

    async def delete_volume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        need(request.volume_id, "volume_id")
        await create.delete(self._driver, request.volume_id)
        return csi.DeleteVolumeResponse()

    async def controller_publish_volume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.node_id, "node_id")
        check_capabilities([request.volume_capability])
        read_only = request.readonly or is_read_only(request.volume_capability)
        wanted = publish.Wanted(
            request.volume_id, request.node_id, read_only, dict(request.volume_context)
        )
        context = await publish.publish(self._driver, wanted)
        return csi.ControllerPublishVolumeResponse(publish_context=context)

    async def controller_unpublish_volume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        need(request.volume_id, "volume_id")
        await publish.unpublish(self._driver, request.volume_id, request.node_id)
        return csi.ControllerUnpublishVolumeResponse()

    async def validate_volume_capabilities(
        self, request: csi.ValidateVolumeCapabilitiesRequest
    ) -> csi.ValidateVolumeCapabilitiesResponse:
        need(request.volume_id, "volume_id")
        need(request.volume_capabilities, "volume_capabilities")
        await self._look(request.volume_id)
        why = refusal_of(request.volume_capabilities)
        if why:
            return csi.ValidateVolumeCapabilitiesResponse(message=why)
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context,
            volume_capabilities=request.volume_capabilities,
            parameters=request.parameters,
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    async def _look(self, text: str) -> tuple[VolumeId, int]:
        volume = get_volume(text)
        region = await self._driver.region(volume.region)
        return volume, (await self._driver.look(region, volume)).size

    async def list_volumes(self, request: csi.ListVolumesRequest) -> csi.ListVolumesResponse:
        rows = await listing.list_volumes(self._driver)
        first, last, token = listing.page(len(rows), request.starting_token, request.max_entries)
        entries = [
            csi.ListVolumesResponse.Entry(
                volume=csi.Volume(volume_id=str(disk.id), capacity_bytes=disk.size),
                status=csi.ListVolumesResponse.VolumeStatus(
                    published_node_ids=[node] if node else [],
                ),
            )
            for disk, node in rows[first:last]
        ]
        return csi.ListVolumesResponse(entries=entries, next_token=token)

    async def controller_get_volume(
        self, request: csi.ControllerGetVolumeRequest
    ) -> csi.ControllerGetVolumeResponse:
        need(request.volume_id, "volume_id")
        volume, size = await self._look(request.volume_id)
        await self._driver.holders.sync(await self._driver.region(volume.region))
        node = listing.holder(self._driver, volume)
        status = csi.ControllerGetVolumeResponse.VolumeStatus(
            published_node_ids=[node] if node else []
        )
        return csi.ControllerGetVolumeResponse(
            volume=csi.Volume(volume_id=request.volume_id, capacity_bytes=size), status=status
        )

    async def controller_get_volume_health(
        self, request: csi.ControllerGetVolumeHealthRequest
    ) -> csi.ControllerGetVolumeHealthResponse:
        need(request.volume_id, "volume_id")
        found = await listing.health(self._driver, get_volume(request.volume_id))
        entry = csi.VolumeHealth.VolumeHealthEntry
        rows = [entry(status=csi.INACCESSIBLE, reason=why, message=text) for why, text in found]
        return csi.ControllerGetVolumeHealthResponse(
            volume_health=csi.VolumeHealth(volume_id=request.volume_id, health_statuses=rows)
        )

    async def get_snapshot(self, request: csi.GetSnapshotRequest) -> csi.GetSnapshotResponse:
        need(request.snapshot_id, "snapshot_id")
        found = await snapshots.list_snapshots(self._driver, only=request.snapshot_id)
        if not found:
            raise Missing(f"there is no snapshot {request.snapshot_id!r}")
        return csi.GetSnapshotResponse(snapshot=_snapshot(found[0]))

    async def get_capacity(self, request: csi.GetCapacityRequest) -> csi.GetCapacityResponse:
        segments = dict(request.accessible_topology.segments)
        free, most = await listing.capacity(self._driver, dict(request.parameters), segments)
        response = csi.GetCapacityResponse(available_capacity=free)
        response.maximum_volume_size.value = most
        return response

    async def create_snapshot(
        self, request: csi.CreateSnapshotRequest
    ) -> csi.CreateSnapshotResponse:
        need(request.name, "name")
        need(request.source_volume_id, "source_volume_id")
        params = SnapshotParams.parse(dict(request.parameters))
        made = await snapshots.create(self._driver, request.name, request.source_volume_id, params)
        return csi.CreateSnapshotResponse(snapshot=_snapshot(made))

    async def delete_snapshot(
        self, request: csi.DeleteSnapshotRequest
    ) -> csi.DeleteSnapshotResponse:
        need(request.snapshot_id, "snapshot_id")
        await snapshots.delete(self._driver, request.snapshot_id)
        return csi.DeleteSnapshotResponse()

    async def list_snapshots(self, request: csi.ListSnapshotsRequest) -> csi.ListSnapshotsResponse:
        rows = await snapshots.list_snapshots(
            self._driver, source=request.source_volume_id, only=request.snapshot_id
        )
        first, last, token = listing.page(len(rows), request.starting_token, request.max_entries)
        entries = [
            csi.ListSnapshotsResponse.Entry(snapshot=_snapshot(row)) for row in rows[first:last]
        ]
        return csi.ListSnapshotsResponse(entries=entries, next_token=token)

    async def controller_expand_volume(
        self, request: csi.ControllerExpandVolumeRequest
    ) -> csi.ControllerExpandVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.HasField("capacity_range"), "capacity_range")
        wanted = request.capacity_range
        grown = await expand.expand(
            self._driver, request.volume_id, wanted.required_bytes, wanted.limit_bytes
        )
        block = request.volume_capability.HasField("block")
        return csi.ControllerExpandVolumeResponse(
            capacity_bytes=grown.size, node_expansion_required=grown.node_acts and not block
        )

    async def controller_modify_volume(
        self, request: csi.ControllerModifyVolumeRequest
    ) -> csi.ControllerModifyVolumeResponse:
        need(request.volume_id, "volume_id")
        await expand.modify(self._driver, request.volume_id, dict(request.mutable_parameters))
        return csi.ControllerModifyVolumeResponse()


def _snapshot(made: snapshots.Snapshot) -> csi.Snapshot:
    return csi.Snapshot(
        snapshot_id=str(made.id),
        source_volume_id=made.source,
        size_bytes=made.size,
        creation_time=Timestamp(seconds=made.made),
        ready_to_use=made.ready,
    )
