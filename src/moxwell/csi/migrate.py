"""
Moving a local volume to another host: copy the disk, then tell Kubernetes where it is.

In: a claim and a host. Out: the same claim bound to a volume on that host. A PersistentVolume
cannot be changed, so it and its claim are made anew; before anything is deleted both are in the
book, and a repeated call goes on where the last one stopped. The surprise: the old disk goes last,
after the new volume was seen in the API; until then there are two copies and no loss.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moxwell.csi.claims import CLAIMS, VOLUMES
from moxwell.csi.copies import Copy
from moxwell.csi.driver import Driver
from moxwell.csi.ids import VolumeId, get_volume
from moxwell.csi.refusals import NotNow
from moxwell.csi.topology import REGION, ZONE
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound

Say = Callable[[str], None]
_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp",
        "deletionGracePeriodSeconds", "generation", "finalizers", "ownerReferences")  # fmt: skip


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """An object as it can be created again."""
    meta = {k: v for k, v in obj["metadata"].items() if k not in _OWN}
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
        source, target = get_volume(entry["source"]), get_volume(entry["target"])
        await self._copy(source, target)
        await self._replace(entry, namespace, name)
        self._say(f"removing {source}")
        await self._driver.stock.remove(await self._driver.region(source.region), source)
        await self._driver.book.drop(key)
        return str(target)

    async def _prepare(self, namespace: str, name: str, host: str) -> dict[str, str]:
        claim = await self._kube.get(CLAIMS, name, namespace)
        pv = await self._kube.get(VOLUMES, claim["spec"].get("volumeName", ""))
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
        target = replace(source, host=host)
        moved = moved_volume(pv, target, region.zone_of(host))
        words = {"source": str(source), "target": str(target), "was": pv["metadata"]["uid"]}
        return {**words, "pv": json.dumps(moved), "pvc": json.dumps(bare(claim))}

    async def _copy(self, source: VolumeId, target: VolumeId) -> None:
        region = await self._driver.region(target.region)
        if not await self._driver.copies.is_open(target):
            try:
                await self._driver.stock.look(region, target)
                return
            except Missing:
                self._say(f"copying {source} to {target.host}")
        await self._driver.copies.make(Copy(source, target))

    async def _replace(self, entry: dict[str, str], namespace: str, name: str) -> None:
        """Old objects away, new ones in; reclaiming is off before anything is deleted."""
        pv, claim = json.loads(entry["pv"]), json.loads(entry["pvc"])
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
