"""
The Node service: what kubelet asks of the plugin on each node.

Each volume has a lock of its own, so that making a file system on a large disk delays nobody else;
it lives as long as somebody holds it or waits for it, and no shorter.
The surprise: a published path is known by the mount table alone; nothing is remembered that a
restart could lose, and nothing is believed that the kernel does not say.
"""

import asyncio
from pathlib import Path
from weakref import WeakValueDictionary

from moxwell.csi.access_modes import check_capabilities, is_read_only
from moxwell.csi.attach_plan import SLOTS
from moxwell.csi.errors import Incompatible, NotNow, WrongDisk, need
from moxwell.csi.ids import find_volume, get_volume
from moxwell.csi.mounter import Mounted
from moxwell.csi.staging import KEY, Stager, Staging, luks_name
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
_MULTI = csi.VolumeCapability.AccessMode.SINGLE_NODE_MULTI_WRITER
_ANY = csi.VolumeCapability.AccessMode.SINGLE_NODE_WRITER
MOST_VOLUMES = len(SLOTS)


class Node:
    """csi.v1.Node."""

    def __init__(
        self, stager: Stager, *, node_id: str, region: str, zone: str, most: int = MOST_VOLUMES
    ) -> None:
        self._stager, self._id, self._most = stager, node_id, most
        self._segments = {REGION: region, ZONE: zone}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, volume: str) -> asyncio.Lock:
        return self._locks.setdefault(volume, asyncio.Lock())

    async def node_get_capabilities(
        self, _: csi.NodeGetCapabilitiesRequest
    ) -> csi.NodeGetCapabilitiesResponse:
        rows = [csi.NodeServiceCapability(rpc=_RPC(type=t)) for t in CAPABILITIES]
        return csi.NodeGetCapabilitiesResponse(capabilities=rows)

    async def node_get_info(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        return csi.NodeGetInfoResponse(
            node_id=self._id,
            max_volumes_per_node=self._most,
            accessible_topology=csi.Topology(segments=self._segments),
        )

    async def node_stage_volume(
        self, request: csi.NodeStageVolumeRequest
    ) -> csi.NodeStageVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.staging_target_path, "staging_target_path")
        check_capabilities([request.volume_capability])
        staging = Staging(
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
        need(request.volume_id, "volume_id")
        need(request.staging_target_path, "staging_target_path")
        async with self._lock(request.volume_id):
            await self._stager.unstage(request.volume_id, request.staging_target_path)
        return csi.NodeUnstageVolumeResponse()

    async def node_publish_volume(
        self, request: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.target_path, "target_path")
        check_capabilities([request.volume_capability])
        if not request.staging_target_path:
            raise NotNow("staging_target_path is missing: the volume must be staged first")
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
                raise NotNow(f"{request.volume_id} is not staged at {source}")
            if staged.source != f"/dev/mapper/{luks_name(volume)}":
                await self._stager.verify(source, raw.path)
            number = staged.device
        read_only = request.readonly or is_read_only(request.volume_capability)
        there = await self._stager.mounted(request.target_path)
        if there is not None:
            if not _shows(there, raw.path, number):
                raise WrongDisk(f"{request.target_path} holds {there.source}, not the volume")
            if there.read_only != read_only:
                raise Incompatible(f"{request.target_path} is published already, otherwise")
            return
        await self._refuse_second(request, raw.path, number)
        _make_target(request.target_path, folder=not block)
        await mounter.bind(source, request.target_path, read_only=read_only)

    async def _refuse_second(
        self, request: csi.NodePublishVolumeRequest, device: str, number: str
    ) -> None:
        """A second path for one volume is for those who said that several may write."""
        if request.volume_capability.access_mode.mode in (_MULTI, _ANY):
            return
        for mounted in await self._stager.mounter.table():
            others = (request.staging_target_path, request.target_path)
            if _shows(mounted, device, number) and mounted.target not in others:
                raise NotNow(f"{request.volume_id} is published at {mounted.target} already")

    async def node_unpublish_volume(
        self, request: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.target_path, "target_path")
        async with self._lock(request.volume_id):
            while await self._stager.mounted(request.target_path) is not None:
                await self._stager.mounter.unmount(request.target_path)
            _remove_target(request.target_path)
        return csi.NodeUnpublishVolumeResponse()

    async def node_get_volume_stats(
        self, request: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        need(request.volume_id, "volume_id")
        need(request.volume_path, "volume_path")
        there = await self._stager.mounted(request.volume_path)
        if there is None or find_volume(request.volume_id) is None:
            raise Missing(f"{request.volume_id} is not at {request.volume_path}")
        row = csi.VolumeUsage
        if not _is_folder(request.volume_path):
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
        need(request.volume_id, "volume_id")
        volume = get_volume(request.volume_id)
        health = csi.VolumeHealth(volume_id=request.volume_id)
        wwns = {device.wwn for device in await self._stager.disks.list()}
        if volume.identity.wwn not in wwns:
            text = "this guest has no disk that is the volume"
            entry = csi.VolumeHealth.VolumeHealthEntry
            health.health_statuses.append(
                entry(status=csi.INACCESSIBLE, reason="DiskGone", message=text)
            )
        return csi.NodeGetVolumeHealthResponse(volume_health=health)

    async def node_expand_volume(
        self, request: csi.NodeExpandVolumeRequest
    ) -> csi.NodeExpandVolumeResponse:
        need(request.volume_id, "volume_id")
        need(request.volume_path, "volume_path")
        volume = get_volume(request.volume_id)
        there = await self._stager.mounted(request.volume_path)
        if there is None:
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


def choose_most(label: str, others: int) -> int:
    """How many volumes fit: what a label says, and never more than there are slots."""
    free = MOST_VOLUMES + 1 - max(others, 1)
    return min(int(label), free) if label.isdigit() and int(label) else free


def _shows(mounted: Mounted, device: str, number: str) -> bool:
    """Is this mount the volume's: by its file system, or, for a block volume, its device file."""
    if number:
        return mounted.device == number
    return mounted.source == device or mounted.root == f"/{Path(device).name}"


def _make_target(path: str, *, folder: bool) -> None:
    if folder:
        Path(path).mkdir(parents=True, exist_ok=True)
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


def _is_folder(path: str) -> bool:
    return Path(path).is_dir()


def _remove_target(path: str) -> None:
    """Remove an empty mount point; anything that is not empty is not ours to remove."""
    target = Path(path)
    if target.is_dir():
        target.rmdir()
    elif target.exists() and target.stat().st_size == 0:
        target.unlink()
