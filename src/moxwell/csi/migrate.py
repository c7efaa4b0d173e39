"""
Moving a local volume to another host: copy the disk, then tell Kubernetes where it is.

In: a claim and a host. Out: the same claim bound to a volume on that host. A PersistentVolume
cannot be changed, so it and its claim are made anew; before anything is deleted both are in the
book, and a repeated call goes on where the last one stopped. Root copies the disk under its own
name; a token has Proxmox clone it and migrate the clone's carrier. The surprise: the old disk goes
last, after the new volume was seen in the API; until then there are two copies and no loss.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moxwell.csi import clones, native_snapshots
from moxwell.csi.clones import Cloning
from moxwell.csi.disks import type_of
from moxwell.csi.driver import Driver
from moxwell.csi.errors import NotNow
from moxwell.csi.full_copies import Copy, NeedsRoot
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.csi.storage_features import means_of
from moxwell.csi.topology import REGION, ZONE
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.pve.regions import Region

Say = Callable[[str], None]
_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp",
        "deletionGracePeriodSeconds", "generation", "finalizers", "ownerReferences")  # fmt: skip
_BOUND = (
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
)


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """An object as it can be created again; that it was bound is not true of the new one yet."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _OWN}
    marks = meta.get("annotations") or {}
    meta["annotations"] = {k: v for k, v in marks.items() if k not in _BOUND}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": meta}


def moved_volume(pv: dict[str, Any], target: VolumeId, zone: str) -> dict[str, Any]:
    """The PersistentVolume of the copy."""
    made = bare(json.loads(json.dumps(pv)))
    spec = made["spec"]
    spec["csi"]["volumeHandle"] = str(target)
    claim = spec.get("claimRef") or {}
    spec["claimRef"] = {k: v for k, v in claim.items() if k not in ("uid", "resourceVersion")}
    wanted = {REGION: target.region, ZONE: zone}
    rows = [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()]
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": rows}]}}
    return made


class Migration:
    """Moves one claim's volume."""

    def __init__(self, driver: Driver, kube: Kube, say: Say = lambda _: None) -> None:
        self._driver, self._kube, self._say = driver, kube, say

    async def run(self, namespace: str, name: str, host: str) -> str:
        """The new volume id."""
        key = f"migrate:{namespace}/{name}"
        entry = await self._driver.book.get(key)
        if not entry:
            entry = await self._prepare(namespace, name, host)
            await self._driver.book.put(key, entry)
        source = get_volume(entry["source"])
        region = await self._driver.region(source.region)
        if "target" not in entry:
            target = await self._move(region, source, entry["host"])
            entry = {**entry, "target": str(target)}
            await self._driver.book.put(key, entry)
        await self._replace(entry, namespace, name)
        if entry["target"] != str(source):
            self._say(f"removing {source}")
            await self._remove(region, source)
        await self._driver.book.drop(key)
        return entry["target"]

    async def _remove(self, region: Region, source: VolumeId) -> None:
        """The old disk; one that went along with its carrier is gone already."""
        if self._driver.carriers.owns(source):
            return
        if not await native_snapshots.end_volume(self._driver, region, source):
            await self._driver.stock.remove(region, source)

    async def _prepare(self, namespace: str, name: str, host: str) -> dict[str, str]:
        claim = await self._kube.get(CLAIMS, name, namespace)
        bound = claim["spec"].get("volumeName")
        if not bound:
            raise NotNow(f"claim {namespace}/{name} is not bound: it has no disk yet")
        pv = await self._kube.get(VOLUMES, bound)
        source = get_volume(pv["spec"]["csi"]["volumeHandle"])
        region = await self._driver.region(source.region)
        if not source.host:
            raise NotNow(f"{source} is on shared storage: every host of its region sees it")
        if source.host == host:
            raise NotNow(f"{source} is on {host} already")
        if region.inventory.storage(host, source.storage) is None:
            raise Missing(f"host {host} has no storage {source.storage}")
        await self._driver.holders.sync(region)
        held = self._driver.holders.find(source)
        if held is not None:
            raise NotNow(f"{source} is attached to guest {held.vmid}: stop the pods that use it")
        words = {"source": str(source), "host": host, "was": pv["metadata"]["uid"]}
        return {**words, "pv": json.dumps(pv), "pvc": json.dumps(bare(claim))}

    async def _move(self, region: Region, source: VolumeId, host: str) -> VolumeId:
        """A disk with the same content on the host."""
        if self._driver.carriers.owns(source):
            return await self._carry(region, source, host)
        try:
            return await self._copy(region, source, replace(source, host=host))
        except NeedsRoot:
            self._say(f"cloning {source}, then moving the clone to {host}")
        means = means_of(type_of(region, source), source.disk)
        mark = self._driver.carriers.mark(region.name, f"moved/{source}/{host}")
        cloning = Cloning(
            source.name, mark, source, means, linked=means.free, told=str(source), host=host
        )
        return (await clones.make(self._driver, region, cloning)).disk_id(region)

    async def _carry(self, region: Region, source: VolumeId, host: str) -> VolumeId:
        """A volume with a carrier of its own moves with it."""
        carrier = await self._driver.carriers.of(region, source)
        if carrier is None:
            raise Missing(f"the guest that carries {source} is not there")
        if await region.pve.snapshots.list(carrier.host, carrier.vmid):
            raise NotNow(f"{source} has snapshots, which cannot move: delete them first")
        self._say(f"moving guest {carrier.vmid} with {source} to {host}")
        return (await clones.bring(region, carrier, host)).disk_id(region)

    async def _copy(self, region: Region, source: VolumeId, target: VolumeId) -> VolumeId:
        if not await self._driver.copies.is_open(target):
            try:
                return (await self._driver.stock.look(region, target)).id
            except Missing:
                self._say(f"copying {source} to {target.host}")
        return (await self._driver.copies.make(Copy(source, target))).id

    async def _replace(self, entry: dict[str, str], namespace: str, name: str) -> None:
        """Old objects away, new ones in; reclaiming is off before anything is deleted."""
        was, claim = json.loads(entry["pv"]), json.loads(entry["pvc"])
        target = get_volume(entry["target"])
        pv = moved_volume(was, target, self._driver.regions[target.region].zone_of(target.host))
        old = await self._kube.find(VOLUMES, pv["metadata"]["name"])
        if old is not None and old["metadata"]["uid"] == entry["was"]:
            keep = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
            await self._kube.merge(VOLUMES, pv["metadata"]["name"], keep)
            await self._away(CLAIMS, name, namespace)
            await self._away(VOLUMES, pv["metadata"]["name"], "")
        for body, at in ((pv, VOLUMES), (claim, CLAIMS)):
            try:
                await self._kube.create(body, at)
            except AlreadyExists:
                self._say(f"{at.kind} {body['metadata']['name']} is there already")

    async def _away(self, at: Any, name: str, namespace: str) -> None:
        """Delete, with the finalizers that only guard against what we do on purpose."""
        try:
            await self._kube.delete(at, name, namespace)
            await self._kube.merge(at, name, {"metadata": {"finalizers": None}}, namespace)
        except NotFound:
            return
