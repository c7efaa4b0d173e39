"""The CSIDriver and the StorageClasses that a tenant cluster lacks. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SYNC_SECONDS = 5.0  # until the inventory of a region is looked at again
POLL_SECONDS = 60.0  # between looks for new storages
GROUP = "storage.k8s.io"
CLASSES = Resource(GROUP, "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_DRIVERS = Resource(GROUP, "v1", "csidrivers", "CSIDriver", namespaced=False)


class StorageClassReason(StrEnum):
    """Reasons of waits."""

    INVENTORY_NOT_SYNCED = "InventoryNotSynced"


@dataclass(frozen=True, slots=True)
class VolumeStorage:
    """A Proxmox storage that can hold disks of guests."""

    name: str
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStorageClasses:
    """
    What the region of a node offers and what its cluster has.

    ``storages`` are only those that were not handled before. ``synced`` is None for a node
    without a known region.
    """

    synced: bool | None = None
    storages: tuple[VolumeStorage, ...] = ()
    has_driver: bool = True
    has_default: bool = False


StorageClassMove = Writes | Wait | Done


def plan_classes(seen: ObservedStorageClasses, driver: str) -> StorageClassMove:
    """Create what is missing; the first shared storage becomes the default class."""
    if seen.synced is None:
        return Done()
    if not seen.synced:
        return Wait(
            StorageClassReason.INVENTORY_NOT_SYNCED, "the region is not read yet", SYNC_SECONDS
        )
    writes = [] if seen.has_driver else [Create(csi_driver(driver), CSI_DRIVERS)]
    has_default = seen.has_default
    for storage in sorted(seen.storages, key=lambda s: (not s.shared, s.name)):
        default = storage.shared and not has_default
        has_default = has_default or default
        writes.append(Create(storage_class(storage, driver, default=default), CLASSES))
    if not writes:
        return Done(requeue_after=POLL_SECONDS)
    return Writes(tuple(writes), requeue_after=POLL_SECONDS)


def csi_driver(name: str) -> Json:
    """The CSIDriver: it attaches volumes, reports capacity and lets the kubelet set fsGroup."""
    spec = {
        "attachRequired": True,
        "podInfoOnMount": True,
        "storageCapacity": True,
        "fsGroupPolicy": "File",
        "volumeLifecycleModes": ["Persistent"],
    }
    head = {"apiVersion": CSI_DRIVERS.api_version, "kind": CSI_DRIVERS.kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def storage_class(storage: VolumeStorage, driver: str, *, default: bool) -> Json:
    """The class ``proxmox-STORAGE``."""
    meta: Json = {"name": f"proxmox-{storage.name}"}
    if default:
        meta["annotations"] = {DEFAULT_CLASS: "true"}
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
