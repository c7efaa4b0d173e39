"""
Follows machines, clusters and hosts: stages with their times, and a bounded list of events.

Only the durations of stages outlive the process. Everything else starts with the process: earlier
events and timelines are not known.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from moxwell.web.model import InfrastructureOverview, MachineView, State
from moxwell.web.phrasing import STAGES, MachineText, ready_condition, short_name

KEPT_EVENTS = 400
KEPT_SAMPLES = 24
FRESH = timedelta(seconds=30)  # older machines were created before this process looked
SETTLE = timedelta(seconds=60)  # regions and nodes are read anew after a start
_WITHOUT_STAGE = {"unknown", "deleting"}  # states that do not show the stage


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One event."""

    number: int
    at: datetime
    state: State
    name: str
    sentence: str
    cluster: str = ""
    machine: str = ""


@dataclass(slots=True)
class _MachineProgress:
    """The stages of one machine."""

    name: str  # as events name it
    cluster: str
    state: str
    stage: str
    since: datetime
    started: dict[str, datetime] = field(default_factory=dict)
    finished: dict[str, datetime] = field(default_factory=dict)
    complete: bool = False  # observed from the first stage on
    joined: bool = False  # it was a ready node before
    silent: bool = False  # its region or host does not answer, which is an event of its own
    settles: datetime | None = None  # known at the start: until then it is read anew, quietly


