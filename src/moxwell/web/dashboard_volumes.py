"""
Volumes, storages and addresses of tenants for the dashboard, joined from caches. Pure.

A tenant that does not run has no caches and shows no volumes. A claim without a volume is shown
too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from moxwell.api import quantity
from moxwell.api.core.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from moxwell.api.ipam import IPAddress
from moxwell.csi import ids
from moxwell.pve.model import ObservedStorage
from moxwell.pve.regions import Region
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.web import model


def volumes_of(key: Key, caches: Caches | None) -> tuple[model.VolumeView, ...]:
    """Every volume of a tenant, and every claim that has none yet."""
    if caches is None:
        return ()
    attachments = {
        a.spec.source.persistent_volume_name: a for a in caches.of(VolumeAttachment).list()
    }
    volumes = caches.of(PersistentVolume).list()
    rows = [_volume(key, v, attachments.get(v.name)) for v in volumes]
    rows += _unbound_claims(key, caches.of(PersistentVolumeClaim).list())
    return tuple(rows)


def _volume(
    key: Key, volume: PersistentVolume, attachment: VolumeAttachment | None
) -> model.VolumeView:
    source, claim = volume.spec.csi, volume.spec.claim_ref
    disk = ids.find_volume(source.volume_handle) if source else None
    state, message = _state(volume, attachment)
    return model.VolumeView(
        name=volume.name,
        cluster=f"{key.namespace}/{key.name}",
        claim=f"{claim.namespace}/{claim.name}" if claim else "",
        storage=_storage_of(disk),
        size_mib=_size(volume.spec.capacity.get("storage", 0)),
        guest=attachment.spec.node_name if attachment else "",
        disk=disk.disk if disk else "",
        message=message,
        state=state,
        since=(attachment or volume).metadata.creation_timestamp,
    )


def _storage_of(disk: ids.VolumeId | None) -> str:
    if disk is None:
        return ""
    return "/".join(part for part in (disk.region, disk.host, disk.storage) if part)


def _state(
    volume: PersistentVolume, attachment: VolumeAttachment | None
) -> tuple[model.State, str]:
    if volume.deleting:
        return "deleting", "Deleting its disk"
    if attachment is not None and attachment.deleting:
        return "attaching", f"Detaching from {attachment.spec.node_name}"
    if attachment is not None and not attachment.status.attached:
        return "attaching", f"Attaching to {attachment.spec.node_name}"
    if attachment is not None:
        return "ready", f"Attached to {attachment.spec.node_name}"
    if volume.status.phase == "Released":
        return "ready", "Released and retained by its reclaim policy"
    if volume.status.phase == "Failed":
        return "trouble", "Its disk could not be deleted"
    return "ready", "Not attached: no pod uses it"


PROVISIONER = "volume.kubernetes.io/storage-provisioner"  # annotation: it was asked for a volume
_CREATING = "Waiting for its volume: the events of the claim say why it does not exist yet"
_UNUSED = "Waiting for its volume, which is created when a pod uses the claim"


def _unbound_claims(
    key: Key, claims: Iterable[PersistentVolumeClaim]
) -> Iterator[model.VolumeView]:
    for claim in claims:
        if claim.spec.volume_name or claim.deleting:
            continue
        yield model.VolumeView(
            name=claim.name,
            cluster=f"{key.namespace}/{key.name}",
            claim=f"{claim.namespace}/{claim.name}",
            storage=claim.spec.storage_class_name or "",
            size_mib=_size(claim.spec.resources.requests.get("storage", 0)),
            message=_CREATING if PROVISIONER in claim.metadata.annotations else _UNUSED,
            state="waiting",
            since=claim.metadata.creation_timestamp,
        )


def _size(text: Any) -> int:
    return quantity.mebibytes(text) if text else 0


def storages_of(region: Region) -> Iterator[model.StorageView]:
    """All storages of a region, shared ones once."""
    found: dict[tuple[str, str], list[ObservedStorage]] = {}
    for (host, name), store in sorted(region.inventory.storages.items()):
        found.setdefault(("" if store.shared else host, name), []).append(store)
    for (host, name), seen in found.items():
        active = [store for store in seen if store.available]
        sized = max(active or seen, key=lambda store: store.total_bytes)
        yield model.StorageView(
            region=region.name,
            name=name,
            host=host,
            type=sized.type,
            content=tuple(sorted(sized.content)),
            hosts=len(seen),
            active_hosts=len(active),
            total_mib=sized.total_bytes >> 20,
            used_mib=sized.used_bytes >> 20,
        )


def addresses_of(machines: Iterable[str], allocated: Iterable[IPAddress]) -> tuple[str, str]:
    """How many addresses the machines of a cluster have, and from which pools."""
    names = tuple(f"{name}-net" for name in machines)
    mine = [a for a in allocated if a.spec.claim_ref.name.startswith(names)] if names else []
    pools = Counter(a.spec.pool_ref.name for a in mine)
    text = ", ".join(f"{count} of {name}" for name, count in sorted(pools.items()))
    return (f"{len(mine)} allocated" if mine else ""), text
