"""
What happened, as far as this process saw it: stages of machines, and events worth a line.

In flows one picture after the other; out flow, for each machine, the stages it went through with
their times, what each typically takes, and a bounded list of sentences. Only what is typical
outlives the process; the rest begins with it and says so.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moxwell.web.model import Estate, Host, Machine, State
from moxwell.web.phrasing import STAGES, Words, short_name

KEPT_EVENTS = 400
KEPT_SAMPLES = 24
FRESH = timedelta(seconds=30)  # older ones began before this process looked
_STAGELESS = {"unknown", "leaving"}  # how far it has come is not to be seen then


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the feed."""

    number: int
    at: datetime
    state: State
    name: str
    sentence: str
    cluster: str = ""
    machine: str = ""


@dataclass(slots=True)
class _Course:
    """What is known of one machine's way."""

    state: str
    stage: str
    since: datetime
    begun: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    whole: bool = False  # seen from the first stage on
    joined: bool = False  # it has been a node before


class Journal:
    """Follows the estate."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._samples: dict[tuple[str, str], deque[float]] = {}
        self._events: deque[Entry] = deque(maxlen=KEPT_EVENTS)
        self._hosts: dict[tuple[str, str], bool] = {}
        self._clusters: dict[str, tuple[bool, str]] = {}
        self._rollouts: dict[str, datetime] = {}
        self._number = 0
        self._first = True

    @property
    def events(self) -> Sequence[Entry]:
        """The lines, oldest first."""
        return tuple(self._events)

    def follow(self, estate: Estate, words: dict[str, Words]) -> None:
        """Take note of what changed since the last picture."""
        self._follow_hosts(estate.hosts, estate.now)
        for machine in estate.machines:
            key = f"{machine.namespace}/{machine.name}"
            self._follow_machine(key, machine, words[key], estate.now)
        self._follow_gone({f"{m.namespace}/{m.name}" for m in estate.machines}, estate.now)
        old = {f"{m.namespace}/{m.cluster}" for m in estate.machines if m.outdated}
        self._rollouts = {key: self._rollouts.get(key, estate.now) for key in old}
        for cluster in estate.clusters:
            key = f"{cluster.namespace}/{cluster.name}"
            now = (cluster.ready, cluster.version)
            was = self._clusters.get(key)
            if was is not None and now != was and cluster.ready:
                self._say(estate.now, "ready", cluster.name, f"Ready, {cluster.version}", key)
            elif was is None and not self._first:
                self._say(estate.now, "made", cluster.name, "Asked for", key)
            self._clusters[key] = now
        self._first = False

    def since(self, key: str) -> datetime | None:
        """Since when a machine is in its state."""
        course = self._courses.get(key)
        return course.since if course else None

    def rollout_since(self, cluster: str) -> datetime | None:
        """Since when machines of an old form are seen in a cluster."""
        return self._rollouts.get(cluster)

    def timeline(self, key: str) -> list[tuple[str, datetime | None, datetime | None]]:
        """Stages with begin and end; empty where this process did not see the beginning."""
        course = self._courses.get(key)
        if course is None or not course.whole:
            return []
        return [(s, course.begun.get(s), course.ended.get(s)) for s in STAGES]

    def typical(self, region: str, stage: str) -> float | None:
        """The median of the last times a stage took in a region."""
        samples = self._samples.get((region, stage))
        return statistics.median(samples) if samples else None

    # What is typical, kept over a restart

    def recall(self, kept: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Times that an earlier process saw, by region and stage."""
        for region, stages in kept.items():
            for stage, times in stages.items():
                if stage in STAGES:
                    self._samples[region, stage] = deque(map(float, times), maxlen=KEPT_SAMPLES)

    def remember(self) -> dict[str, dict[str, list[float]]]:
        """The same for the next process: a few numbers for each region and stage."""
        found: dict[str, dict[str, list[float]]] = {}
        for (region, stage), times in sorted(self._samples.items()):
            found.setdefault(region, {})[stage] = [round(t, 1) for t in times]
        return found

    # Following

    def _follow_machine(self, key: str, machine: Machine, words: Words, now: datetime) -> None:
        course = self._courses.get(key)
        if course is None:
            course = self._courses[key] = self._met(machine, words, now)
        if words.state not in _STAGELESS and _is_further(words.stage, course.stage):
            self._pass_stage(course, machine, words, now)
        if words.state != course.state:
            if words.state in {"unknown", "trouble", "leaving"}:
                self._note(now, words.state, machine, words.sentence)
            elif words.state == "ready":
                again = "Ready again" if course.joined else "Joined as node, Ready"
                self._note(now, "ready", machine, again)
                course.joined = True
            course.state, course.since = words.state, now

    def _met(self, machine: Machine, words: Words, now: datetime) -> _Course:
        """A machine seen for the first time; it may have come far since the last look."""
        born = machine.created or now
        if self._first:
            course = _Course(words.state, words.stage, now)
            course.joined = not words.stage and words.state not in _STAGELESS
        else:
            course = _Course("", STAGES[0], now, whole=(now - born) < FRESH)
            self._note(now, "made", machine, "Asked for")
        course.begun[course.stage or STAGES[0]] = born
        return course

    def _pass_stage(self, course: _Course, machine: Machine, words: Words, now: datetime) -> None:
        """What passed between two looks was done as well, and is said as well."""
        done, stage = course.stage, words.stage
        course.stage = stage
        begun = course.begun.get(done)
        if begun is not None and (stage or words.state == "ready"):
            kept = self._samples.setdefault((machine.region, done), deque(maxlen=KEPT_SAMPLES))
            kept.append((now - begun).total_seconds())
        for passed in _between(done, stage):
            course.begun.setdefault(passed, now)
            course.ended.setdefault(passed, now)
            if passed != "Join":  # that it joined is said when it is Ready
                self._note(now, "ready", machine, _done(passed, machine))
        if stage:
            course.begun.setdefault(stage, now)

    def _follow_gone(self, there: set[str], now: datetime) -> None:
        for key in [k for k in self._courses if k not in there]:
            del self._courses[key]
            self._say(now, "ready", key.partition("/")[2], "Gone, with guest, disks and addresses")

    def _follow_hosts(self, hosts: Iterable[Host], now: datetime) -> None:
        for host in hosts:
            key = (host.region, host.name)
            was = self._hosts.get(key)
            name = f"{host.region}/{host.name}"
            if was is True and not host.online:
                self._say(now, "trouble", name, "Does not answer")
            elif was is False and host.online:
                self._say(now, "ready", name, "Answers again")
            self._hosts[key] = host.online

    def _note(self, now: datetime, state: State, machine: Machine, sentence: str) -> None:
        key = f"{machine.namespace}/{machine.name}"
        cluster = f"{machine.namespace}/{machine.cluster}"
        self._say(now, state, short_name(machine), sentence, cluster, key)

    def _say(
        self,
        now: datetime,
        state: State,
        name: str,
        sentence: str,
        cluster: str = "",
        machine: str = "",
    ) -> None:
        self._number += 1
        self._events.append(Entry(self._number, now, state, name, sentence, cluster, machine))


def _is_further(stage: str, than: str) -> bool:
    """Moves of several stages go on side by side; what counts is how far it has come."""
    if stage == than or not than:
        return stage != than and bool(stage)
    return not stage or STAGES.index(stage) > STAGES.index(than)


def _between(stage: str, reached: str) -> tuple[str, ...]:
    """The stages that are over when another, or the end, is reached; none after a settled time."""
    end = STAGES.index(reached) if reached else len(STAGES)
    return STAGES[STAGES.index(stage) : end] if stage else ()


def _done(stage: str, machine: Machine) -> str:
    where = f"{machine.region}/{machine.host}" if machine.host else machine.region
    return {
        "Claim": f"VMID {machine.vmid} claimed in {machine.region}",
        "Clone": f"Cloned from {machine.template} on {where}",
        "Configure": f"Configured: {machine.cpus} vCPU, {machine.memory_mib // 1024} GiB",
        "Boot": f"Booted on {where}",
    }[stage]
