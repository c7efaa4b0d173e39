"""Records of clusters, machines, moves and what waits: the pages behind the map. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.web.history import Journal
from moxwell.web.layout import shape
from moxwell.web.model import Cluster, Condition, Estate, Machine, Place, Volume
from moxwell.web.phrasing import Words, short_name

Record = dict[str, Any]
HUES, PATTERNS = 3, 4
_LOOKS = {
    "Claim": "VMID and place claimed before anything was made",
    "Clone": "Template {template} to {vmid}",
    "Configure": "{cpus} vCPU, {memory} GiB, address {address}",
    "Boot": "Started; waits for the guest to report",
    "Join": "Node {name} with its provider ID",
}


def cluster_records(
    estate: Estate, words: Mapping[str, Words], journal: Journal
) -> Iterable[tuple[str, Record]]:
    """A record for each cluster; hue and pattern by the order of names, for life."""
    ordered = sorted(estate.clusters, key=lambda c: (c.namespace, c.name))
    for number, cluster in enumerate(ordered):
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in estate.machines if f"{m.namespace}/{m.cluster}" == key]
        since = {"rollout_since": journal.rollout_since(key)}
        yield f"cluster/{key}", {**_cluster(number, cluster, own, words, estate), **since}


def _cluster(
    number: int,
    cluster: Cluster,
    machines: Sequence[Machine],
    words: Mapping[str, Words],
    estate: Estate,
) -> Record:
    states = {f"{m.namespace}/{m.name}": words[f"{m.namespace}/{m.name}"].state for m in machines}
    unknown = sum(s == "unknown" for s in states.values())
    regions = sorted({m.region for m in machines if m.region})
    hosts = {(m.region, m.host) for m in machines if m.host}
    want, ready = sum(g.want for g in cluster.groups), sum(bool(m.node_ready) for m in machines)
    state, headline = _state(cluster, machines, states)
    versions = sorted({m.version for m in machines if m.version})
    return {
        "namespace": cluster.namespace,
        "name": cluster.name,
        "hue": number % HUES,
        "pattern": number % PATTERNS,
        "version": cluster.version,
        "ready": ready,
        "want": want,
        "regions": regions,
        "state": state,
        "headline": headline,
        "sentence": headline or "Done",
        "since": cluster.since,
        "unknown": unknown,
        "endpoint": cluster.endpoint,
        "endpoint_ok": cluster.endpoint_ok,
        "endpoint_says": "answers" if cluster.endpoint_ok else "does not answer yet",
        "control_plane": cluster.control_plane or "hosted, starting",
        "control_plane_says": cluster.version,
        "nodes_say": ", ".join(f"{sum(m.version == v for m in machines)} on {v}" for v in versions),
        "spans_say": f"{len(hosts)} of {len(estate.hosts)} hosts",
        "addresses": cluster.addresses,
        "addresses_say": cluster.addresses_say,
        **_volumes(estate, f"{cluster.namespace}/{cluster.name}"),
        "groups": [_group(g, machines) for g in cluster.groups],
        "holds": _holds(machines, words),
        "verdict": _verdict(machines),
    }


def _volumes(estate: Estate, key: str) -> Record:
    own = [v for v in estate.volumes if v.cluster == key]
    if not own:
        return {"volumes": "", "volumes_say": ""}
    attached = sum(bool(v.guest) for v in own)
    said = [f"{sum(v.size_mib for v in own) / 1024:.0f} GiB"]
    waits = sum(v.state == "waiting" for v in own)
    said += [f"{len(own) - attached - waits} not attached"] if len(own) > attached + waits else []
    said += [f"{waits} asked for"] if waits else []
    return {"volumes": f"{attached} attached", "volumes_say": "; ".join(said)}


def _state(
    cluster: Cluster, machines: Sequence[Machine], states: Mapping[str, str]
) -> tuple[str, str]:
    if cluster.deleting:
        return "leaving", f"Leaving, {len(machines)} machines left"
    if any(m.outdated for m in machines):
        target = cluster.target or cluster.version
        return "moving", f"Rolling to {target}"
    if not cluster.ready:
        busy = sum(s != "ready" for s in states.values())
        return ("made", cluster.says or f"{busy} machines under way")
    return "ready", ""


def _group(group: Any, machines: Sequence[Machine]) -> Record:
    old = sum(m.outdated for m in machines if m.group == group.name)
    then = "Done"
    if old:
        then = f"{old} to roll, {group.surge} at a time"
    elif group.ready < group.want:
        then = f"{group.want - group.ready} to come"
    return {
        "name": group.name,
        "cpus": group.cpus,
        "memory_mib": group.memory_mib,
        "ready": group.ready,
        "want": group.want,
        "updated": group.updated,
        "then": then,
    }


def _holds(machines: Sequence[Machine], words: Mapping[str, Words]) -> str | None:
    if not any(m.outdated for m in machines):
        return None
    for machine in machines:
        said = words[f"{machine.namespace}/{machine.name}"]
        if said.state in {"waiting", "unknown", "trouble"}:
            return f"Held by {machine.name}: {said.sentence}"
    return None


def _verdict(machines: Sequence[Machine]) -> str:
    hosts: dict[tuple[str, str], int] = {}
    for machine in machines:
        if machine.host:
            key = (machine.region, machine.host)
            hosts[key] = hosts.get(key, 0) + 1
    if len(hosts) < 2:
        return ""
    (region, host), most = max(hosts.items(), key=lambda item: (item[1], item[0]))
    share = most / sum(hosts.values())
    count = "1 machine" if most == 1 else f"{most} machines"
    if set(hosts.values()) == {most}:
        return (
            f"Even: losing any one of {len(hosts)} hosts would take {count}, {share:.0%} of them."
        )
    return f"Losing {region}/{host} would take most: {count}, {share:.0%} of them."


# Machines


def machine_records(
    estate: Estate, words: Mapping[str, Words], journal: Journal
) -> Iterable[tuple[str, Record]]:
    """A record for each machine."""
    for machine in estate.machines:
        key = f"{machine.namespace}/{machine.name}"
        progress = estate.tasks.get(f"{machine.region}/{machine.vmid}")
        own = [
            v
            for v in estate.volumes
            if v.guest == machine.name and v.cluster == f"{machine.namespace}/{machine.cluster}"
        ]
        yield f"machine/{key}", _machine(machine, words[key], journal, progress, own)


def _machine(
    machine: Machine,
    said: Words,
    journal: Journal,
    progress: float | None,
    volumes: Sequence[Volume],
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
        "state": said.state,
        "mark": _mark(machine, said),
        "sentence": said.sentence,
        "headline": said.headline,
        "since": journal.since(key),
        "progress": progress if said.stage == "Clone" else None,
        "now": said.now,
        "now_says": said.now_says,
        "next": said.next,
        "next_says": said.next_says,
        "why": f"Group {machine.group} of {machine.cluster}",
        "why_says": "The old template is being replaced." if machine.outdated else "",
        "timeline": _timeline(key, machine, journal),
        "asked": f"asked for {machine.cpus} vCPU, {machine.memory_mib // 1024} GiB",
        "placement": [_place(p) for p in machine.places],
        "conditions": [_condition(c) for c in machine.conditions],
        "volumes": [f"volume/{v.cluster}/{v.name}" for v in volumes],
        "related": [{"depth": d, "kind": k, "name": n} for d, k, n in machine.related],
    }


def _mark(machine: Machine, said: Words) -> str:
    if said.state in {"leaving", "unknown", "waiting", "trouble"}:
        return said.state
    if said.state != "ready":
        return "made"
    return "old" if machine.outdated else "new"


def _timeline(key: str, machine: Machine, journal: Journal) -> list[Record]:
    rows = []
    for stage, begun, ended in journal.timeline(key):
        text = _LOOKS[stage].format(
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
                "sentence": text if begun else f"Then: {text}",
                "start": begun,
                "end": ended,
                "typical": journal.typical(machine.region, stage),
            }
        )
    return rows


def _place(place: Place) -> Record:
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


def _condition(condition: Condition) -> Record:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": condition.since,
    }


# What moves and what waits


def move_records(
    estate: Estate, words: Mapping[str, Words], journal: Journal
) -> Iterable[tuple[str, Record]]:
    """Everything under way, and the tray of those that wait for a place."""
    for machine in estate.machines:
        key = f"{machine.namespace}/{machine.name}"
        said = words[key]
        if said.state == "ready":
            continue
        guest = f"guest/{machine.region}/{machine.vmid}" if machine.vmid else None
        yield (
            f"move/{key}",
            {
                "state": said.state,
                "cluster": f"{machine.namespace}/{machine.cluster}",
                "name": short_name(machine),
                "sentence": said.sentence,
                "since": journal.since(key),
                "progress": estate.tasks.get(f"{machine.region}/{machine.vmid}"),
                "guest": guest,
                "href": f"/machine/{key}",
            },
        )
        if said.state == "waiting" and not machine.vmid:
            yield f"waiting/{key}", _tray(machine, said)


def _tray(machine: Machine, said: Words) -> Record:
    wide, high = shape(machine.memory_mib)
    return {
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "machine": f"{machine.namespace}/{machine.name}",
        "short": short_name(machine),
        "w": wide,
        "h": high,
        "sentence": said.sentence,
    }
