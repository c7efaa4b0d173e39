"""
Turns an overview into the records that browsers get, by key.

Only layouts, looks of clusters and history have state; the rest is a pure function of the overview.
"""

from collections.abc import Iterable
from typing import Any

from moxwell.web.cluster_looks import ClusterLooks
from moxwell.web.clusters_view import cluster_records
from moxwell.web.history import EventHistory
from moxwell.web.hosts_view import Layouts, host_records, region_records
from moxwell.web.machines_view import machine_records, move_records
from moxwell.web.model import InfrastructureOverview, MachineView
from moxwell.web.node_pools_view import node_pool_records
from moxwell.web.phrasing import MachineText, describe, unknown
from moxwell.web.problems_view import problem_records
from moxwell.web.volumes_view import storage_records, volume_records

Record = dict[str, Any]
SHOWN_EVENTS = 200


class Views:
    """Turns overviews into records."""

    def __init__(self) -> None:
        self.history = EventHistory()
        self._layouts = Layouts()
        self._looks = ClusterLooks()

    def records(self, overview: InfrastructureOverview) -> dict[str, Record]:
        """All records."""
        texts = {f"{m.namespace}/{m.name}": text_of(m, overview) for m in overview.machines}
        self.history.update(overview, texts)
        looks = self._looks.assign(overview.clusters)
        records: dict[str, Record] = {"meta/moxwell": _meta(overview)}
        records.update(region_records(overview))
        records.update(host_records(overview, texts, self._layouts))
        records.update(cluster_records(overview, texts, self.history, looks))
        records.update(machine_records(overview, texts, self.history))
        records.update(move_records(overview, texts, self.history))
        records.update(problem_records(overview, texts, self.history.since))
        records.update(volume_records(overview))
        records.update(storage_records(overview))
        records.update(node_pool_records(overview))
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


def text_of(machine: MachineView, overview: InfrastructureOverview) -> MachineText:
    """The texts of a machine; nothing is known of it while its region or host does not answer."""
    if overview.is_lost(machine) and not machine.deleting:
        region, host = machine.region, machine.host
        what = f"region {region}" if region in overview.lost_regions else f"host {region}/{host}"
        return unknown(f"{what} does not answer")
    return describe(machine, overview.tasks.get(f"{machine.region}/{machine.vmid}"))


def _meta(overview: InfrastructureOverview) -> Record:
    return {
        "mode": overview.mode,
        "version": overview.version,
        "program": overview.program,
        "instance": overview.instance,
        "checks": [{"text": text, "ok": ok, "seconds": None} for text, ok in overview.checks],
    }
