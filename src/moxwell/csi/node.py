"""
The CSI Node service: stages, publishes and expands volumes on a node for kubelet.

Each volume has its own lock, which exists while it is held or awaited. The mount table of the
kernel is the only state, so a restart loses nothing.
"""

import asyncio
from pathlib import Path
from weakref import WeakValueDictionary

from moxwell.csi.access_modes import check_capabilities, is_read_only
from moxwell.csi.attach_plan import SLOTS
from moxwell.csi.errors import DeviceMismatch, FailedPrecondition, Incompatible, require
from moxwell.csi.ids import find_volume, get_volume
from moxwell.csi.mounter import MountEntry
from moxwell.csi.staging import KEY, Stager, StageRequest, luks_name
from moxwell.csi.topology import REGION, ZONE
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.errors import Missing

_RPC = csi.NodeServiceCapability.RPC
CAPABILITIES = (
    _RPC.STAGE_UNSTAGE_VOLUME,
    _RPC.GET_VOLUME_STATS,
    _RPC.EXPAND_VOLUME,
    _RPC.SINGLE_NODE_MULTI_WRITER,
    _RPC.GET_VOLUME_HEALTH,
)
_MULTI_WRITER = csi.VolumeCapability.AccessMode.SINGLE_NODE_MULTI_WRITER
_SINGLE = csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
MAX_VOLUMES = len(SLOTS)


