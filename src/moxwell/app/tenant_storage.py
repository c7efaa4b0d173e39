"""
Runs the CSI controller for tenant clusters in this process, with a client of each tenant's API.

A tenant gets a CSIDriver, StorageClasses and the controllers that turn claims into Proxmox disks,
but no Proxmox credentials. The attachment index and the guest queues are shared by all tenants,
because they describe Proxmox.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial

from moxwell.app.tenant_volumes import TenantVolumes
from moxwell.clock import Clock
from moxwell.controllers.tenancy.storage_classes import controller as storage_classes
from moxwell.csi import driver as drivers
from moxwell.csi import inprocess
from moxwell.csi.attach_queue import GuestQueues
from moxwell.csi.attachments import AttachmentIndex
from moxwell.csi.cluster_guests import ClusterGuests
from moxwell.csi.controller import ControllerService
from moxwell.csi.driver import Driver, DriverSettings
from moxwell.csi.journal import ConfigMapJournal, MemoryJournal, VolumeJournal
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.embedded.controllermanager.storage import setup
from moxwell.embedded.controllermanager.storage.plugin import (
    DriverSnapshot,
    ProvisionedVolume,
    PublishRequest,
    StorageExhausted,
    VolumeRequest,
)
from moxwell.errors import MoxwellError
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller as Loop

JOURNAL_NAMESPACE = "kube-system"
Room = Callable[[str, int], AbstractAsyncContextManager[None]]  # name or id of a volume, bytes


def _unlimited(name: str, size: int) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class InProcessPlugin:
    """The driver as a volume plugin of the embedded controller manager, without gRPC."""

    def __init__(self, driver: Driver, room: Room = _unlimited) -> None:
        """``room`` is entered while a volume is created or expanded; it may refuse."""
        self.name = driver.settings.name
        self._service, self._room = ControllerService(driver), room

    async def create(self, request: VolumeRequest) -> ProvisionedVolume:
        try:
            async with self._room(request.name, request.size):
                volume = await inprocess.create(
                    self._service,
                    request.name,
                    request.size,
                    capabilities=inprocess.capability(
                        request.modes, request.fs_type, block=request.block
                    ),
                    parameters=request.parameters,
                    segments=request.segments,
                    source=inprocess.source_of(request.from_volume, request.from_snapshot),
                )
        except MoxwellError as error:
            if inprocess.is_exhausted(error):
                raise StorageExhausted(str(error)) from error
            raise
        segments = tuple(dict(t.segments) for t in volume.accessible_topology)
        return ProvisionedVolume(
            volume.volume_id, volume.capacity_bytes, dict(volume.volume_context), segments
        )

    async def delete(self, handle: str) -> None:
        await self._service.delete_volume(csi.DeleteVolumeRequest(volume_id=handle))

    async def publish(self, request: PublishRequest) -> Mapping[str, str]:
        call = csi.ControllerPublishVolumeRequest(
            volume_id=request.handle,
            node_id=request.node,
            volume_capability=inprocess.capability(
                request.modes[:1], request.fs_type, block=request.block
            )[0],
            readonly=request.read_only,
            volume_context=dict(request.context),
        )
        return dict((await self._service.controller_publish_volume(call)).publish_context)

    async def unpublish(self, handle: str, node: str) -> None:
        request = csi.ControllerUnpublishVolumeRequest(volume_id=handle, node_id=node)
        await self._service.controller_unpublish_volume(request)

    async def expand(self, handle: str, size: int, *, block: bool) -> tuple[int, bool]:
        request = csi.ControllerExpandVolumeRequest(
            volume_id=handle,
            capacity_range=csi.CapacityRange(required_bytes=size),
            volume_capability=inprocess.capability(("ReadWriteOnce",), "", block=block)[0],
        )
        async with self._room(handle, size):
            grown = await self._service.controller_expand_volume(request)
        return grown.capacity_bytes, grown.node_expansion_required

    async def capacity(
        self, parameters: Mapping[str, str], segments: Mapping[str, str]
    ) -> tuple[int, int]:
        request = csi.GetCapacityRequest(
            parameters=dict(parameters), accessible_topology=csi.Topology(segments=dict(segments))
        )
        answer = await self._service.get_capacity(request)
        return answer.available_capacity, answer.maximum_volume_size.value

    async def create_snapshot(
        self, name: str, source: str, parameters: Mapping[str, str]
    ) -> DriverSnapshot:
        request = csi.CreateSnapshotRequest(
            name=name, source_volume_id=source, parameters=dict(parameters)
        )
        snapshot = (await self._service.create_snapshot(request)).snapshot
        return DriverSnapshot(
            snapshot.snapshot_id,
            snapshot.size_bytes,
            snapshot.creation_time.seconds,
            snapshot.ready_to_use,
        )

    async def delete_snapshot(self, handle: str) -> None:
        await self._service.delete_snapshot(csi.DeleteSnapshotRequest(snapshot_id=handle))


class TenantStorage:
    """Adds storage to tenant runtimes; one object per process."""

    def __init__(
        self,
        regions: Regions,
        clock: Clock,
        record: VolumeJournal | None = None,
        static: Mapping[str, tuple[str, ...]] | None = None,
        volumes: TenantVolumes | None = None,
    ) -> None:
        """
        ``record`` keeps what proves volumes of earlier versions; tenants cannot write it.
        ``volumes`` counts what quotas limit.

        ``static`` are the static volumes that the operator grants to each ``namespace/cluster``.
        """
        self._regions, self._clock, self._record = regions, clock, record or MemoryJournal()
        self._static, self._volumes = dict(static or {}), volumes
        self._attachments, self._queues = AttachmentIndex(), GuestQueues(clock)

    def driver(self, runtime: Runtime, cluster: Key | None = None) -> Driver:
        """
        A driver that uses the API of one tenant.

        With ``cluster`` it uses the regions of that ProxmoxCluster and attaches volumes only to
        guests of its namespace.
        """
        name, owner = drivers.NAME, str(cluster or "")
        driver = drivers.assemble(
            self._regions.scope(owner),
            self._clock,
            settings=DriverSettings(static_volumes=self._static.get(owner, ())),
            kube=runtime.kube,
            journal=ConfigMapJournal(runtime.kube, JOURNAL_NAMESPACE, name),
            record=self._record,
            guests=ClusterGuests(cluster.namespace, cluster.name) if cluster else None,
        )
        attachments = self._attachments.scoped(driver.regions)
        return replace(driver, attachments=attachments, queues=self._queues)

    def _counted(self, runtime: Runtime, cluster: Key | None, driver: Driver) -> Room:
        """Count the volumes of a cluster for the quota of its tenant."""
        volumes = self._volumes
        if volumes is None or cluster is None:
            return _unlimited
        volumes.add(cluster, driver)
        runtime.manager.add_loop("tenant.volumes", partial(volumes.run, cluster))
        runtime.manager.on_exit(partial(volumes.forget, cluster))
        return partial(volumes.room, cluster)

    def add(self, runtime: Runtime, cluster: Key | None = None, *, binding: bool = True) -> None:
        """Add the storage controllers; ``binding`` is False where kube-controller-manager binds."""
        driver, manager = self.driver(runtime, cluster), runtime.manager
        if binding:
            setup.add_binding(runtime)
        setup.add_sidecars(
            runtime, self._clock, InProcessPlugin(driver, self._counted(runtime, cluster, driver))
        )
        classes = storage_classes.StorageClassReconciler(
            runtime.kube, driver.regions, driver.settings.name
        )
        manager.add(Loop(name=storage_classes.NAME, reconciler=classes, per_shard=1))
        manager.add_loop("csi.earlier", lambda: driver.ownership.earlier.run(self._clock))
        if driver.persistent_volumes.recorder is not None:
            manager.add_loop("csi.events", driver.persistent_volumes.recorder.run)
