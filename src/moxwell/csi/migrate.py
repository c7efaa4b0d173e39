"""
Migrates a local volume to another host: copies the disk and replaces its PersistentVolume.

A PersistentVolume is immutable, so it and its claim are created again. Both are in the journal
before anything is deleted, and a repeated call continues where the last one stopped. With root@pam
the disk is copied under its own name; with a token its helper VM is cloned and migrated. The old
disk is deleted last, after the new PersistentVolume exists.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moxwell.csi import clones, native_snapshots
from moxwell.csi.clones import CloneRequest
from moxwell.csi.disks import storage_type
from moxwell.csi.driver import Driver
from moxwell.csi.errors import FailedPrecondition
from moxwell.csi.full_copies import DiskCopy, RootRequired
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.csi.storage_features import features_of
from moxwell.csi.topology import REGION, ZONE
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.pve.regions import Region

Progress = Callable[[str], None]
_SERVER_FIELDS = (
    "uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp",
    "deletionGracePeriodSeconds", "generation", "finalizers", "ownerReferences",
)  # fmt: skip
_BINDING_ANNOTATIONS = (
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
)


def recreatable(obj: dict[str, Any]) -> dict[str, Any]:
    """An object without status, server-set fields and binding annotations."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _SERVER_FIELDS}
    annotations = meta.get("annotations") or {}
    meta["annotations"] = {k: v for k, v in annotations.items() if k not in _BINDING_ANNOTATIONS}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": meta}


def migrated_volume(pv: dict[str, Any], target: VolumeId, zone: str) -> dict[str, Any]:
    """The PersistentVolume of the disk on its new host."""
    created = recreatable(json.loads(json.dumps(pv)))
    spec = created["spec"]
    spec["csi"]["volumeHandle"] = str(target)
    claim = spec.get("claimRef") or {}
    spec["claimRef"] = {k: v for k, v in claim.items() if k not in ("uid", "resourceVersion")}
    segments = {REGION: target.region, ZONE: zone}
    rows = [{"key": k, "operator": "In", "values": [v]} for k, v in segments.items()]
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": rows}]}}
    return created


