"""
From an estate to the records a browser is told: all of them, by key.

``Views`` holds the two things that have a memory, the layouts and the journal; everything else is a
pure function of the picture.
"""

from collections.abc import Iterable
from typing import Any

from moxwell.web.clusters_view import cluster_records, machine_records, move_records
from moxwell.web.history import Journal
from moxwell.web.hosts_view import Layouts, host_records, region_records
from moxwell.web.model import Estate, Machine
from moxwell.web.phrasing import Words, say, short_name

Record = dict[str, Any]
SHOWN_EVENTS = 200


class Views:
    """Turns pictures into records."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._layouts = Layouts()

    def records(self, estate: Estate) -> dict[str, Record]:
        """Every record of one moment."""
        words = {_key(m): say(m, _progress(estate, m)) for m in estate.machines}
        self.journal.follow(estate, words)
        placed = {(m.region, m.vmid): m for m in estate.machines if m.vmid}
        records: dict[str, Record] = {
            "meta/moxwell": {
                "mode": estate.mode,
                "version": estate.version,
                "checks": [{"text": t, "ok": ok, "seconds": None} for t, ok in estate.checks],
            }
        }
        records.update(region_records(estate))
        records.update(host_records(estate, placed, words, self._layouts))
        records.update(cluster_records(estate, words, self.journal))
        records.update(machine_records(estate, words, self.journal))
        records.update(move_records(estate, words, self.journal))
        records.update(problem_records(estate, words))
        records.update(_volumes(estate))
        records.update(_storages(estate))
        records.update(self._events())
        return records

    def _events(self) -> Iterable[tuple[str, Record]]:
        for entry in self.journal.events[-SHOWN_EVENTS:]:
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


def _key(machine: Machine) -> str:
    return f"{machine.namespace}/{machine.name}"


def _progress(estate: Estate, machine: Machine) -> float | None:
    return estate.tasks.get(f"{machine.region}/{machine.vmid}")


def problem_records(estate: Estate, words: dict[str, Words]) -> Iterable[tuple[str, Record]]:
    """What needs a person, first; then what waits; then what is long on its way."""
    yield from _silent_regions(estate)
    yield from _silent_hosts(estate)
    for machine in estate.machines:
        said = words[_key(machine)]
        if said.state in {"waiting", "trouble"} and (machine.conditions or not machine.vmid):
            yield (
                f"problem/machine/{_key(machine)}",
                {
                    "rank": 1 if said.state == "trouble" else 2,
                    "state": said.state,
                    "title": f"{short_name(machine)} of {machine.cluster}"
                    + (" waits" if said.state == "waiting" else ""),
                    "text": said.now,
                    "next": said.next,
                    "since": machine.created,
                    "href": f"/machine/{_key(machine)}",
                },
            )
    yield from _rollouts(estate)


def _silent_regions(estate: Estate) -> Iterable[tuple[str, Record]]:
    for region in estate.regions:
        if not region.reachable:
            ours = sum(m.region == region.name for m in estate.machines)
            yield (
                f"problem/region/{region.name}",
                {
                    "rank": 0,
                    "state": "trouble",
                    "title": f"Region {region.name} does not answer",
                    "text": f"{ours} machines unknown. {region.error}",
                    "next": "nothing there is touched until it answers; others go on.",
                    "since": region.since,
                },
            )


def _silent_hosts(estate: Estate) -> Iterable[tuple[str, Record]]:
    for host in estate.hosts:
        if host.online:
            continue
        guests = [g for g in estate.guests if (g.region, g.host) == (host.region, host.name)]
        ours = sum((m.region, m.host) == (host.region, host.name) for m in estate.machines)
        yield (
            f"problem/host/{host.region}/{host.name}",
            {
                "rank": 0,
                "state": "trouble",
                "title": f"Host {host.region}/{host.name} does not answer",
                "text": f"{len(guests)} guests, {ours} of ours unknown.",
                "next": "its machines are kept until it is fenced or answers.",
                "since": host.silent_since,
            },
        )


def _rollouts(estate: Estate) -> Iterable[tuple[str, Record]]:
    for cluster in estate.clusters:
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in estate.machines if f"{m.namespace}/{m.cluster}" == key]
        old = sum(m.outdated for m in own)
        if old:
            yield (
                f"problem/rollout/{key}",
                {
                    "rank": 3,
                    "state": "moving",
                    "title": f"{cluster.name} rolls to {cluster.target or cluster.version}",
                    "text": f"{old} machines of the old template are left.",
                    "next": "one leaves whenever a new one is Ready.",
                    "since": None,
                    "count": f"{len(own) - old} of {len(own)}",
                    "href": f"/cluster/{key}",
                },
            )


def _storages(estate: Estate) -> Iterable[tuple[str, Record]]:
    """Storages that hold volumes, or could: shared ones, and local ones in use."""
    used = {v.storage for v in estate.volumes}
    for store in estate.storages:
        where = "/".join(part for part in (store.region, store.host, store.name) if part)
        if not store.host or where in used:
            sizes = {"total_mib": store.total_mib, "used_mib": store.used_mib}
            yield f"store/{where}", {"name": where, **sizes}


def _volumes(estate: Estate) -> Iterable[tuple[str, Record]]:
    for volume in estate.volumes:
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
                "sentence": volume.says,
                "state": volume.state,
                "since": volume.since,
            },
        )
