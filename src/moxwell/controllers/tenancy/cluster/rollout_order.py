"""
One node group after the other: which groups may change now, and which wait for their turn. Pure.

Counts come first: a group that only grows or shrinks has the turn until its machines are placed
and those that leave are gone, and waits for no rollout. Then whole groups that nobody wants any
more go, and wait for no rollout either. Then groups roll, one after the other. So
the place of a machine never depends on which of two loops was quicker, and a plan can name hosts.
A group that cannot go on (no room, no template) gives its turn away.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.scheduling.templates import version

Json = dict[str, Any]
PATIENCE_SECONDS = 600.0  # a group in which nothing happens for so long holds no rollout up
COUNT_PATIENCE_SECONDS = 60.0  # nor, after this, another group's count


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is: equal values, nothing happened."""

    generation: int
    machines: tuple[tuple[str, bool, str], ...]  # name, placed, phase
    up_to_date: int

    @classmethod
    def of(
        cls, group: MachineDeployment, machines: Iterable[Machine], guests: Iterable[ProxmoxMachine]
    ) -> "Progress":
        placed = {g.name for g in guests if g.spec.claim is not None}
        rows = tuple(
            sorted(
                (m.name, m.name in placed, m.status.phase or "") for m in of_group(group, machines)
            )
        )
        return cls(group.metadata.generation, rows, group.status.up_to_date_replicas or 0)


def of_group(group: MachineDeployment, machines: Iterable[Machine]) -> list[Machine]:
    """The machines of a group."""
    return [m for m in machines if m.metadata.labels.get(DEPLOYMENT_NAME) == group.name]


def is_moving(
    group: MachineDeployment, machines: Iterable[Machine], guests: Iterable[ProxmoxMachine]
) -> bool:
    """Whether a group still has the turn."""
    mine = of_group(group, machines)
    wanted = 1 if group.spec.replicas is None else group.spec.replicas
    status = group.status
    if status.observed_generation < group.metadata.generation:
        return True
    if len(mine) != wanted or any(m.deleting for m in mine):
        return True
    if (status.up_to_date_replicas or 0) != wanted or (status.replicas or 0) != wanted:
        return True
    return _is_unplaced(mine, guests)


def holds(
    group: MachineDeployment, machines: Iterable[Machine], guests: Iterable[ProxmoxMachine]
) -> bool:
    """Whether the counts of other groups wait for this one: for its rollout they do not."""
    status, generation = group.status, group.metadata.generation
    rolling = (status.replicas or 0) > (status.up_to_date_replicas or 0)
    if status.observed_generation < generation or not rolling:
        return is_moving(group, machines, guests)
    return _is_unplaced(of_group(group, machines), guests)


def _is_unplaced(mine: Iterable[Machine], guests: Iterable[ProxmoxMachine]) -> bool:
    by_name = {(g.namespace, g.name): g for g in guests}
    return any(_is_on_its_way(m, by_name.get((m.namespace, _guest_name(m)))) for m in mine)


def rolls(tree: Json, there: Iterable[MachineDeployment]) -> bool:
    """Whether a wanted group exchanges machines of a group that is there."""
    found = next((d for d in there if d.name == tree["metadata"]["name"]), None)
    return found is not None and _differs(found, tree)


def outruns(tree: Json, there: Iterable[MachineDeployment], plane: str) -> bool:
    """Whether a group would get a newer version than its control plane runs: never."""
    spec = tree["spec"]["template"]["spec"]
    wanted, runs = version(spec.get("version", "")), version(plane)
    found = next((d for d in there if d.name == tree["metadata"]["name"]), None)
    if found is None or wanted is None or runs is None:
        return False
    return found.spec.template.spec.version != spec["version"] and runs < wanted


def _guest_name(machine: Machine) -> str:
    ref = machine.spec.infrastructure_ref
    return ref.name if ref else machine.name


def _is_on_its_way(machine: Machine, guest: ProxmoxMachine | None) -> bool:
    """No place yet, and no reason known why there is none."""
    if guest is None:
        return True
    if guest.spec.claim is not None or guest.spec.virtual_machine_id is not None:
        return False
    said = next((c for c in guest.status.conditions if c.type == "Ready"), None)
    return said is None or said.status != "False" or said.reason.startswith("Waiting")


@dataclass(frozen=True, slots=True)
class Queued:
    """A group that waits for its turn; ``counts``: it will have another number of nodes."""

    name: str
    behind: str
    counts: bool

    def sentence(self) -> str:
        return f"{self.name} follows when {self.behind} has settled"


def queued(
    waiting: Sequence[Json], behind: str, there: Iterable[MachineDeployment]
) -> tuple[Queued, ...]:
    """Groups that have not had their turn, told by the deployments they should become."""
    known = {d.name: d for d in there}
    rows = []
    for tree in waiting:
        name, found = tree["metadata"]["name"], known.get(tree["metadata"]["name"])
        wanted = tree["spec"].get("replicas")
        counts = found is None or (wanted is not None and found.spec.replicas != wanted)
        if counts or (found is not None and _differs(found, tree)):
            rows.append(Queued(name, behind, counts))
    return tuple(rows)


def _differs(found: MachineDeployment, tree: Json) -> bool:
    spec = tree["spec"]["template"]["spec"]
    ref, config = found.spec.template.spec.infrastructure_ref, found.spec.template.spec.bootstrap
    return bool(
        spec.get("version", "") != found.spec.template.spec.version
        or spec.get("failureDomain", "") != (found.spec.template.spec.failure_domain or "")
        or spec["infrastructureRef"]["name"] != (ref.name if ref else "")
        or spec["bootstrap"]["configRef"]["name"]
        != (config.config_ref.name if config.config_ref else "")
    )
