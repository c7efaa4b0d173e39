"""The next move and the status of a ProxmoxNodeClass. Pure."""

from dataclasses import dataclass, field
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import RESERVED_FOR
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass, ProxmoxNodeClassStatus
from moxwell.controllers.karpenter.proxmox.class_hash import class_hash
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLASS_HASH,
    CLASS_HASH_VERSION,
    HASH_VERSION,
)
from moxwell.controllers.karpenter.proxmox.machine_objects import changeable_spec
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    CheckedNodeClass,
    NodeClassPart,
    NodeClassProblem,
    NodeClassReason,
)
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Writes
from moxwell.scheduling.inventory_model import HostKey

RESCAN_SECONDS = 30.0
WARM_SECONDS = 5.0
SHOWN_CLAIMS = 5
SHOWN_HOSTS = 5
CPUS_PINNED = "CPUsPinned"  # only of node classes with the policy static


@dataclass(frozen=True, slots=True)
class ObservedNodeClass:
    """What was observed of a node class."""

    checked: CheckedNodeClass = field(default_factory=CheckedNodeClass)
    metadata: NodeClassProblem | None = None
    claims: tuple[str, ...] = ()  # that use it
    warm: tuple[ProxmoxMachine, ...] = ()  # its warm guests; read while it is deleted
    machines: tuple[ProxmoxMachine, ...] = ()  # made from it
    defaults: MachineDefaults = field(default_factory=MachineDefaults)
    pins: bool = False  # each vCPU shall have a CPU of its own
    unpinned: tuple[HostKey, ...] = ()  # hosts where nothing is known to pin them

    @property
    def problems(self) -> tuple[NodeClassProblem, ...]:
        return (*self.checked.problems, *((self.metadata,) if self.metadata else ()))


@dataclass(frozen=True, slots=True)
class ChangeMachines:
    """Change tags, security groups and resource pools of machines in the management cluster."""

    writes: Writes


NodeClassMove = Writes | ChangeMachines | Wait | Done


def next_move(obj: ProxmoxNodeClass, seen: ObservedNodeClass) -> NodeClassMove:
    """Keep the class while claims use it, record its hash, and change its machines in place."""
    if obj.deleting:
        return _delete_warm_guests(seen) or (_wait_for_claims(seen) if seen.claims else Done())
    if change := _hash_change(obj):
        return Writes((Merge(ProxmoxNodeClass, obj.name, change),))
    if not seen.problems and (changes := _machine_changes(obj, seen)):
        return ChangeMachines(Writes(changes, requeue_after=RESCAN_SECONDS))
    return Done(RESCAN_SECONDS)


def _delete_warm_guests(seen: ObservedNodeClass) -> ChangeMachines | Wait | None:
    """Delete warm guests, of which claims may have reserved some, and wait until all are gone."""
    free = [
        m
        for m in seen.warm
        if not m.deleting and not (seen.claims and RESERVED_FOR in m.metadata.annotations)
    ]
    if free:
        deletions = tuple(Delete(ProxmoxMachine, m.name, m.namespace, uid=m.uid) for m in free)
        return ChangeMachines(Writes(deletions, requeue_after=WARM_SECONDS))
    if not seen.warm or seen.claims:
        return None
    names = ", ".join(m.name for m in seen.warm[:SHOWN_CLAIMS])
    return Wait(NodeClassReason.IN_USE, f"its warm guests are deleted: {names}", WARM_SECONDS)


def _wait_for_claims(seen: ObservedNodeClass) -> Wait:
    shown = ", ".join(seen.claims[:SHOWN_CLAIMS])
    more = len(seen.claims) - SHOWN_CLAIMS
    rest = f" and {more} more" if more > 0 else ""
    return Wait(NodeClassReason.IN_USE, f"node claims use it: {shown}{rest}; delete them first")


def _hash_change(obj: ProxmoxNodeClass) -> dict[str, Any] | None:
    wanted = {CLASS_HASH: class_hash(obj), CLASS_HASH_VERSION: HASH_VERSION}
    known = obj.metadata.annotations
    if all(known.get(name) == value for name, value in wanted.items()):
        return None
    return {"metadata": {"annotations": wanted}}


def _machine_changes(obj: ProxmoxNodeClass, seen: ObservedNodeClass) -> tuple[Merge, ...]:
    wanted = changeable_spec(obj, seen.defaults)
    change = {"spec": wanted | {"changes": "InPlace"}}
    return tuple(
        Merge(ProxmoxMachine, m.name, change, m.namespace, missing_ok=True)
        for m in seen.machines
        if not m.deleting and _differs(m, wanted)
    )


def _differs(machine: ProxmoxMachine, wanted: dict[str, Any]) -> bool:
    spec = machine.spec
    return (
        list(spec.tags) != wanted["tags"]
        or list(spec.firewall_groups) != wanted["firewallGroups"]
        or ("pool" in wanted and spec.pool != wanted["pool"])
    )


def describe(
    obj: ProxmoxNodeClass, seen: ObservedNodeClass, move: NodeClassMove
) -> ProxmoxNodeClassStatus:
    """A condition for each part, and Ready if all are true."""
    parts = tuple(_condition(obj, part, seen.problems) for part in NodeClassPart)
    wrong = next((c for c in parts if c.status == "False"), None)
    ready = Condition(
        type="Ready",
        status="False" if wrong else "True",
        reason=wrong.reason if wrong else NodeClassReason.READY,
        message=wrong.message if wrong else "",
        observed_generation=obj.metadata.generation,
    )
    zones = tuple(sorted({str(zone) for zone in seen.checked.zones}))
    return ProxmoxNodeClassStatus(
        conditions=(ready, *parts, *_cpus_pinned(obj, seen)),
        resources={"zones": str(len(zones))},
        selected_zones=zones,
    )


def _cpus_pinned(obj: ProxmoxNodeClass, seen: ObservedNodeClass) -> tuple[Condition, ...]:
    """Whether the CPUs that launches choose are also set; it is no part of Ready."""
    if not seen.pins:
        return ()
    hosts = ", ".join(map(str, seen.unpinned[:SHOWN_HOSTS]))
    more = len(seen.unpinned) - SHOWN_HOSTS
    rest = f" and {more} more" if more > 0 else ""
    message = (
        f"no host agent publishes the CPUs of {hosts}{rest}, and only root@pam may set the "
        "affinity of a guest: memory is bound there, vCPUs are not pinned; install moxwell-agent "
        "on these hosts or log in as root@pam with a password"
    )
    return (
        Condition(
            type=CPUS_PINNED,
            status="False" if hosts else "True",
            reason=NodeClassReason.HOST_AGENT_MISSING if hosts else NodeClassReason.READY,
            message=message if hosts else "",
            observed_generation=obj.metadata.generation,
        ),
    )


def _condition(
    obj: ProxmoxNodeClass, part: NodeClassPart, problems: tuple[NodeClassProblem, ...]
) -> Condition:
    found = [p for p in problems if p.part is part]
    return Condition(
        type=part,
        status="False" if found else "True",
        reason=found[0].reason if found else NodeClassReason.READY,
        message="; ".join(p.message for p in found),
        observed_generation=obj.metadata.generation,
    )
