"""
Tenants from the inside against machines and storages: nodes and volumes. Pure.

A PersistentVolume whose disk is gone is lost data and said first; a disk without a
PersistentVolume costs room only, and may be one whose claim was deleted with ``Retain``.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from moxwell.api.core.storage import PersistentVolume
from moxwell.csi import ids
from moxwell.pve.ownership import SHELL_TAG
from moxwell.runtime.key import Key
from moxwell.verify.findings import Finding, remark, unknown, wrong
from moxwell.verify.model import InsideWorld, RegionWorld, Stored, World

DRIVERS = ("csi.moxwell.dev", "csi.proxmox.sinextra.dev")
_VOLUME = re.compile(r"(?:^|/)(?:vm|pm)-.*pvc-")


def reached(world: World) -> Iterator[Finding]:
    """Tenants and regions that did not answer: nothing is promised of them."""
    for region in world.regions.values():
        if not region.answers:
            said = f"region {region.name} does not answer: {region.error}"
            do = "check its address, the network and the token; then verify again"
            yield unknown("RegionSilent", region.name, said, do)
        for storage in region.unlisted:
            said = f"storage {storage} in {region.name} could not be listed"
            do = "check that the storage is online and the token may audit it"
            yield unknown("StorageSilent", f"{region.name}/{storage}", said, do)
    for key, tenant in world.inside.items():
        if tenant.error:
            said = f"cluster {key} does not answer: {tenant.error}"
            do = f"moxwell explain cluster {key.name} --namespace {key.namespace}"
            yield unknown("ClusterSilent", f"cluster {key}", said, do)


def nodes(world: World) -> Iterator[Finding]:
    """Every machine that has joined is a node of its cluster, and every node is a machine."""
    for key, tenant in world.inside.items():
        if tenant.error:
            continue
        mine = [
            m
            for m in world.owners
            if (m.namespace, m.spec.cluster_name) == (key.namespace, key.name)
        ]
        there = {n.name: n for n in tenant.nodes}
        ids_wanted = {m.spec.provider_id: m for m in mine if m.spec.provider_id}
        for machine in mine:
            ref, about = machine.status.node_ref, f"machine {machine.namespace}/{machine.name}"
            if machine.deleting or ref is None:
                continue
            node = there.get(ref.name)
            if node is None:
                said = f"{about} joined {key} as {ref.name}, and there is no such node"
                yield wrong(
                    "NodeMissing", about, said, "delete the Machine: its group makes another"
                )
            elif node.provider_id and node.provider_id != machine.spec.provider_id:
                own = machine.spec.provider_id
                said = f"node {ref.name} of {key} is {node.provider_id}, its machine {own}"
                yield wrong(
                    "NodeMistaken", about, said, "delete the Node; the kubelet makes it anew"
                )
            elif not node.ready:
                said = f"node {ref.name} of {key} is not ready"
                yield remark(
                    "NodeNotReady",
                    f"node {key}/{ref.name}",
                    said,
                    f"kubectl describe node {ref.name}",
                )
        yield from _strangers(key, tenant, set(ids_wanted))


def _strangers(key: Key, tenant: InsideWorld, wanted: set[str]) -> Iterator[Finding]:
    holders: dict[str, list[str]] = defaultdict(list)
    for node in tenant.nodes:
        if node.provider_id:
            holders[node.provider_id].append(node.name)
        if node.provider_id.startswith("proxmox://") and node.provider_id not in wanted:
            said = f"node {node.name} of {key} is {node.provider_id}, which no machine has"
            do = f"kubectl delete node {node.name}, unless it joined by hand"
            yield wrong("NodeWithoutMachine", f"node {key}/{node.name}", said, do)
    for provider, names in sorted(holders.items()):
        if len(names) > 1:
            said = f"nodes {', '.join(names)} of {key} are all {provider}"
            do = "delete the ones that are not Ready"
            yield wrong("NodeDoubled", f"cluster {key}", said, do)


def volumes(world: World) -> Iterator[Finding]:
    """Every PersistentVolume of ours has its disk, and every such disk its PersistentVolume."""
    named: set[tuple[str, str]] = set()
    for key, tenant in world.inside.items():
        for volume in tenant.volumes:
            wanted = _disk_of(volume)
            region = world.regions.get(wanted.region) if wanted else None
            if wanted is None or region is None:
                continue
            named.add((region.name, wanted.volid))
            if region.answers and wanted.storage not in _blind(region) and not _has(region, wanted):
                yield wrong(
                    "VolumeMissing",
                    f"volume {key}/{volume.name}",
                    f"PersistentVolume {volume.name} of {key} is {wanted}, and that disk is gone",
                    "restore the disk under that name from a backup, or delete the volume",
                )
    if any(t.error for t in world.inside.values()):
        return  # whose a disk is cannot be told while somebody does not answer
    for region in world.regions.values():
        carried = _carried(region)
        for image in region.images:
            known = (region.name, image.volid) in named or image.volid in carried
            if _VOLUME.search(image.name) and not known:
                yield _left(region, image)


def _carried(region: RegionWorld) -> set[str]:
    """Disks that a carrier names: kept for their snapshots, or a volume's that was cloned."""
    return {
        text.partition(",")[0]
        for config in region.configs.values()
        if SHELL_TAG in config.tags
        for text in config.disks.values()
    }


def _left(region: RegionWorld, image: Stored) -> Finding:
    snapshot = ids.source_hash(image.name) is not None
    what = "snapshot" if snapshot else "volume"
    return remark(
        "VolumeLeft",
        f"{region.name}/{image.volid}",
        f"{what} {image.volid} on {image.host} of {region.name} belongs to no PersistentVolume "
        "of the clusters seen here",
        f"another cluster's, or kept by reclaimPolicy Retain; else pvesm free {image.volid}",
    )


def _disk_of(volume: PersistentVolume) -> ids.VolumeId | None:
    source = volume.spec.csi
    if source is None or source.driver not in DRIVERS:
        return None
    return ids.find_volume(source.volume_handle)


def _blind(region: RegionWorld) -> set[str]:
    return {name.partition("/")[2] or name for name in region.unlisted}


def _has(region: RegionWorld, wanted: ids.VolumeId) -> bool:
    return any(
        image.volid == wanted.volid and (image.shared or wanted.host in ("", image.host))
        for image in region.images
    )