class NodeService:
    """csi.v1.Node."""

    def __init__(
        self,
        stager: Stager,
        *,
        node_id: str,
        region: str,
        zone: str,
        max_volumes: int = MAX_VOLUMES,
    ) -> None:
        self._stager, self._id, self._max_volumes = stager, node_id, max_volumes
        self._segments = {REGION: region, ZONE: zone}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, volume: str) -> asyncio.Lock:
        return self._locks.setdefault(volume, asyncio.Lock())

    @property
    def volumes_in_use(self) -> frozenset[str]:
        """The volumes with calls that run or wait."""
        return frozenset(self._locks)

    async def node_get_capabilities(
        self, _: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        rows = [csi.NodeServiceCapability(rpc=_RPC(type=t)) for t in CAPABILITIES]
        return csi.NodeGetCapabilitiesResponse(capabilities=rows)

    async def node_get_info(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        return csi.NodeGetInfoResponse(
            node_id=self._id,
            max_volumes_per_node=self._max_volumes,
            accessible_topology=csi.Topology(segments=self._segments),
        )

    async def node_stage_volume(
        self, request: csi.NodeStageVolumeRequest
    ) -> csi.NodeStageVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.staging_target_path, "staging_target_path")
        check_capabilities([request.volume_capability])
        staging = StageRequest(
            request.volume_id,
            request.staging_target_path,
            request.volume_capability.mount.fs_type or "ext4",
            tuple(request.volume_capability.mount.mount_flags),
            request.volume_capability.HasField("block"),
            is_read_only(request.volume_capability),
            dict(request.volume_context),
            dict(request.publish_context),
            request.secrets.get(KEY, "").encode(),
        )
        async with self._lock(request.volume_id):
            await self._stager.stage(staging)
        return csi.NodeStageVolumeResponse()

    async def node_unstage_volume(
        self, request: csi.NodeUnstageVolumeRequest
    ) -> csi.NodeUnstageVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.staging_target_path, "staging_target_path")
        async with self._lock(request.volume_id):
            await self._stager.unstage(request.volume_id, request.staging_target_path)
        return csi.NodeUnstageVolumeResponse()

    async def node_publish_volume(
        self, request: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.target_path, "target_path")
        check_capabilities([request.volume_capability])
        if not request.staging_target_path:
            raise FailedPrecondition(
                "staging_target_path is missing: the volume must be staged first"
            )
        async with self._lock(request.volume_id):
            await self._publish(request)
        return csi.NodePublishVolumeResponse()

    async def _publish(self, request: csi.NodePublishVolumeRequest) -> None:
        volume, mounter = get_volume(request.volume_id), self._stager.mounter
        raw = await self._stager.device(volume, dict(request.publish_context))
        block = request.volume_capability.HasField("block")
        if block:
            source, number = raw.path, ""
        else:
            source = request.staging_target_path
            staged = await self._stager.mounted(source)
            if staged is None:
                raise FailedPrecondition(f"{request.volume_id} is not staged at {source}")
            if staged.source != f"/dev/mapper/{luks_name(volume)}":
                await self._stager.verify(source, raw.path)
            number = staged.device
        read_only = request.readonly or is_read_only(request.volume_capability)
        current = await self._stager.mounted(request.target_path)
        if current is not None:
            if not _is_mount_of(current, raw.path, number):
                raise DeviceMismatch(
                    f"{request.target_path} has {current.source} mounted, which is not the volume"
                )
            if current.read_only != read_only:
                raise Incompatible(f"{request.target_path} is already published, readonly differs")
            return
        await self._refuse_second(request, raw.path, number)
        _make_target(request.target_path, folder=not block)
        await mounter.bind(source, request.target_path, read_only=read_only)

    async def _refuse_second(
        self, request: csi.NodePublishVolumeRequest, device: str, number: str
    ) -> None:
        """Refuse a second target path unless the access mode allows several writers."""
        if request.volume_capability.access_mode.mode in (_MULTI_WRITER, _SINGLE):
            return
        for mounted in await self._stager.mounter.table():
            others = (request.staging_target_path, request.target_path)
            if _is_mount_of(mounted, device, number) and mounted.target not in others:
                raise FailedPrecondition(
                    f"{request.volume_id} is published at {mounted.target} already"
                )

    async def node_unpublish_volume(
        self, request: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.target_path, "target_path")
        async with self._lock(request.volume_id):
            while await self._stager.mounted(request.target_path) is not None:
                await self._stager.mounter.unmount(request.target_path)
            _remove_target(request.target_path)
        return csi.NodeUnpublishVolumeResponse()

    async def node_get_volume_stats(
        self, request: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        require(request.volume_id, "volume_id")
        require(request.volume_path, "volume_path")
        current = await self._stager.mounted(request.volume_path)
        if current is None or find_volume(request.volume_id) is None:
            raise Missing(f"{request.volume_id} is not at {request.volume_path}")
        row = csi.VolumeUsage
        if not _is_directory(request.volume_path):
            size = await self._stager.mounter.size(request.volume_path)
            return csi.NodeGetVolumeStatsResponse(usage=[row(total=size, unit=row.BYTES)])
        seen = await self._stager.mounter.usage(request.volume_path)
        space = row(total=seen.total, used=seen.used, available=seen.free, unit=row.BYTES)
        nodes = row(
            total=seen.inodes,
            used=seen.inodes_used,
            available=seen.inodes_free,
            unit=row.INODES,
        )
        return csi.NodeGetVolumeStatsResponse(usage=[space, nodes])

    async def node_get_volume_health(
        self, request: csi.NodeGetVolumeHealthRequest
    ) -> csi.NodeGetVolumeHealthResponse:
        require(request.volume_id, "volume_id")
        volume = get_volume(request.volume_id)
        health = csi.VolumeHealth(volume_id=request.volume_id)
        wwns = {device.wwn for device in await self._stager.disks.list()}
        if volume.identity.wwn not in wwns:
            text = "no disk of this node has the WWN of the volume"
            entry = csi.VolumeHealth.VolumeHealthEntry
            health.health_statuses.append(
                entry(status=csi.INACCESSIBLE, reason="DiskMissing", message=text)
            )
        return csi.NodeGetVolumeHealthResponse(volume_health=health)

    async def node_expand_volume(
        self, request: csi.NodeExpandVolumeRequest
    ) -> csi.NodeExpandVolumeResponse:
        require(request.volume_id, "volume_id")
        require(request.volume_path, "volume_path")
        volume = get_volume(request.volume_id)
        current = await self._stager.mounted(request.volume_path)
        if current is None:
            raise Missing(f"{request.volume_id} is not at {request.volume_path}")
        async with self._lock(request.volume_id):
            await self._stager.disks.rescan()
            raw = await self._stager.device(volume, {})
            device, mounter = raw.path, self._stager.mounter
            if request.secrets.get(KEY):
                await mounter.grow_luks(luks_name(volume), request.secrets[KEY].encode())
                device = f"/dev/mapper/{luks_name(volume)}"
            if not request.volume_capability.HasField("block"):
                kind = await mounter.probe(device)
                await mounter.grow(device, request.volume_path, kind)
            size = await mounter.size(device)
        return csi.NodeExpandVolumeResponse(capacity_bytes=size)


def count_volume_slots(label: str, others: int) -> int:
    """max_volumes_per_node: the value of the label, limited by the free SCSI slots."""
    free = MAX_VOLUMES + 1 - max(others, 1)
    return min(int(label), free) if label.isdigit() and int(label) else free


def _is_mount_of(mounted: MountEntry, device: str, number: str) -> bool:
    """
    Return whether a mount shows the volume: by file system, or by device file for block volumes.
    """
    if number:
        return mounted.device == number
    return mounted.source == device or mounted.root == f"/{Path(device).name}"


def _make_target(path: str, *, folder: bool) -> None:
    if folder:
        Path(path).mkdir(parents=True, exist_ok=True)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


def _is_directory(path: str) -> bool:
    return Path(path).is_dir()


def _remove_target(path: str) -> None:
    """Remove an empty mount point; anything else stays."""
    target = Path(path)
    if target.is_dir():
        target.rmdir()
    elif target.exists() and target.stat().st_size == 0:
        target.unlink()
