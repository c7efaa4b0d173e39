"""
In which order the node groups of a tenant cluster change, and which groups wait. Pure.

Groups that only change their replica count come first, one at a time, each until its machines are
placed and deleted ones are gone; they wait for no rollout. Then groups that were removed from the
spec are deleted. Then groups roll, one at a time. So the host of a machine does not depend on which
of two controllers was faster, and a plan can predict hosts. A group that makes no progress (no
capacity, no template) stops blocking the others after a time.
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
ROLLOUT_STALL_SECONDS = 600.0  # a group without progress for so long blocks no other rollout
SCALE_STALL_SECONDS = 60.0  # and after this time it blocks no other group's replica count


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come; an equal value later means no progress."""

    generation: int
    machines: tuple[tuple[str, bool, str], ...]  # name, placed, phase
    up_to_date: int

    @classmethod
    def of(
        cls,
        group: MachineDeployment,
        machines: Iterable[Machine],
        proxmox_machines: Iterable[ProxmoxMachine],
    ) -> "GroupProgress":
        placed = {p.name for p in proxmox_machines if p.spec.claim is not None}
        rows = tuple(
            sorted(
                (m.name, m.name in placed, m.status.phase or "") for m in of_group(group, machines)
            )
        )
        return cls(group.metadata.generation, rows, group.status.up_to_date_replicas or 0)


def of_group(group: MachineDeployment, machines: Iterable[Machine]) -> list[Machine]:
    """The machines of a group."""
    return [m for m in machines if m.metadata.labels.get(DEPLOYMENT_NAME) == group.name]


def is_changing(
    group: MachineDeployment,
    machines: Iterable[Machine],
    proxmox_machines: Iterable[ProxmoxMachine],
) -> bool:
    """Whether machines of a group are still created, placed, replaced or deleted."""
    mine = of_group(group, machines)
    wanted = 1 if group.spec.replicas is None else group.spec.replicas
    status = group.status
    if status.observed_generation < group.metadata.generation:
        return True
    if len(mine) != wanted or any(m.deleting for m in mine):
        return True
    if (status.up_to_date_replicas or 0) != wanted or (status.replicas or 0) != wanted:
        return True
    return _has_unplaced(mine, proxmox_machines)


def blocks_scaling(
    group: MachineDeployment,
    machines: Iterable[Machine],
    proxmox_machines: Iterable[ProxmoxMachine],
) -> bool:
    """Whether replica counts of other groups wait for this group; a rollout does not block them."""
    status, generation = group.status, group.metadata.generation
    rolling = (status.replicas or 0) > (status.up_to_date_replicas or 0)
    if status.observed_generation < generation or not rolling:
        return is_changing(group, machines, proxmox_machines)
    return _has_unplaced(of_group(group, machines), proxmox_machines)


def _has_unplaced(mine: Iterable[Machine], proxmox_machines: Iterable[ProxmoxMachine]) -> bool:
    by_name = {(p.namespace, p.name): p for p in proxmox_machines}
    return any(_awaits_placement(by_name.get((m.namespace, _infra_name(m)))) for m in mine)


def rolls(tree: Json, existing: Iterable[MachineDeployment]) -> bool:
    """Whether the desired MachineDeployment replaces machines of an existing one."""
    found = next((d for d in existing if d.name == tree["metadata"]["name"]), None)
    return found is not None and _template_differs(found, tree)


def is_newer_than_control_plane(
    tree: Json, existing: Iterable[MachineDeployment], control_plane_version: str
) -> bool:
    """Whether an existing group would get a newer version than the control plane runs."""
    spec = tree["spec"]["template"]["spec"]
    wanted, runs = version(spec.get("version", "")), version(control_plane_version)
    found = next((d for d in existing if d.name == tree["metadata"]["name"]), None)
    if found is None or wanted is None or runs is None:
        return False
    return found.spec.template.spec.version != spec["version"] and runs < wanted


def _infra_name(machine: Machine) -> str:
    ref = machine.spec.infrastructure_ref
    return ref.name if ref else machine.name


def _awaits_placement(proxmox_machine: ProxmoxMachine | None) -> bool:
    """It has no host yet, and no failure is reported that would explain it."""
    if proxmox_machine is None:
        return True
    spec = proxmox_machine.spec
    if spec.claim is not None or spec.virtual_machine_id is not None:
        return False
    ready = next((c for c in proxmox_machine.status.conditions if c.type == "Ready"), None)
    return ready is None or ready.status != "False" or ready.reason.startswith("Waiting")


@dataclass(frozen=True, slots=True)
class WaitingGroup:
    """A group whose change waits; ``scales`` if its number of nodes changes."""

    name: str
    waits_for: str
    scales: bool

    def __str__(self) -> str:
        return f"{self.name} waits for {self.waits_for}"


def waiting_groups(
    waiting: Sequence[Json], waits_for: str, existing: Iterable[MachineDeployment]
) -> tuple[WaitingGroup, ...]:
    """Of the desired MachineDeployments that are not written yet, those that change something."""
    known = {d.name: d for d in existing}
    rows = []
    for tree in waiting:
        name, found = tree["metadata"]["name"], known.get(tree["metadata"]["name"])
        wanted = tree["spec"].get("replicas")
        scales = found is None or (wanted is not None and found.spec.replicas != wanted)
        if scales or (found is not None and _template_differs(found, tree)):
            rows.append(WaitingGroup(name, waits_for, scales))
    return tuple(rows)


def _template_differs(found: MachineDeployment, tree: Json) -> bool:
    spec = tree["spec"]["template"]["spec"]
    ref, config = found.spec.template.spec.infrastructure_ref, found.spec.template.spec.bootstrap
    return bool(
        spec.get("version", "") != found.spec.template.spec.version
        or spec.get("failureDomain", "") != (found.spec.template.spec.failure_domain or "")
        or spec["infrastructureRef"]["name"] != (ref.name if ref else "")
        or spec["bootstrap"]["configRef"]["name"]
        != (config.config_ref.name if config.config_ref else "")
    )
