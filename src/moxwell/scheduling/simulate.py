"""
Simulates the placements of a rollout with the real placement function. Pure.

Each new machine counts for the placement of the next one; each deleted one frees its resources.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from moxwell.scheduling import rollout
from moxwell.scheduling.inventory_model import (
    CandidateHost,
    HostKey,
    PendingGuest,
    PlacedReplica,
    Template,
)
from moxwell.scheduling.placement import choose_host
from moxwell.scheduling.placement_model import Placement, PlacementRequest

ENOUGH = 10_000


@dataclass(frozen=True, slots=True)
class PlacementInput:
    """Everything a placement depends on."""

    request: PlacementRequest
    hosts: tuple[CandidateHost, ...]
    templates: tuple[Template, ...]
    replicas: tuple[PlacedReplica, ...] = ()
    pending: tuple[PendingGuest, ...] = ()
    zoned: bool = False  # replicas are spread over the zones of the cluster

    def without_hosts(self, hosts: Collection[HostKey]) -> "PlacementInput":
        """The same input without some hosts."""
        return replace(self, hosts=tuple(h for h in self.hosts if h.key not in hosts))

    def place(self) -> Placement:
        """Place one machine."""
        return choose_host(
            self.request,
            self.hosts,
            templates=self.templates,
            replicas=self.replicas,
            pending=self.pending,
        )


@dataclass(frozen=True, slots=True)
class LeavingMachine:
    """A machine that may be deleted: its host and the resources it uses there."""

    name: str
    key: HostKey | None
    zone: str = ""
    cpus: int = 0
    memory_bytes: int = 0


SimulatedEvent = Placement | LeavingMachine  # a machine is placed, or deleted


@dataclass(slots=True)
class _Simulation:
    given: PlacementInput
    old: list[LeavingMachine]
    events: list[SimulatedEvent] = field(default_factory=list)

    def enter(self, count: int) -> None:
        for _ in range(count):
            placement = self.given.place()
            self.events.append(placement)
            if placement.chosen is not None:
                self.given = with_machine(self.given, placement)

    def leave(self, count: int) -> None:
        for gone in self.old[:count]:
            self.given = without_machine(self.given, gone)
            self.events.append(gone)
        del self.old[:count]


def simulate_rollout(
    given: PlacementInput,
    policy: rollout.RolloutPolicy,
    *,
    old: Sequence[LeavingMachine] = (),
    new: int = 0,
) -> tuple[SimulatedEvent, ...]:
    """
    The placements and deletions on the way to ``policy.replicas`` machines of the new template.

    ``old`` are the machines of earlier templates in the order of deletion; ``new`` is the number of
    existing machines of the new template.
    """
    simulation = _Simulation(_with_leaving(given, old), list(old))
    for _ in range(ENOUGH):
        parts = [
            rollout.ReplicaCounts("new", new, new, new, current=True),
            rollout.ReplicaCounts(
                "old", len(simulation.old), len(simulation.old), len(simulation.old)
            ),
        ]
        sizes = {r.name: r.replicas for r in rollout.scale(policy, parts)}
        if not sizes:
            break
        wanted = sizes.get("new", new)
        simulation.enter(max(0, wanted - new))
        new = wanted
        simulation.leave(len(simulation.old) - sizes.get("old", len(simulation.old)))
    return tuple(simulation.events)


def with_machine(given: PlacementInput, placement: Placement) -> PlacementInput:
    """The input after a placement."""
    chosen, request = placement.chosen, given.request
    if chosen is None:
        return given
    storage = request.storage
    guest = PendingGuest(
        chosen.key,
        request.cpus,
        request.memory_bytes,
        storage,
        request.disk_bytes if storage else 0,
    )
    replica = PlacedReplica(chosen.key, chosen.zone if given.zoned else "")
    return replace(
        given,
        replicas=(*given.replicas, replica),
        pending=(*given.pending, guest),
    )


def without_machine(given: PlacementInput, gone: LeavingMachine) -> PlacementInput:
    """The input after a deletion."""
    hosts = tuple(
        replace(
            h,
            cpus_taken=max(0, h.cpus_taken - gone.cpus),
            memory_taken=max(0, h.memory_taken - gone.memory_bytes),
        )
        if h.key == gone.key
        else h
        for h in given.hosts
    )
    replicas = list(given.replicas)
    same = [n for n in replicas if n.key == gone.key and n.zone == gone.zone]
    if same:
        replicas.remove(max(same, key=lambda n: n.leaving))
    return replace(given, hosts=hosts, replicas=tuple(replicas))


def _with_leaving(given: PlacementInput, old: Iterable[LeavingMachine]) -> PlacementInput:
    """The input with the replicas of old machines marked as those that leave."""
    for machine in old:
        if machine.key is None:
            continue
        same = PlacedReplica(machine.key, machine.zone)
        if same in given.replicas:
            at = given.replicas.index(same)
            marked = (*given.replicas[:at], replace(same, leaving=True), *given.replicas[at + 1 :])
            given = replace(given, replicas=marked)
    return given
