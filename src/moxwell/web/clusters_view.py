"""Records of clusters: nodes, rollout, spread over hosts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.web.cluster_looks import ClusterLook
from moxwell.web.history import EventHistory
from moxwell.web.model import ClusterView, InfrastructureOverview, MachineView, NodeGroupView
from moxwell.web.phrasing import MachineText
from moxwell.web.problems_view import count

Record = dict[str, Any]
States = Mapping[str, str]  # of machines, by name
_HALTED = {"waiting", "trouble"}  # states in which nothing is in progress


def cluster_records(
    overview: InfrastructureOverview,
    texts: Mapping[str, MachineText],
    history: EventHistory,
    looks: Mapping[str, ClusterLook],
) -> Iterable[tuple[str, Record]]:
    """A record for each cluster."""
    for cluster in overview.clusters:
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in overview.machines if f"{m.namespace}/{m.cluster}" == key]
        more = {
            "hue": looks[key].hue,
            "pattern": looks[key].pattern,
            "rollout_since": history.rollout_since(key),
        }
        yield f"cluster/{key}", {**_cluster(cluster, own, texts, overview), **more}


def _cluster(
    cluster: ClusterView,
    machines: Sequence[MachineView],
    texts: Mapping[str, MachineText],
    overview: InfrastructureOverview,
) -> Record:
    states = {m.name: texts[f"{m.namespace}/{m.name}"].state for m in machines}
    state, headline = _state(cluster, machines, states)
    return {
        "namespace": cluster.namespace,
        "name": cluster.name,
        "version": cluster.version,
        "state": state,
        "headline": headline,
        "sentence": headline or "Done",
        "since": cluster.since,
        "endpoint": cluster.endpoint,
        "endpoint_ok": cluster.endpoint_ok,
        "endpoint_says": "initialized" if cluster.endpoint_ok else "not initialized yet",
        "control_plane": cluster.control_plane or "hosted, starting",
        "control_plane_says": cluster.version,
        "addresses": cluster.addresses,
        "addresses_say": cluster.address_pools,
        **_nodes(cluster, machines, states, overview),
        **_volumes(overview, f"{cluster.namespace}/{cluster.name}"),
        "groups": [_group(g, machines, states) for g in cluster.groups],
        "holds": _blocker(machines, texts),
        "verdict": _verdict(machines),
    }


def _nodes(
    cluster: ClusterView,
    machines: Sequence[MachineView],
    states: States,
    overview: InfrastructureOverview,
) -> Record:
    """A machine that is being deleted, or of which nothing is known now, is not ready."""
    versions = sorted({m.version for m in machines if m.version})
    hosts = {(m.region, m.host) for m in machines if m.host}
    unknown = [m for m in machines if states[m.name] == "unknown"]
    return {
        **_ready(sum(g.replicas for g in cluster.groups), machines, states),
        "regions": sorted({m.region for m in machines if m.region}),
        "lost": sorted({m.region for m in unknown} & overview.lost_regions),
        "nodes_say": ", ".join(f"{sum(m.version == v for m in machines)} on {v}" for v in versions),
        "spans_say": f"{len(hosts)} of {count(len(overview.hosts), 'host')}",
    }


def _ready(wanted: int, machines: Sequence[MachineView], states: States) -> Record:
    """How many nodes are ready, of how many: a rollout has more machines than are wanted."""
    known = [m for m in machines if states[m.name] not in {"unknown", "deleting"}]
    ready = sum(bool(m.node_ready) for m in known)
    unknown = sum(states[m.name] == "unknown" for m in machines)
    total = max(wanted, ready + unknown)
    return {"ready": ready, "unknown": unknown, "total": total, "want": wanted}


def _volumes(overview: InfrastructureOverview, key: str) -> Record:
    every = [v for v in overview.volumes if v.cluster == key]
    if not every:
        return {"volumes": "", "volumes_say": ""}
    own = [v for v in every if v.storage.partition("/")[0] not in overview.lost_regions]
    attached = sum(bool(v.guest) for v in own)
    counts = [f"{attached} attached"] if own else []
    counts += [f"{len(every) - len(own)} unknown"] if len(every) > len(own) else []
    parts = [f"{sum(v.size_mib for v in every) / 1024:.0f} GiB"]
    waits = sum(v.state == "waiting" for v in own)
    parts += [f"{len(own) - attached - waits} not attached"] if len(own) > attached + waits else []
    parts += [f"{waits} requested"] if waits else []
    return {"volumes": ", ".join(counts), "volumes_say": "; ".join(parts)}


def _state(
    cluster: ClusterView, machines: Sequence[MachineView], states: States
) -> tuple[str, str]:
    if cluster.deleting:
        return "deleting", f"Deleting, {count(len(machines), 'machine')} left"
    unknown = sum(s == "unknown" for s in states.values())
    if unknown:
        return "unknown", f"{unknown} of {count(len(machines), 'machine')} unknown"
    if any(m.outdated for m in machines):
        return "moving", f"Rolling out {cluster.target or cluster.version}"
    if not cluster.ready:
        busy = [s for s in states.values() if s != "ready"]
        state = busy[0] if len(set(busy)) == 1 and busy[0] in _HALTED else "creating"
        return state, cluster.message or f"{count(len(busy), 'machine')} in progress"
    return "ready", ""


def _group(group: NodeGroupView, machines: Sequence[MachineView], states: States) -> Record:
    own = [m for m in machines if m.group == group.name]
    old = sum(m.outdated for m in own)
    ready = _ready(group.replicas, own, states)
    return {
        "name": group.name,
        "cpus": group.cpus,
        "memory_mib": group.memory_mib,
        **ready,
        "updated": group.updated,
        "then": _then(group, len(own), old, ready["unknown"]),
    }


def _then(group: NodeGroupView, own: int, old: int, unknown: int) -> str:
    if unknown:
        return f"Wait for {unknown} unknown"
    if old:
        return f"{old} to replace, {group.surge} at a time"
    if own > group.replicas:
        return f"{own - group.replicas} to delete"
    if group.ready < group.replicas:
        return f"{group.replicas - group.ready} to create"
    return "Done"


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
        return f"Even: each of {len(hosts)} hosts runs {count}, {share * 100:.0f} % of them."
    return f"{region}/{host} runs the most: {count}, {share * 100:.0f} % of them."
