"""Records of machines, of moves and of machines that wait for a host. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from moxwell.web.history import EventHistory
from moxwell.web.layout import shape
from moxwell.web.model import (
    ConditionView,
    InfrastructureOverview,
    MachineView,
    PlacementView,
    VolumeView,
)
from moxwell.web.phrasing import NO_HOST, MachineText, short_name
from moxwell.web.problems_view import count

Record = dict[str, Any]
_STAGE_TEXT = {
    "Claim": "VMID and host claimed",
    "Clone": "Template {template} to {vmid}",
    "Configure": "{cpus} vCPU, {memory} GiB, address {address}",
    "Boot": "Started, waiting for the guest agent",
    "Join": "Node {name} with its provider ID",
}


def machine_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], history: EventHistory
) -> Iterable[tuple[str, Record]]:
    """A record for each machine."""
    volumes: dict[str, list[VolumeView]] = defaultdict(list)
    for volume in overview.volumes:
        volumes[f"{volume.cluster}/{volume.guest}"].append(volume)
    for machine in overview.machines:
        key = f"{machine.namespace}/{machine.name}"
        progress = overview.tasks.get(f"{machine.region}/{machine.vmid}")
        node = machine.node or machine.name
        own = volumes.get(f"{machine.namespace}/{machine.cluster}/{node}", [])
        yield f"machine/{key}", _machine(machine, texts[key], history, progress, own)


def _machine(
    machine: MachineView,
    text: MachineText,
    history: EventHistory,
    progress: float | None,
    volumes: Sequence[VolumeView],
) -> Record:
    key = f"{machine.namespace}/{machine.name}"
    return {
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "name": machine.name,
        "group": machine.group,
        "region": machine.region,
        "host": machine.host,
        "vmid": machine.vmid or None,
        "address": machine.address,
        "version": machine.version,
        "memory_mib": machine.memory_mib,
        "state": text.state,
        "mark": _symbol(machine, text),
        "sentence": text.sentence,
        "headline": text.headline,
        "since": history.since(key),
        "progress": progress if text.stage == "Clone" else None,
        "now": text.now,
        "now_says": text.now_says,
        "next": text.next,
        "next_says": text.next_says,
        "why": f"Group {machine.group} of {machine.cluster}",
        "why_says": "It has an old template and is being replaced." if machine.outdated else "",
        "timeline": _timeline(key, machine, history),
        "asked": f"requested {machine.cpus} vCPU, {machine.memory_mib // 1024} GiB",
        "placement": [_placement(p) for p in machine.places],
        "conditions": [_condition(c) for c in machine.conditions],
        "volumes": [f"volume/{v.cluster}/{v.name}" for v in volumes],
        "related": [{"depth": d, "kind": k, "name": n} for d, k, n in machine.related],
    }


def _symbol(machine: MachineView, text: MachineText) -> str:
    if text.state in {"deleting", "unknown", "waiting", "trouble"}:
        return text.state
    if text.state != "ready":
        return "creating"
    return "old" if machine.outdated else "new"


def _timeline(key: str, machine: MachineView, history: EventHistory) -> list[Record]:
    rows = []
    for stage, begun, ended in history.timeline(key):
        sentence = _STAGE_TEXT[stage].format(
            template=machine.template,
            vmid=machine.vmid,
            cpus=machine.cpus,
            memory=machine.memory_mib // 1024,
            address=machine.address or "not yet",
            name=machine.name,
        )
        rows.append(
            {
                "step": stage,
                "sentence": sentence if begun else f"Next: {sentence}",
                "start": begun,
                "end": ended,
                "observed": begun is None or begun != ended,  # False: it passed between two looks
                "at_most": False,
                "typical": history.typical(machine.region, stage),
            }
        )
    for row, following in pairwise(rows):  # what was not observed is within the stage before
        row["at_most"] = row["observed"] and not following["observed"]
    return rows


def _placement(place: PlacementView) -> Record:
    return {
        "region": place.region,
        "host": place.host,
        "fits": place.fits,
        "chosen": place.chosen,
        "verdict": place.verdict,
        "because": place.because,
        "free_mib": place.free_mib,
        "promised": place.promised,
        "cores": place.cores,
    }


def _condition(condition: ConditionView) -> Record:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": condition.since,
    }


# In progress and waiting


def move_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], history: EventHistory
) -> Iterable[tuple[str, Record]]:
    """Records of machines in progress, of what does not answer, and of machines without a host."""
    yield from _lost(overview)
    for machine in overview.machines:
        key = f"{machine.namespace}/{machine.name}"
        text = texts[key]
        if text.state == "ready" or (text.state == "unknown" and overview.is_lost(machine)):
            continue
        guest = f"guest/{machine.region}/{machine.vmid}" if machine.vmid else None
        yield (
            f"move/{key}",
            {
                "state": text.state,
                "cluster": f"{machine.namespace}/{machine.cluster}",
                "name": short_name(machine),
                "sentence": text.sentence,
                "since": history.since(key),
                "progress": overview.tasks.get(f"{machine.region}/{machine.vmid}"),
                "guest": guest,
                "href": f"/machine/{key}",
            },
        )
        if text.state == "waiting" and text.reason == NO_HOST and not machine.vmid:
            yield f"waiting/{key}", _waiting(machine, text)


def _lost(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    """One record for each region and host that does not answer, instead of one per machine."""
    for region in overview.regions:
        if region.name in overview.lost_regions:
            ours = sum(m.region == region.name for m in overview.machines)
            yield f"move/lost/{region.name}", _silence(region.name, region.since, ours)
    for host in overview.hosts:
        where = (host.region, host.name)
        if where in overview.lost_hosts:
            ours = sum((m.region, m.host) == where for m in overview.machines)
            yield (
                f"move/lost/{host.region}/{host.name}",
                _silence(f"{host.region}/{host.name}", host.unreachable_since, ours),
            )


def _silence(name: str, since: Any, machines: int) -> Record:
    return {
        "state": "trouble",
        "cluster": None,
        "name": name,
        "sentence": f"Does not answer, {count(machines, 'machine')} unknown",
        "since": since,
        "progress": None,
        "guest": None,
        "href": "/machines",
    }


def _waiting(machine: MachineView, text: MachineText) -> Record:
    wide, high = shape(machine.memory_mib)
    return {
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "machine": f"{machine.namespace}/{machine.name}",
        "short": short_name(machine),
        "group": machine.group,
        "w": wide,
        "h": high,
        "sentence": text.sentence,
    }
