"""Records of clusters, machines, moves and waiting machines. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.web.history import EventHistory
from moxwell.web.layout import shape
from moxwell.web.model import (
    ClusterView,
    ConditionView,
    InfrastructureOverview,
    MachineView,
    PlacementView,
    VolumeView,
)
from moxwell.web.phrasing import MachineText, short_name

Record = dict[str, Any]
HUES, PATTERNS = 3, 4
_STAGE_TEXT = {
    "Claim": "VMID and host claimed",
    "Clone": "Template {template} to {vmid}",
    "Configure": "{cpus} vCPU, {memory} GiB, address {address}",
    "Boot": "Started, waiting for the guest agent",
    "Join": "Node {name} with its provider ID",
}


def cluster_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], history: EventHistory
) -> Iterable[tuple[str, Record]]:
    """A record for each cluster; hue and pattern follow the order of names."""
    ordered = sorted(overview.clusters, key=lambda c: (c.namespace, c.name))
    for number, cluster in enumerate(ordered):
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in overview.machines if f"{m.namespace}/{m.cluster}" == key]
        since = {"rollout_since": history.rollout_since(key)}
        yield f"cluster/{key}", {**_cluster(number, cluster, own, texts, overview), **since}


def _cluster(
    number: int,
    cluster: ClusterView,
    machines: Sequence[MachineView],
    texts: Mapping[str, MachineText],
    overview: InfrastructureOverview,
) -> Record:
    states = {f"{m.namespace}/{m.name}": texts[f"{m.namespace}/{m.name}"].state for m in machines}
    state, headline = _state(cluster, machines, states)
    return {
        "namespace": cluster.namespace,
        "name": cluster.name,
        "hue": number % HUES,
        "pattern": number % PATTERNS,
        "version": cluster.version,
        "state": state,
        "headline": headline,
        "sentence": headline or "Done",
        "since": cluster.since,
        "unknown": sum(s == "unknown" for s in states.values()),
        "endpoint": cluster.endpoint,
        "endpoint_ok": cluster.endpoint_ok,
        "endpoint_says": "answers" if cluster.endpoint_ok else "does not answer yet",
        "control_plane": cluster.control_plane or "hosted, starting",
        "control_plane_says": cluster.version,
        "addresses": cluster.addresses,
        "addresses_say": cluster.address_pools,
        **_nodes(cluster, machines, overview),
        **_volumes(overview, f"{cluster.namespace}/{cluster.name}"),
        "groups": [_group(g, machines) for g in cluster.groups],
        "holds": _blocker(machines, texts),
        "verdict": _verdict(machines),
    }


def _nodes(
    cluster: ClusterView, machines: Sequence[MachineView], overview: InfrastructureOverview
) -> Record:
    versions = sorted({m.version for m in machines if m.version})
    hosts = {(m.region, m.host) for m in machines if m.host}
    return {
        "ready": sum(bool(m.node_ready) for m in machines),
        "want": sum(g.replicas for g in cluster.groups),
        "regions": sorted({m.region for m in machines if m.region}),
        "nodes_say": ", ".join(f"{sum(m.version == v for m in machines)} on {v}" for v in versions),
        "spans_say": f"{len(hosts)} of {len(overview.hosts)} hosts",
    }


def _volumes(overview: InfrastructureOverview, key: str) -> Record:
    own = [v for v in overview.volumes if v.cluster == key]
    if not own:
        return {"volumes": "", "volumes_say": ""}
    attached = sum(bool(v.guest) for v in own)
    parts = [f"{sum(v.size_mib for v in own) / 1024:.0f} GiB"]
    waits = sum(v.state == "waiting" for v in own)
    parts += [f"{len(own) - attached - waits} not attached"] if len(own) > attached + waits else []
    parts += [f"{waits} requested"] if waits else []
    return {"volumes": f"{attached} attached", "volumes_say": "; ".join(parts)}


def _state(
    cluster: ClusterView, machines: Sequence[MachineView], states: Mapping[str, str]
) -> tuple[str, str]:
    if cluster.deleting:
        return "deleting", f"Deleting, {len(machines)} machines"
    if any(m.outdated for m in machines):
        target = cluster.target or cluster.version
        return "moving", f"Rolling out {target}"
    if not cluster.ready:
        busy = sum(s != "ready" for s in states.values())
        return ("creating", cluster.message or f"{busy} machines in progress")
    return "ready", ""


def _group(group: Any, machines: Sequence[MachineView]) -> Record:
    old = sum(m.outdated for m in machines if m.group == group.name)
    then = "Done"
    if old:
        then = f"{old} to replace, {group.surge} at a time"
    elif group.ready < group.replicas:
        then = f"{group.replicas - group.ready} to create"
    return {
        "name": group.name,
        "cpus": group.cpus,
        "memory_mib": group.memory_mib,
        "ready": group.ready,
        "want": group.replicas,
        "updated": group.updated,
        "then": then,
    }


def _blocker(machines: Sequence[MachineView], texts: Mapping[str, MachineText]) -> str | None:
    if not any(m.outdated for m in machines):
        return None
    for machine in machines:
        text = texts[f"{machine.namespace}/{machine.name}"]
        if text.state in {"waiting", "unknown", "trouble"}:
            return f"Blocked by {machine.name}: {text.sentence}"
    return None


def _verdict(machines: Sequence[MachineView]) -> str:
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
        return f"Even: each of {len(hosts)} hosts runs {count}, {share:.0%} of them."
    return f"{region}/{host} runs the most: {count}, {share:.0%} of them."


# Machines


def machine_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], history: EventHistory
) -> Iterable[tuple[str, Record]]:
    """A record for each machine."""
    for machine in overview.machines:
        key = f"{machine.namespace}/{machine.name}"
        progress = overview.tasks.get(f"{machine.region}/{machine.vmid}")
        own = [
            v
            for v in overview.volumes
            if v.guest == machine.name and v.cluster == f"{machine.namespace}/{machine.cluster}"
        ]
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
                "typical": history.typical(machine.region, stage),
            }
        )
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
    """A record for each machine in progress, and one more if it waits for a host."""
    for machine in overview.machines:
        key = f"{machine.namespace}/{machine.name}"
        text = texts[key]
        if text.state == "ready":
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
        if text.state == "waiting" and not machine.vmid:
            yield f"waiting/{key}", _waiting(machine, text)


def _waiting(machine: MachineView, text: MachineText) -> Record:
    wide, high = shape(machine.memory_mib)
    return {
        "cluster": f"{machine.namespace}/{machine.cluster}",
        "machine": f"{machine.namespace}/{machine.name}",
        "short": short_name(machine),
        "w": wide,
        "h": high,
        "sentence": text.sentence,
    }
