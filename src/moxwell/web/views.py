"""
Turns an overview into the records that browsers get, by key.

Only layouts and history have state; the rest is a pure function of the overview.
"""

from collections.abc import Iterable
from typing import Any

from moxwell.web.clusters_view import cluster_records, machine_records, move_records
from moxwell.web.history import EventHistory
from moxwell.web.hosts_view import Layouts, host_records, region_records
from moxwell.web.model import InfrastructureOverview, MachineView
from moxwell.web.phrasing import MachineText, describe, short_name

Record = dict[str, Any]
SHOWN_EVENTS = 200


class Views:
    """Turns overviews into records."""

    def __init__(self) -> None:
        self.history = EventHistory()
        self._layouts = Layouts()

    def records(self, overview: InfrastructureOverview) -> dict[str, Record]:
        """All records."""
        texts = {_key(m): describe(m, _progress(overview, m)) for m in overview.machines}
        self.history.update(overview, texts)
        placed = {(m.region, m.vmid): m for m in overview.machines if m.vmid}
        records: dict[str, Record] = {
            "meta/moxwell": {
                "mode": overview.mode,
                "version": overview.version,
                "checks": [{"text": t, "ok": ok, "seconds": None} for t, ok in overview.checks],
            }
        }
        records.update(region_records(overview))
        records.update(host_records(overview, placed, texts, self._layouts))
        records.update(cluster_records(overview, texts, self.history))
        records.update(machine_records(overview, texts, self.history))
        records.update(move_records(overview, texts, self.history))
        records.update(problem_records(overview, texts))
        records.update(_volumes(overview))
        records.update(_storages(overview))
        records.update(self._events())
        return records

    def _events(self) -> Iterable[tuple[str, Record]]:
        for entry in self.history.events[-SHOWN_EVENTS:]:
            yield (
                f"event/{entry.number}",
                {
                    "number": entry.number,
                    "at": entry.at,
                    "state": entry.state,
                    "cluster": entry.cluster or None,
                    "name": entry.name,
                    "sentence": entry.sentence,
                    "href": f"/machine/{entry.machine}" if entry.machine else None,
                    "guest": None,
                },
            )


def _key(machine: MachineView) -> str:
    return f"{machine.namespace}/{machine.name}"


def _progress(overview: InfrastructureOverview, machine: MachineView) -> float | None:
    return overview.tasks.get(f"{machine.region}/{machine.vmid}")


def problem_records(
    overview: InfrastructureOverview, texts: dict[str, MachineText]
) -> Iterable[tuple[str, Record]]:
    """Problems, the most urgent first: unreachable, failed, waiting, rolling out."""
    yield from _unreachable_regions(overview)
    yield from _unreachable_hosts(overview)
    for machine in overview.machines:
        text = texts[_key(machine)]
        if text.state in {"waiting", "trouble"} and (machine.conditions or not machine.vmid):
            yield (
                f"problem/machine/{_key(machine)}",
                {
                    "rank": 1 if text.state == "trouble" else 2,
                    "state": text.state,
                    "title": f"{short_name(machine)} of {machine.cluster}"
                    + (" is waiting" if text.state == "waiting" else ""),
                    "text": text.now,
                    "next": text.next,
                    "since": machine.created,
                    "href": f"/machine/{_key(machine)}",
                },
            )
    yield from _rollouts(overview)


def _unreachable_regions(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    for region in overview.regions:
        if not region.reachable:
            ours = sum(m.region == region.name for m in overview.machines)
            yield (
                f"problem/region/{region.name}",
                {
                    "rank": 0,
                    "state": "trouble",
                    "title": f"Region {region.name} does not answer",
                    "text": f"{ours} machines unknown. {region.error}",
                    "next": "nothing is changed there until it answers.",
                    "since": region.since,
                },
            )


def _unreachable_hosts(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    for host in overview.hosts:
        if host.online:
            continue
        guests = [g for g in overview.guests if (g.region, g.host) == (host.region, host.name)]
        ours = sum((m.region, m.host) == (host.region, host.name) for m in overview.machines)
        yield (
            f"problem/host/{host.region}/{host.name}",
            {
                "rank": 0,
                "state": "trouble",
                "title": f"Host {host.region}/{host.name} does not answer",
                "text": f"{len(guests)} guests unknown, {ours} of them are machines.",
                "next": "its machines stay until it answers or is fenced.",
                "since": host.unreachable_since,
            },
        )


def _rollouts(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    for cluster in overview.clusters:
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in overview.machines if f"{m.namespace}/{m.cluster}" == key]
        old = sum(m.outdated for m in own)
        if old:
            yield (
                f"problem/rollout/{key}",
                {
                    "rank": 3,
                    "state": "moving",
                    "title": f"{cluster.name} rolls out {cluster.target or cluster.version}",
                    "text": f"{old} machines have the old template.",
                    "next": "an old machine is deleted whenever a new one is Ready.",
                    "since": None,
                    "count": f"{len(own) - old} of {len(own)}",
                    "href": f"/cluster/{key}",
                },
            )


def _storages(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """Shared storages, and local ones that hold volumes."""
    used = {v.storage for v in overview.volumes}
    for store in overview.storages:
        where = "/".join(part for part in (store.region, store.host, store.name) if part)
        if not store.host or where in used:
            sizes = {"total_mib": store.total_mib, "used_mib": store.used_mib}
            yield f"store/{where}", {"name": where, **sizes}


def _volumes(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    for volume in overview.volumes:
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
                "state": volume.state,
                "since": volume.since,
            },
        )
