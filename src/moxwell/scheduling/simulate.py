"""
Where machines would land if somebody asked for them now: the real choice, played forward.

In flow a :class:`Survey` of the world, how many machines there are of the old and the new template
and the way a group rolls; out flow placements and departures in the order in which they would
happen. Each new machine counts for the next one, each old one that leaves makes room.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from moxwell.scheduling import rollout
from moxwell.scheduling.inventory_model import Flight, Host, HostKey, Neighbour, Template
from moxwell.scheduling.placement import Ask, Placement, choose_host

ENOUGH = 10_000


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything a placement depends on."""

    ask: Ask
    hosts: tuple[Host, ...]
    templates: tuple[Template, ...]
    neighbours: tuple[Neighbour, ...] = ()
    flights: tuple[Flight, ...] = ()
    zoned: bool = False  # replicas are spread over zones that somebody named

    def without(self, hosts: Collection[HostKey]) -> "Survey":
        """The same world as if some hosts were not in it."""
        return replace(self, hosts=tuple(h for h in self.hosts if h.key not in hosts))

    def place(self) -> Placement:
        """The choice for one machine, now."""
        return choose_host(
            self.ask,
            self.hosts,
            templates=self.templates,
            neighbours=self.neighbours,
            in_flight=self.flights,
        )


@dataclass(frozen=True, slots=True)
class Old:
    """A machine that may leave: where it is and what it takes there."""

    name: str
    key: HostKey | None
    zone: str = ""
    cpus: int = 0
    memory_bytes: int = 0


Event = Placement | Old  # somebody comes, somebody leaves


@dataclass(slots=True)
class _Stage:
    survey: Survey
    old: list[Old]
    events: list[Event] = field(default_factory=list)

    def enter(self, count: int) -> None:
        for _ in range(count):
            placement = self.survey.place()
            self.events.append(placement)
            if placement.chosen is not None:
                self.survey = with_one_more(self.survey, placement)

    def leave(self, count: int) -> None:
        for gone in self.old[:count]:
            self.survey = without(self.survey, gone)
            self.events.append(gone)
        del self.old[:count]


def foresee(
    survey: Survey, policy: rollout.Policy, *, old: Sequence[Old] = (), new: int = 0
) -> tuple[Event, ...]:
    """
    What happens on the way to ``policy.replicas`` machines of the new template.

    ``old`` are the machines of former templates, in the order in which they would leave; ``new``
    is how many there are of the new one already.
    """
    stage = _Stage(survey, list(old))
    for _ in range(ENOUGH):
        parts = [
            rollout.Part("new", new, new, new, current=True),
            rollout.Part("old", len(stage.old), len(stage.old), len(stage.old)),
        ]
        sizes = {r.name: r.replicas for r in rollout.resize(policy, parts)}
        if not sizes:
            break
        wanted = sizes.get("new", new)
        stage.enter(max(0, wanted - new))
        new = wanted
        stage.leave(len(stage.old) - sizes.get("old", len(stage.old)))
    return tuple(stage.events)


def with_one_more(survey: Survey, placement: Placement) -> Survey:
    """The world after a placement."""
    chosen, ask = placement.chosen, survey.ask
    if chosen is None:
        return survey
    storage = ask.storage
    flight = Flight(
        chosen.key, ask.cpus, ask.memory_bytes, storage, ask.disk_bytes if storage else 0
    )
    near = Neighbour(chosen.key, chosen.zone if survey.zoned else "")
    return replace(
        survey,
        neighbours=(*survey.neighbours, near),
        flights=(*survey.flights, flight),
    )


def without(survey: Survey, gone: Old) -> Survey:
    """The world after somebody has left."""
    hosts = tuple(
        replace(
            h,
            cpus_taken=max(0, h.cpus_taken - gone.cpus),
            memory_taken=max(0, h.memory_taken - gone.memory_bytes),
        )
        if h.key == gone.key
        else h
        for h in survey.hosts
    )
    near = list(survey.neighbours)
    same = next((n for n in near if n.key == gone.key and n.zone == gone.zone), None)
    if same is not None:
        near.remove(same)
    return replace(survey, hosts=hosts, neighbours=tuple(near))
