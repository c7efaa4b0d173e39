"""Records of volumes and of all storages with what they hold. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from moxwell.web.model import InfrastructureOverview, StorageView, VolumeView

Record = dict[str, Any]


def volume_records(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """A record for each volume, with a note if its storage does not answer."""
    lost = overview.lost_regions
    for volume in overview.volumes:
        region = volume.storage.partition("/")[0]
        yield (
            f"volume/{volume.cluster}/{volume.name}",
            {
                "name": volume.name,
                "cluster": volume.cluster,
                "claim": volume.claim,
                "storage": volume.storage,
                "size_mib": volume.size_mib,
                "guest": volume.guest,
                "disk": volume.disk,
                "sentence": volume.message,
                "state": "unknown" if region in lost else volume.state,
                "lost": region if region in lost else None,
                "since": volume.since,
            },
        )


def storage_records(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """A record for each storage: shared ones once, local ones for each host."""
    held: dict[str, list[VolumeView]] = defaultdict(list)
    for volume in overview.volumes:
        held[volume.storage].append(volume)
    regions = {r.name: r for r in overview.regions}
    for store in overview.storages:
        where = "/".join(part for part in (store.region, store.host, store.name) if part)
        lost = store.region in overview.lost_regions
        away = lost or (store.region, store.host) in overview.lost_hosts
        state, words = ("unknown", "does not answer") if away else _state(store)
        yield (
            f"store/{where}",
            {
                "name": where,
                "region": store.region,
                "host": store.host,
                "storage": store.name,
                "type": store.type,
                "content": list(store.content),
                "hosts": store.hosts,
                "total_mib": store.total_mib,
                "used_mib": store.used_mib,
                "volumes": len(held[where]),
                "volumes_mib": sum(v.size_mib for v in held[where]),
                "state": state,
                "sentence": words,
                "since": regions[store.region].since if lost else None,
            },
        )


def _state(store: StorageView) -> tuple[str, str]:
    if not store.active_hosts:
        return "trouble", "inactive"
    if store.active_hosts < store.hosts:
        return "waiting", f"active on {store.active_hosts} of {store.hosts} hosts"
    return "ready", "active"
