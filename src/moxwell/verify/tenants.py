"""
Compares nodes with machines and PersistentVolumes with disks. Pure.

A PersistentVolume without its disk is lost data. A disk without a PersistentVolume only uses space
and may have been retained by its reclaim policy.
"""

import re
from collections import defaultdict
from collections.abc import Iterator

from moxwell.api.capi.core import Machine
from moxwell.api.core.storage import PersistentVolume
from moxwell.csi import ids
from moxwell.pve.ownership import is_helper_vm
from moxwell.runtime.key import Key
from moxwell.verify.findings import Finding, remark, unknown, wrong
from moxwell.verify.model import Observation, ObservedRegion, ObservedTenant, StoredVolume

DRIVERS = ("csi.moxwell.dev", "csi.proxmox.sinextra.dev")
_VOLUME = re.compile(r"(?:^|/)(?:vm|pm)-.*pvc-")


def reachable(observation: Observation) -> Iterator[Finding]:
    """Regions, storages and tenant clusters that did not answer."""
    for region in observation.regions.values():
        if not region.answers:
            message = f"region {region.name} does not answer: {region.error}"
            do = "check its address, the network and the token; then verify again"
            yield unknown("RegionUnreachable", region.name, message, do)
        for storage in region.unlisted:
            message = f"storage {storage} in {region.name} could not be listed"
            do = "check that the storage is online and the token may audit it"
            yield unknown("StorageUnreachable", f"{region.name}/{storage}", message, do)
    for key, tenant in observation.tenant_clusters.items():
        if tenant.error:
            message = f"cluster {key} does not answer: {tenant.error}"
            do = f"moxwell explain cluster {key.name} --namespace {key.namespace}"
            yield unknown("ClusterUnreachable", f"cluster {key}", message, do)


def nodes(observation: Observation) -> Iterator[Finding]:
    """Every joined machine has its node, and every node its machine."""
    for key, tenant in observation.tenant_clusters.items():
        if tenant.error:
            continue
        own = [
            m
            for m in observation.capi_machines
            if (m.namespace, m.spec.cluster_name) == (key.namespace, key.name)
        ]
        for machine in own:
            yield from _node_of(key, tenant, machine)
        provider_ids = {m.spec.provider_id for m in own if m.spec.provider_id}
        yield from _without_machine(key, tenant, provider_ids)


def _node_of(key: Key, tenant: ObservedTenant, machine: Machine) -> Iterator[Finding]:
    """The node of a machine exists, has its provider ID and is ready."""
    ref, about = machine.status.node_ref, f"machine {machine.namespace}/{machine.name}"
    if machine.deleting or ref is None:
        return
    node = next((n for n in tenant.nodes if n.name == ref.name), None)
    expected = machine.spec.provider_id
    if node is None:
        message = f"{about} joined {key} as {ref.name}, but that node does not exist"
        do = "delete the Machine: its MachineSet replaces it"
        yield wrong("NodeMissing", about, message, do)
    elif node.provider_id and node.provider_id != expected:
        message = f"node {ref.name} of {key} has the provider ID {node.provider_id}, not {expected}"
        do = "delete the Node; the kubelet creates it again"
        yield wrong("ProviderIDDiffers", about, message, do)
    elif not node.ready:
        message = f"node {ref.name} of {key} is not ready"
        do = f"kubectl describe node {ref.name}"
        yield remark("NodeNotReady", f"node {key}/{ref.name}", message, do)


def _without_machine(key: Key, tenant: ObservedTenant, wanted: set[str]) -> Iterator[Finding]:
    holders: dict[str, list[str]] = defaultdict(list)
    for node in tenant.nodes:
        if node.provider_id:
            holders[node.provider_id].append(node.name)
        if node.provider_id.startswith("proxmox://") and node.provider_id not in wanted:
            message = (
                f"node {node.name} of {key} has the provider ID {node.provider_id}, "
                "which no machine has"
            )
            do = f"kubectl delete node {node.name}, unless it was joined manually"
            yield wrong("NodeWithoutMachine", f"node {key}/{node.name}", message, do)
    for provider, names in sorted(holders.items()):
        if len(names) > 1:
            message = f"nodes {', '.join(names)} of {key} have the same provider ID {provider}"
            do = "delete the ones that are not Ready"
            yield wrong("DuplicateNode", f"cluster {key}", message, do)


def volumes(observation: Observation) -> Iterator[Finding]:
    """Every PersistentVolume has its disk, and every such disk its PersistentVolume."""
    known_disks: set[tuple[str, str]] = set()
    for key, tenant in observation.tenant_clusters.items():
        for volume in tenant.volumes:
            wanted = _disk_of(volume)
            region = observation.regions.get(wanted.region) if wanted else None
            if wanted is None or region is None:
                continue
            known_disks.add((region.name, wanted.volid))
            if (
                region.answers
                and wanted.storage not in _unlisted_storages(region)
                and not _has_disk(region, wanted)
            ):
                yield wrong(
                    "VolumeMissing",
                    f"volume {key}/{volume.name}",
                    f"disk {wanted} of PersistentVolume {volume.name} of {key} does not exist",
                    "restore the disk under that name from a backup, or delete the volume",
                )
    if any(t.error for t in observation.tenant_clusters.values()):
        return  # the owner of a disk may be in a cluster that does not answer
    for region in observation.regions.values():
        helper_disks = _helper_disks(region)
        for image in region.images:
            known = (region.name, image.volid) in known_disks or image.volid in helper_disks
            if _VOLUME.search(image.name) and not known:
                yield _orphaned(region, image)


def _helper_disks(region: ObservedRegion) -> set[str]:
    """Disks attached to helper VMs: retained for snapshots, or sources of clones."""
    return {
        text.partition(",")[0]
        for config in region.configs.values()
        if is_helper_vm(config.tags)
        for text in config.disks.values()
    }


def _orphaned(region: ObservedRegion, image: StoredVolume) -> Finding:
    snapshot = ids.source_hash(image.name) is not None
    what = "snapshot" if snapshot else "volume"
    return remark(
        "OrphanedVolume",
        f"{region.name}/{image.volid}",
        f"{what} {image.volid} on {image.host} of {region.name} belongs to no PersistentVolume "
        "of the clusters seen here",
        f"it may belong to another cluster or be retained; else pvesm free {image.volid}",
    )


def _disk_of(volume: PersistentVolume) -> ids.VolumeId | None:
    source = volume.spec.csi
    if source is None or source.driver not in DRIVERS:
        return None
    return ids.find_volume(source.volume_handle)


def _unlisted_storages(region: ObservedRegion) -> set[str]:
    return {name.partition("/")[2] or name for name in region.unlisted}


def _has_disk(region: ObservedRegion, wanted: ids.VolumeId) -> bool:
    return any(
        image.volid == wanted.volid and (image.shared or wanted.host in ("", image.host))
        for image in region.images
    )
