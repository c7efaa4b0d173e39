"""
The StorageClasses of a tenant: one for each Proxmox storage that its nodes can reach.

In: nodes with their region. Out: the CSIDriver and classes ``proxmox-<storage>``, made when the
first node of a region turns up and, for a storage that comes later, within a minute; the first that
is shared becomes the default. The surprise: a class that is there is never changed, and one that
was deleted is not made again while this process lives, since a person may have made it theirs.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.csi.topology import REGION
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.controllermanager.storage.labels import CLASSES, CSI_DRIVERS
from moxwell.errors import Conflict
from moxwell.kube.client import Kube
from moxwell.pve.model import StorageSeen
from moxwell.pve.regions import Regions
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
DEFAULT = "storageclass.kubernetes.io/is-default-class"
LOOK_SECONDS = 5.0
AGAIN_SECONDS = 60.0


class Classes:
    """Looks at each node again and again: what its region offers may become more."""

    kind = NODES
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, kube: Kube, regions: Regions, driver: str) -> None:
        self._kube, self._regions, self._driver = kube, regions, driver
        self._done: set[str] = set()  # storages that were looked after; "" the driver

    async def reconcile(self, node: Json) -> Outcome[Json]:
        name = (node["metadata"].get("labels") or {}).get(REGION, "")
        region = self._regions.find(name) if name else None
        if region is None:
            return Outcome(None)
        if not region.inventory.synced:
            return Outcome(None, again=LOOK_SECONDS)
        if "" not in self._done:
            await self._make(driver_object(self._driver), CSI_DRIVERS)
            self._done.add("")
        storages = {s.name: s for s in region.inventory.storages.values() if holds_disks(s)}
        new = [s for s in storages.values() if s.name not in self._done]
        for storage in sorted(new, key=lambda s: (not s.shared, s.name)):
            first = storage.shared and not await self._has_default()
            await self._make(class_object(storage, self._driver, default=first), CLASSES)
            self._done.add(storage.name)
        return Outcome(None, again=AGAIN_SECONDS)

    async def _has_default(self) -> bool:
        rows = (await self._kube.list(CLASSES)).items
        return any((r["metadata"].get("annotations") or {}).get(DEFAULT) == "true" for r in rows)

    async def _make(self, body: Json, at: Any) -> None:
        if await self._kube.find(at, body["metadata"]["name"]) is None:
            try:
                await self._kube.create(body, at)
            except Conflict:
                return


def holds_disks(storage: StorageSeen) -> bool:
    return "images" in storage.content


def driver_object(name: str) -> Json:
    """The CSIDriver: attach, free space per zone, file ownership by group."""
    spec = {
        "attachRequired": True,
        "podInfoOnMount": True,
        "storageCapacity": True,
        "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent"],
    }
    head = {"apiVersion": CSI_DRIVERS.api_version, "kind": CSI_DRIVERS.kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def class_object(storage: StorageSeen, driver: str, *, default: bool) -> Json:
    """A class of disks on one storage."""
    meta: Json = {"name": f"proxmox-{storage.name}"}
    if default:
        meta["annotations"] = {DEFAULT: "true"}
    return {
        "apiVersion": CLASSES.api_version,
        "kind": CLASSES.kind,
        "metadata": meta,
        "provisioner": driver,
        "parameters": {"storage": storage.name, "csi.storage.k8s.io/fstype": "ext4"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
