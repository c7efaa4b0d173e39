"""
Records of problems, one for each cause, the most urgent first. Pure.

A region that does not answer is one problem, not one for each of its hosts and machines; machines
of a node group that wait or fail for the same reason are one problem too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from moxwell.web.model import HostView, InfrastructureOverview, MachineView, RegionView
from moxwell.web.phrasing import RETRY, MachineText, short_name

Record = dict[str, Any]
Since = Callable[[str], datetime | None]  # since when a machine has its state


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def problem_records(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], since: Since
) -> Iterable[tuple[str, Record]]:
    """Problems: what does not answer, what failed, what waits, what rolls out."""
    for region in overview.regions:
        if region.name in overview.lost_regions:
            yield f"problem/region/{region.name}", _lost_region(region, overview)
    for host in overview.hosts:
        if (host.region, host.name) in overview.lost_hosts:
            yield f"problem/host/{host.region}/{host.name}", _lost_host(host, overview)
    yield from _machines(overview, texts, since)
    yield from _rollouts(overview)


def _lost_region(region: RegionView, overview: InfrastructureOverview) -> Record:
    hosts = sum(h.region == region.name for h in overview.hosts)
    ours = sum(m.region == region.name for m in overview.machines)
    error = region.error.removeprefix(f"region {region.name}: ").partition(RETRY)[0]
    known = f"{count(hosts, 'host')} and {count(ours, 'machine')} unknown"
    return {
        "rank": 0,
        "state": "trouble",
        "title": f"Region {region.name} does not answer",
        "text": f"{known}: {error}." if error else f"{known}.",
        "next": "it is asked again every few seconds; nothing is changed there until it answers.",
        "since": region.since,
        "href": "/machines",
    }


def _lost_host(host: HostView, overview: InfrastructureOverview) -> Record:
    where = (host.region, host.name)
    guests = sum((g.region, g.host) == where for g in overview.guests)
    ours = sum((m.region, m.host) == where for m in overview.machines)
    return {
        "rank": 0,
        "state": "trouble",
        "title": f"Host {host.region}/{host.name} does not answer",
        "text": f"{count(guests, 'guest')} unknown, {ours} of Moxwell.",
        "next": "its machines stay until it answers or is fenced.",
        "since": host.unreachable_since,
        "href": "/machines",
    }


def _machines(
    overview: InfrastructureOverview, texts: Mapping[str, MachineText], since: Since
) -> Iterable[tuple[str, Record]]:
    """Machines that wait or failed, by node group and cause."""
    causes: dict[tuple[str, str, str, str, str], list[MachineView]] = defaultdict(list)
    for machine in overview.machines:
        text = texts[f"{machine.namespace}/{machine.name}"]
        if text.state in {"waiting", "trouble"}:
            where = (machine.namespace, machine.cluster, machine.group)
            causes[*where, text.state, text.reason or text.now].append(machine)
    for cause, machines in causes.items():
        namespace, cluster, name, _, _ = cause
        first = machines[0]
        text = texts[f"{namespace}/{first.name}"]
        times = [at for m in machines if (at := since(f"{namespace}/{m.name}")) is not None]
        record = _cause(machines, text) | {"since": min(times, default=first.created)}
        if len(machines) == 1:
            record["href"] = f"/machine/{namespace}/{first.name}"
        else:
            record["href"] = f"/cluster/{namespace}/{cluster}"
        yield f"problem/machines/{namespace}/{cluster}/{name}/{text.state}/{first.name}", record


def _cause(machines: Sequence[MachineView], text: MachineText) -> Record:
    """The title and words of machines with the same cause."""
    first, several = machines[0], len(machines) > 1
    who = f"{len(machines)} machines of" if several else f"{short_name(first)} of"
    waits = ("wait" if several else "waits") if text.state == "waiting" else "failed"
    host = " for a host" if text.headline == "Waiting for a host" else ""
    words = text.now.removeprefix("Waiting for a host: ") if host else text.now
    return {
        "rank": 1 if text.state == "trouble" else 2,
        "state": text.state,
        "title": f"{who} {first.cluster} {waits}{host}",
        "text": words[:1].upper() + words[1:],
        "next": f"{text.next[:1].lower()}{text.next[1:]}. {text.next_says}",
    }


def _rollouts(overview: InfrastructureOverview) -> Iterable[tuple[str, Record]]:
    for cluster in overview.clusters:
        key = f"{cluster.namespace}/{cluster.name}"
        own = [m for m in overview.machines if f"{m.namespace}/{m.cluster}" == key]
        old = sum(m.outdated for m in own)
        if not old or cluster.deleting:
            continue
        wanted = sum(g.replicas for g in cluster.groups)
        new = min(len(own) - old, wanted)  # for a moment there is one more than wanted
        yield (
            f"problem/rollout/{key}",
            {
                "rank": 3,
                "state": "moving",
                "title": f"{cluster.name} rolls out {cluster.target or cluster.version}",
                "text": f"{count(old, 'machine has', 'machines have')} the old template.",
                "next": "an old machine is deleted whenever a new one is Ready.",
                "since": None,
                "count": f"{new} of {wanted}" if wanted else None,
                "href": f"/cluster/{key}",
            },
        )