class Migration:
    """Migrates the volume of one claim."""

    def __init__(self, driver: Driver, kube: Kube, progress: Progress = lambda _: None) -> None:
        self._driver, self._kube, self._progress = driver, kube, progress

    async def run(self, namespace: str, name: str, host: str) -> str:
        """Migrate the volume of a claim to a host; returns the new volume id."""
        key = f"migrate:{namespace}/{name}"
        entry = await self._driver.journal.get(key)
        if not entry:
            entry = await self._prepare(namespace, name, host)
            await self._driver.journal.put(key, entry)
        source = get_volume(entry["source"])
        region = await self._driver.own(source)
        await self._driver.ownership.refuse_static(region, source)
        if "target" not in entry:
            target = await self._copy(region, source, entry["host"])
            entry = {**entry, "target": str(target)}
            await self._driver.journal.put(key, entry)
        await self._replace_objects(entry, namespace, name)
        if entry["target"] != str(source):
            self._progress(f"deleting {source}")
            await self._delete_source(region, source)
        await self._driver.journal.delete(key)
        return entry["target"]

    async def _delete_source(self, region: Region, source: VolumeId) -> None:
        """Delete the old disk; a disk that was migrated with its helper VM no longer exists."""
        if self._driver.helper_vms.is_owner(source):
            return
        if not await native_snapshots.delete_volume(self._driver, region, source):
            await self._driver.disks.delete(region, source)

    async def _prepare(self, namespace: str, name: str, host: str) -> dict[str, str]:
        """Check that the volume can be migrated and build the journal entry."""
        claim = await self._kube.get(CLAIMS, name, namespace)
        bound = claim["spec"].get("volumeName")
        if not bound:
            raise FailedPrecondition(f"claim {namespace}/{name} is not bound to a volume")
        pv = await self._kube.get(VOLUMES, bound)
        source = get_volume(pv["spec"]["csi"]["volumeHandle"])
        region = await self._driver.own(source)
        if not source.host:
            raise FailedPrecondition(
                f"{source} is on shared storage, which every host of its region has"
            )
        if source.host == host:
            raise FailedPrecondition(f"{source} is already on {host}")
        if region.inventory.storage(host, source.storage) is None:
            raise Missing(f"host {host} does not have storage {source.storage}")
        await self._driver.attachments.sync(region)
        attachment = self._driver.attachments.find(source)
        if attachment is not None:
            raise FailedPrecondition(
                f"{source} is attached to guest {attachment.vmid}: stop the pods that use it"
            )
        entry = {"source": str(source), "host": host, "was": pv["metadata"]["uid"]}
        return {**entry, "pv": json.dumps(pv), "pvc": json.dumps(recreatable(claim))}

    async def _copy(self, region: Region, source: VolumeId, host: str) -> VolumeId:
        """Create a disk with the same content on the host."""
        if self._driver.helper_vms.is_owner(source):
            return await self._migrate_helper_vm(region, source, host)
        try:
            return await self._copy_as_root(region, source, replace(source, host=host))
        except RootRequired:
            self._progress(f"cloning {source} and migrating the clone to {host}")
        features = features_of(storage_type(region, source), source.disk)
        request = CloneRequest(
            source.name,
            self._driver.helper_vms.mark(region.name, f"moved/{source}/{host}"),
            await self._driver.ownership.key(),
            source,
            features,
            linked=features.independent_clones,
            source_id=str(source),
            host=host,
        )
        return (await clones.create(self._driver, region, request)).volume_id(region)

    async def _migrate_helper_vm(self, region: Region, source: VolumeId, host: str) -> VolumeId:
        vm = await self._driver.helper_vms.find_for(region, source)
        if vm is None:
            raise Missing(f"the helper VM of {source} does not exist")
        if await region.reader.snapshots.list(vm.host, vm.vmid):
            raise FailedPrecondition(
                f"{source} has snapshots, which cannot be migrated: delete them first"
            )
        self._progress(f"migrating guest {vm.vmid} with {source} to {host}")
        return (await clones.migrate(region, vm, host)).volume_id(region)

    async def _copy_as_root(self, region: Region, source: VolumeId, target: VolumeId) -> VolumeId:
        if not await self._driver.copies.is_incomplete(target):
            try:
                return (await self._driver.disks.read(region, target)).id
            except Missing:
                self._progress(f"copying {source} to {target.host}")
        return (await self._driver.copies.run(DiskCopy(source, target))).id

    async def _replace_objects(self, entry: dict[str, str], namespace: str, name: str) -> None:
        """Replace PersistentVolume and claim; the reclaim policy becomes Retain before that."""
        old_pv, claim = json.loads(entry["pv"]), json.loads(entry["pvc"])
        target = get_volume(entry["target"])
        zone = self._driver.regions[target.region].zone_of(target.host)
        pv = migrated_volume(old_pv, target, zone)
        current = await self._kube.find(VOLUMES, pv["metadata"]["name"])
        if current is not None and current["metadata"]["uid"] == entry["was"]:
            retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
            await self._kube.merge(VOLUMES, pv["metadata"]["name"], retain)
            await self._delete_object(CLAIMS, name, namespace)
            await self._delete_object(VOLUMES, pv["metadata"]["name"], "")
        for body, resource in ((pv, VOLUMES), (claim, CLAIMS)):
            try:
                await self._kube.create(body, resource)
            except AlreadyExists:
                self._progress(f"{resource.kind} {body['metadata']['name']} already exists")

    async def _delete_object(self, resource: Any, name: str, namespace: str) -> None:
        """Delete an object and remove its finalizers, which only protect a volume in use."""
        try:
            await self._kube.delete(resource, name, namespace)
            await self._kube.merge(resource, name, {"metadata": {"finalizers": None}}, namespace)
        except NotFound:
            return
