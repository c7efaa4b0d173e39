"""
The CSI Controller service: validates requests, calls the operations and builds the responses.

A malformed id is answered with NOT_FOUND before other arguments are validated, as csi-sanity
expects.
"""

from collections.abc import Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from moxwell.csi import create, expand, listing, publish, restore, snapshots
from moxwell.csi.access_modes import check_capabilities, is_read_only, unsupported
from moxwell.csi.driver import Driver
from moxwell.csi.errors import require
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.parameters import SnapshotParameters, VolumeParameters
from moxwell.csi.pvc import PVC_NAME, PVC_NAMESPACE, VolumeReason
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


class ControllerService:
    """csi.v1.Controller."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def controller_get_capabilities(
        self, _: csi.ControllerGetCapabilitiesRequest
    ) -> csi.ControllerGetCapabilitiesResponse:
        rows = [csi.ControllerServiceCapability(rpc=_RPC(type=t)) for t in CAPABILITIES]
        return csi.ControllerGetCapabilitiesResponse(capabilities=rows)

    async def create_volume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        require(request.name, "name")
        check_capabilities(request.volume_capabilities)
        given = dict(request.parameters)
        params = VolumeParameters.parse(given, dict(request.mutable_parameters))
        topology = request.accessibility_requirements
        source = request.volume_content_source
        volume_request = create.CreateVolumeOptions(
            request.name,
            params,
            request.capacity_range.required_bytes,
            request.capacity_range.limit_bytes,
            [dict(t.segments) for t in (*topology.preferred, *topology.requisite)],
            source.snapshot.snapshot_id or source.volume.volume_id,
        )
        created = await self._create(volume_request, given)
        volume = csi.Volume(
            volume_id=str(created.id),
            capacity_bytes=created.size,
            volume_context=created.context,
            accessible_topology=[csi.Topology(segments=s) for s in created.segments],
        )
        if volume_request.source:
            volume.content_source.CopyFrom(source)
        return csi.CreateVolumeResponse(volume=volume)

    async def _create(
        self, request: create.CreateVolumeOptions, given: Mapping[str, str]
    ) -> create.CreatedVolume:
        """Create or restore a volume and record the outcome as an event on its claim."""
        namespace, name = given.get(PVC_NAMESPACE, ""), given.get(PVC_NAME, "")
        try:
            operation = restore.create if request.source else create.create
            created = await operation(self._driver, request)
        except MoxwellError as error:
            await self._driver.persistent_volumes.warn(namespace, name, error)
            raise
        if created.method:
            message = f"{created.id} was created from {request.source} by {created.method}"
            event = Note(VolumeReason.RESTORED, message)
            await self._driver.persistent_volumes.record(namespace, name, event)
        return created

    async def delete_volume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        require(request.volume_id, "volume_id")
        await create.delete(self._driver, request.volume_id)
        return csi.DeleteVolumeResponse()

    async def controller_publish_volume(
        self, request: csi.ControllerPublishVolumeRequest
    ) -> csi.ControllerPublishVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.node_id, "node_id")
        check_capabilities([request.volume_capability])
        read_only = request.readonly or is_read_only(request.volume_capability)
        publish_request = publish.PublishVolumeOptions(
            request.volume_id, request.node_id, read_only, dict(request.volume_context)
        )
        context = await publish.publish(self._driver, publish_request)
        return csi.ControllerPublishVolumeResponse(publish_context=context)

    async def controller_unpublish_volume(
        self, request: csi.ControllerUnpublishVolumeRequest
    ) -> csi.ControllerUnpublishVolumeResponse:
        require(request.volume_id, "volume_id")
        await publish.unpublish(self._driver, request.volume_id, request.node_id)
        return csi.ControllerUnpublishVolumeResponse()

    async def validate_volume_capabilities(
        self, request: csi.ValidateVolumeCapabilitiesRequest
    ) -> csi.ValidateVolumeCapabilitiesResponse:
        require(request.volume_id, "volume_id")
        require(request.volume_capabilities, "volume_capabilities")
        await self._read_volume(request.volume_id)
        reason = unsupported(request.volume_capabilities)
        if reason:
            return csi.ValidateVolumeCapabilitiesResponse(message=reason)
        confirmed = csi.ValidateVolumeCapabilitiesResponse.Confirmed(
            volume_context=request.volume_context,
            volume_capabilities=request.volume_capabilities,
            parameters=request.parameters,
        )
        return csi.ValidateVolumeCapabilitiesResponse(confirmed=confirmed)

    async def _read_volume(self, text: str) -> tuple[VolumeId, int]:
        volume = get_volume(text)
        region = await self._driver.own(volume)
        return volume, (await self._driver.read_disk(region, volume)).size

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
        require(request.volume_id, "volume_id")
        volume, size = await self._read_volume(request.volume_id)
        await self._driver.attachments.sync(await self._driver.region(volume.region))
        node = listing.published_node(self._driver, volume)
        status = csi.ControllerGetVolumeResponse.VolumeStatus(
            published_node_ids=[node] if node else []
        )
        return csi.ControllerGetVolumeResponse(
            volume=csi.Volume(volume_id=request.volume_id, capacity_bytes=size), status=status
        )

    async def controller_get_volume_health(
        self, request: csi.ControllerGetVolumeHealthRequest
    ) -> csi.ControllerGetVolumeHealthResponse:
        require(request.volume_id, "volume_id")
        found = await listing.health(self._driver, get_volume(request.volume_id))
        entry = csi.VolumeHealth.VolumeHealthEntry
        rows = [
            entry(status=csi.INACCESSIBLE, reason=reason, message=text) for reason, text in found
        ]
        return csi.ControllerGetVolumeHealthResponse(
            volume_health=csi.VolumeHealth(volume_id=request.volume_id, health_statuses=rows)
        )

    async def get_snapshot(self, request: csi.GetSnapshotRequest) -> csi.GetSnapshotResponse:
        require(request.snapshot_id, "snapshot_id")
        found = await snapshots.list_snapshots(self._driver, snapshot_id=request.snapshot_id)
        if not found:
            raise Missing(f"snapshot {request.snapshot_id!r} does not exist")
        return csi.GetSnapshotResponse(snapshot=_snapshot(found[0]))

    async def get_capacity(self, request: csi.GetCapacityRequest) -> csi.GetCapacityResponse:
        segments = dict(request.accessible_topology.segments)
        free, largest = await listing.capacity(self._driver, dict(request.parameters), segments)
        response = csi.GetCapacityResponse(available_capacity=free)
        response.maximum_volume_size.value = largest
        return response

    async def create_snapshot(
        self, request: csi.CreateSnapshotRequest
    ) -> csi.CreateSnapshotResponse:
        require(request.name, "name")
        require(request.source_volume_id, "source_volume_id")
        params = SnapshotParameters.parse(dict(request.parameters))
        created = await snapshots.create(
            self._driver, request.name, request.source_volume_id, params
        )
        return csi.CreateSnapshotResponse(snapshot=_snapshot(created))

    async def delete_snapshot(
        self, request: csi.DeleteSnapshotRequest
    ) -> csi.DeleteSnapshotResponse:
        require(request.snapshot_id, "snapshot_id")
        await snapshots.delete(self._driver, request.snapshot_id)
        return csi.DeleteSnapshotResponse()

    async def list_snapshots(self, request: csi.ListSnapshotsRequest) -> csi.ListSnapshotsResponse:
        rows = await snapshots.list_snapshots(
            self._driver, source=request.source_volume_id, snapshot_id=request.snapshot_id
        )
        first, last, token = listing.page(len(rows), request.starting_token, request.max_entries)
        entries = [
            csi.ListSnapshotsResponse.Entry(snapshot=_snapshot(row)) for row in rows[first:last]
        ]
        return csi.ListSnapshotsResponse(entries=entries, next_token=token)

    async def controller_expand_volume(
        self, request: csi.ControllerExpandVolumeRequest
    ) -> csi.ControllerExpandVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.HasField("capacity_range"), "capacity_range")
        size = request.capacity_range
        expanded = await expand.expand(
            self._driver, request.volume_id, size.required_bytes, size.limit_bytes
        )
        block = request.volume_capability.HasField("block")
        return csi.ControllerExpandVolumeResponse(
            capacity_bytes=expanded.size,
            node_expansion_required=expanded.node_expansion_required and not block,
        )

    async def controller_modify_volume(
        self, request: csi.ControllerModifyVolumeRequest
    ) -> csi.ControllerModifyVolumeResponse:
        require(request.volume_id, "volume_id")
        await expand.modify(self._driver, request.volume_id, dict(request.mutable_parameters))
        return csi.ControllerModifyVolumeResponse()


def _snapshot(created: snapshots.SnapshotInfo) -> csi.Snapshot:
    return csi.Snapshot(
        snapshot_id=str(created.id),
        source_volume_id=created.source,
        size_bytes=created.size,
        creation_time=Timestamp(seconds=created.created),
        ready_to_use=created.ready,
    )