class EventHistory:
    """Compares each overview with the one before."""

    def __init__(self) -> None:
        self._machines: dict[str, _MachineProgress] = {}
        self._samples: dict[tuple[str, str], deque[float]] = {}
        self._events: deque[HistoryEntry] = deque(maxlen=KEPT_EVENTS)
        self._answers: dict[str, bool] = {}  # regions, and hosts of regions that answer
        self._clusters: dict[str, tuple[bool, str]] = {}
        self._rollouts: dict[str, datetime] = {}
        self._settling: dict[str, datetime] = {}  # clusters known at the start, until when
        self._number = 0
        self._first = True

    @property
    def events(self) -> Sequence[HistoryEntry]:
        """All events, the oldest first."""
        return tuple(self._events)

    def update(self, overview: InfrastructureOverview, texts: dict[str, MachineText]) -> None:
        """Record what changed since the last overview."""
        self._update_answers(overview)
        for machine in overview.machines:
            key = f"{machine.namespace}/{machine.name}"
            silent = overview.is_lost(machine)
            self._update_machine(key, machine, texts[key], overview.now, silent=silent)
        self._remove_deleted({f"{m.namespace}/{m.name}" for m in overview.machines}, overview.now)
        old = {f"{m.namespace}/{m.cluster}" for m in overview.machines if m.outdated}
        self._rollouts = {key: self._rollouts.get(key, overview.now) for key in old}
        self._update_clusters(overview)
        self._first = False

    def _update_clusters(self, overview: InfrastructureOverview) -> None:
        for cluster in overview.clusters:
            key = f"{cluster.namespace}/{cluster.name}"
            settled = cluster.ready and key not in self._rollouts
            now = (settled, cluster.version)
            was = self._clusters.get(key)
            if was is not None and now != was and settled and key not in self._settling:
                self._add_event(
                    overview.now, "ready", cluster.name, f"Ready, {cluster.version}", key
                )
            elif was is None and not self._first:
                self._add_event(overview.now, "creating", cluster.name, "Requested", key)
            self._clusters[key] = now
            if self._first:
                self._settling[key] = overview.now + SETTLE
        self._settling = {k: t for k, t in self._settling.items() if overview.now < t}

    def since(self, key: str) -> datetime | None:
        """Since when a machine has its state."""
        progress = self._machines.get(key)
        return progress.since if progress else None

    def rollout_since(self, cluster: str) -> datetime | None:
        """Since when a cluster has machines with an old template."""
        return self._rollouts.get(cluster)

    def timeline(self, key: str) -> list[tuple[str, datetime | None, datetime | None]]:
        """Stages with start and end; empty if this process did not observe the first stage."""
        progress = self._machines.get(key)
        if progress is None or not progress.complete:
            return []
        return [(s, progress.started.get(s), progress.finished.get(s)) for s in STAGES]

    def typical(self, region: str, stage: str) -> float | None:
        """The median of the last durations of a stage in a region."""
        samples = self._samples.get((region, stage))
        return statistics.median(samples) if samples else None

    # Durations, which survive a restart

    def load_durations(self, stored: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Load the durations of an earlier process, by region and stage."""
        for region, stages in stored.items():
            for stage, times in stages.items():
                if stage in STAGES:
                    self._samples[region, stage] = deque(map(float, times), maxlen=KEPT_SAMPLES)

    def dump_durations(self) -> dict[str, dict[str, list[float]]]:
        """The durations for the next process."""
        found: dict[str, dict[str, list[float]]] = {}
        for (region, stage), times in sorted(self._samples.items()):
            found.setdefault(region, {})[stage] = [round(t, 1) for t in times]
        return found

    # Updates

    def _update_machine(
        self, key: str, machine: MachineView, text: MachineText, now: datetime, *, silent: bool
    ) -> None:
        progress = self._machines.get(key)
        if progress is None:
            progress = self._machines[key] = self._new_machine(machine, text, now)
        if text.state not in _WITHOUT_STAGE and is_later(text.stage, progress.stage):
            self._pass_stage(progress, machine, text, now)
        if text.state != progress.state:
            if not self._is_known(progress, text, now, silent=silent):
                self._add_state_event(progress, machine, text, now)
            progress.state, progress.since = text.state, now
            progress.silent = silent and text.state == "unknown"

    def _is_known(
        self, progress: _MachineProgress, text: MachineText, now: datetime, *, silent: bool
    ) -> bool:
        """Whether a new state is no event: its cause is one, or this process has just started."""
        if progress.settles is not None and now < progress.settles:
            progress.joined = progress.joined or text.state == "ready"
            return text.state in {"unknown", "ready"}
        if text.state == "unknown":
            return silent
        return text.state == "ready" and progress.silent and progress.joined

    def _add_state_event(
        self, progress: _MachineProgress, machine: MachineView, text: MachineText, now: datetime
    ) -> None:
        if text.state in {"unknown", "trouble", "deleting"}:
            self._add_machine_event(now, text.state, machine, text.sentence)
        elif text.state == "ready":
            sentence = "Ready again" if progress.joined else "Joined as node, Ready"
            self._add_machine_event(now, "ready", machine, sentence)
            progress.joined = True

    def _new_machine(
        self, machine: MachineView, text: MachineText, now: datetime
    ) -> _MachineProgress:
        """A machine observed for the first time, which may be in any stage."""
        created = machine.created or now
        names = (short_name(machine), f"{machine.namespace}/{machine.cluster}")
        if self._first:
            ready = ready_condition(machine)
            since = ready.since if ready is not None and ready.since is not None else now
            progress = _MachineProgress(*names, text.state, text.stage, since, settles=now + SETTLE)
            progress.joined = not text.stage and text.state not in _WITHOUT_STAGE
        else:
            fresh = (now - created) < FRESH
            progress = _MachineProgress(*names, "", STAGES[0], now, complete=fresh)
            self._add_machine_event(now, "creating", machine, "Requested")
        progress.started[progress.stage or STAGES[0]] = created
        return progress

    def _pass_stage(
        self, progress: _MachineProgress, machine: MachineView, text: MachineText, now: datetime
    ) -> None:
        """Record every stage that passed since the last overview, also those never observed."""
        passed = _passed(progress.stage, text.stage)
        self._sample_durations(progress, machine.region, passed, text, now)
        progress.stage = text.stage
        for stage in passed:
            progress.started.setdefault(stage, now)
            progress.finished.setdefault(stage, now)
            if stage != "Join":  # the event follows when the node is Ready
                self._add_machine_event(now, "ready", machine, _finished_text(stage, machine))
        if text.stage:
            progress.started.setdefault(text.stage, now)

    def _sample_durations(
        self,
        progress: _MachineProgress,
        region: str,
        passed: Sequence[str],
        text: MachineText,
        now: datetime,
    ) -> None:
        """How long each of several stages took that passed between two overviews is not known."""
        started = progress.started.get(progress.stage)
        if started is None or len(passed) != 1 or not (text.stage or text.state == "ready"):
            return
        samples = self._samples.setdefault((region, passed[0]), deque(maxlen=KEPT_SAMPLES))
        samples.append((now - started).total_seconds())

    def _remove_deleted(self, there: set[str], now: datetime) -> None:
        for key in [k for k in self._machines if k not in there]:
            gone = self._machines.pop(key)
            text = "Deleted, with guest, disks and addresses"
            self._add_event(now, "ready", gone.name, text, gone.cluster)

    def _update_answers(self, overview: InfrastructureOverview) -> None:
        """Events of regions and hosts; a lost region is one event, not one for each host."""
        found = {r.name: r.name not in overview.lost_regions for r in overview.regions if r.read}
        for host in overview.hosts:
            if host.region not in overview.lost_regions:
                found[f"{host.region}/{host.name}"] = host.online
        for name, answers in found.items():
            was = self._answers.get(name)
            if was is True and not answers:
                self._add_event(overview.now, "trouble", name, "Does not answer")
            elif was is False and answers:
                self._add_event(overview.now, "ready", name, "Answers again")
        self._answers = {**self._answers, **found}

    def _add_machine_event(
        self, now: datetime, state: State, machine: MachineView, sentence: str
    ) -> None:
        key = f"{machine.namespace}/{machine.name}"
        cluster = f"{machine.namespace}/{machine.cluster}"
        self._add_event(now, state, short_name(machine), sentence, cluster, key)

    def _add_event(
        self,
        now: datetime,
        state: State,
        name: str,
        sentence: str,
        cluster: str = "",
        machine: str = "",
    ) -> None:
        self._number += 1
        self._events.append(
            HistoryEntry(self._number, now, state, name, sentence, cluster, machine)
        )


def is_later(stage: str, than: str) -> bool:
    """Whether a stage is later; empty is the end. Moves of several stages run in parallel."""
    if stage == than or not than:
        return stage != than and bool(stage)
    return not stage or STAGES.index(stage) > STAGES.index(than)


def _passed(stage: str, reached: str) -> tuple[str, ...]:
    """The stages that are finished when another, or the end, is reached."""
    end = STAGES.index(reached) if reached else len(STAGES)
    return STAGES[STAGES.index(stage) : end] if stage else ()


def _finished_text(stage: str, machine: MachineView) -> str:
    where = f"{machine.region}/{machine.host}" if machine.host else machine.region
    return {
        "Claim": f"VMID {machine.vmid} claimed in {machine.region}",
        "Clone": f"Cloned from {machine.template} on {where}",
        "Configure": f"Configured: {machine.cpus} vCPU, {machine.memory_mib // 1024} GiB",
        "Boot": f"Booted on {where}",
    }[stage]
