"""
Volumes and addresses of tenants, as the dashboard shows them: from caches, joined by name.

In flow what a tenant's loops have seen (PersistentVolumes, claims, attachments) and the addresses
given on the management side; out flow pictures. A tenant that is asleep has no caches and shows no
volumes. A claim without a volume is shown, too: it is what somebody waits for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from moxwell.api import quantity
from moxwell.api.core.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from moxwell.api.ipam import IPAddress
from moxwell.csi import ids
from moxwell.pve.regions import Region
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.web import model


def volumes_of(key: Key, caches: Caches | None) -> tuple[model.Volume, ...]:
    """Every volume of a tenant, and every claim that has none yet."""
    if caches is None:
        return ()
    holders = {a.spec.source.persistent_volume_name: a for a in caches.of(VolumeAttachment).list()}
    volumes = caches.of(PersistentVolume).list()
    rows = [_volume(key, v, holders.get(v.name)) for v in volumes]
    rows += _wishes(key, caches.of(PersistentVolumeClaim).list())
    return tuple(rows)


def _volume(key: Key, volume: PersistentVolume, held: VolumeAttachment | None) -> model.Volume:
    source, claim = volume.spec.csi, volume.spec.claim_ref
    disk = ids.find_volume(source.volume_handle) if source else None
    state, says = _state(volume, held)
    return model.Volume(
        name=volume.name,
        cluster=f"{key.namespace}/{key.name}",
        claim=f"{claim.namespace}/{claim.name}" if claim else "",
        storage=_where(disk),
        size_mib=_size(volume.spec.capacity.get("storage", 0)),
        guest=held.spec.node_name if held else "",
        disk=disk.disk if disk else "",
        says=says,
        state=state,
        since=(held or volume).metadata.creation_timestamp,
    )


def _where(disk: ids.VolumeId | None) -> str:
    if disk is None:
        return ""
    return "/".join(part for part in (disk.region, disk.host, disk.storage) if part)


def _state(volume: PersistentVolume, held: VolumeAttachment | None) -> tuple[model.State, str]:
    if volume.deleting:
        return "leaving", "Leaving: its disk is being removed"
    if held is not None and held.deleting:
        return "attaching", f"Detaching from {held.spec.node_name}"
    if held is not None and not held.status.attached:
        return "attaching", f"Attaching to {held.spec.node_name}"
    if held is not None:
        return "ready", f"Attached to {held.spec.node_name}"
    if volume.status.phase == "Released":
        return "ready", "Kept: its claim is gone, its reclaim policy is Retain"
    if volume.status.phase == "Failed":
        return "trouble", "Its disk could not be removed"
    return "ready", "Not attached: no pod uses it"


def _wishes(key: Key, claims: Iterable[PersistentVolumeClaim]) -> Iterator[model.Volume]:
    for claim in claims:
        if claim.spec.volume_name or claim.deleting:
            continue
        yield model.Volume(
            name=claim.name,
            cluster=f"{key.namespace}/{key.name}",
            claim=f"{claim.namespace}/{claim.name}",
            storage=claim.spec.storage_class_name or "",
            size_mib=_size(claim.spec.resources.requests.get("storage", 0)),
            says="Waits for its volume, which is made when a pod uses the claim",
            state="waiting",
            since=claim.metadata.creation_timestamp,
        )


def _size(text: Any) -> int:
    return quantity.mebibytes(text) if text else 0


def storages_of(region: Region) -> Iterator[model.Storage]:
    """Storages of a region that take disks, each once."""
    seen: set[str] = set()
    for (host, name), store in sorted(region.inventory.storages.items()):
        if "images" not in store.content or (store.shared and name in seen):
            continue
        seen.add(name)
        yield model.Storage(
            region=region.name,
            name=name,
            host="" if store.shared else host,
            total_mib=store.total_bytes >> 20,
            used_mib=store.used_bytes >> 20,
        )


def addresses_of(machines: Iterable[str], given: Iterable[IPAddress]) -> tuple[str, str]:
    """How many addresses the machines of a cluster have, and out of which pools."""
    names = tuple(f"{name}-net" for name in machines)
    mine = [a for a in given if a.spec.claim_ref.name.startswith(names)] if names else []
    pools = Counter(a.spec.pool_ref.name for a in mine)
    said = ", ".join(f"{count} of {name}" for name, count in sorted(pools.items()))
    return (f"{len(mine)} given" if mine else ""), said
