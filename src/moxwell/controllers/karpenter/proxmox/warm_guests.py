"""
Warm guests of one cluster: which are ready, and how a launch reserves and takes one.

A reservation is a write with the resource version that was read, before the Machine exists: two
Machines never refer to the same guest. A reserved guest that no Machine has taken is
deleted by ``karpenter.warmpool``.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.warm_guests import (
    RESERVED_FOR,
    WARM_GUEST_HASH,
    WARM_GUEST_OF,
    is_warm,
)
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.proxmox import machine_objects
from moxwell.controllers.karpenter.proxmox.catalogue import disk_gib
from moxwell.controllers.karpenter.proxmox.instance_record import CLAIM_UID
from moxwell.controllers.karpenter.proxmox.node_class_check import SelectedZone
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound, WriteConflict
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling import last_applied
from moxwell.scheduling.inventory_model import HostKey

Json = dict[str, Any]
RESERVE_TRIES = 3
NOT_OBSERVED = (
    (ProxmoxMachineReason.REGION_UNREACHABLE, "stopped"),
    (ProxmoxMachineReason.WARM, "unknown"),
)  # the first keeps the state
NOT_WARM = {WARM_GUEST_OF: None, WARM_GUEST_HASH: None, RESERVED_FOR: None}
DECIDED_BY_LAUNCH = ("templateName", "templateSelector", "numSockets", "numCores", "memoryMiB")


def warm_spec(node_class: ProxmoxNodeClass, zone: SelectedZone, defaults: MachineDefaults) -> Json:
    """The spec of a warm guest on a host: everything that the size of a node does not decide."""
    spec = machine_objects.defaults_without(defaults, *DECIDED_BY_LAUNCH) | {
        "disks": {"bootVolume": {"sizeGb": disk_gib(node_class.spec)}},
        "region": zone.key.region,
        "target": zone.key.name,
        "zones": [zone.failure_domain] if zone.failure_domain else [],
        "spread": "Ignore",
        "templateID": zone.template.vmid,
        "sourceNode": zone.template.key.name,
        "description": f"Warm guest of node class {node_class.name}",
    }
    spec |= machine_objects.boot_storage(node_class)
    if pool := node_class.spec.resource_pool or defaults.spec.get("pool"):
        spec["pool"] = pool
    return spec


def spec_hash(spec: Mapping[str, Any]) -> str:
    """What a warm guest is compared by: it is replaced if its node class or template changes."""
    text = json.dumps(spec, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class WarmGuests:
    """The warm guests of one cluster, in the management cluster."""

    def __init__(
        self,
        cluster: Key,
        kube: Kube,
        machines: Cache[ProxmoxMachine],
        defaults: Callable[[], MachineDefaults],
    ) -> None:
        self._cluster, self._kube, self._machines = cluster, kube, machines
        self._defaults = defaults

    def of(self, node_class: str) -> tuple[ProxmoxMachine, ...]:
        """All warm guests of a node class, by name."""
        found = (
            m
            for m in self._machines.list(self._cluster.namespace)
            if is_warm(m)
            and m.metadata.annotations[WARM_GUEST_OF] == node_class
            and m.metadata.labels.get(CLUSTER_NAME) == self._cluster.name
        )
        return tuple(sorted(found, key=lambda m: m.name))

    def ready(
        self, node_class: ProxmoxNodeClass, zones: Iterable[SelectedZone], uid: str
    ) -> dict[HostKey, ProxmoxMachine]:
        """A guest for each host that has one; only its own if the claim has reserved one."""
        usable = list(filter(is_ready, self._usable(node_class, zones, uid)))
        own = [m for m in usable if RESERVED_FOR in m.metadata.annotations]
        found: dict[HostKey, ProxmoxMachine] = {}
        for machine in own or usable:
            found.setdefault(host_of(machine), machine)
        return found

    def awaited(
        self, node_class: ProxmoxNodeClass, zones: Iterable[SelectedZone], uid: str
    ) -> frozenset[HostKey]:
        """
        Hosts whose guest was ready when it was last observed, before a restart or an outage.

        The machine controller observes it again before it could make another guest there, so a
        launch on such a host waits.
        """
        found = filter(is_unobserved, self._usable(node_class, zones, uid))
        return frozenset(map(host_of, found)) - self.ready(node_class, zones, uid).keys()

    def _usable(
        self, node_class: ProxmoxNodeClass, zones: Iterable[SelectedZone], uid: str
    ) -> Iterator[ProxmoxMachine]:
        """The guests of the present node class that this claim may have."""
        defaults = self._defaults()
        hashes = {z.key: spec_hash(warm_spec(node_class, z, defaults)) for z in zones}
        for machine in self.of(node_class.name):
            notes = machine.metadata.annotations
            same = hashes.get(host_of(machine)) == notes.get(WARM_GUEST_HASH)
            if same and notes.get(RESERVED_FOR, uid) == uid:
                yield machine

    async def reserve(self, warm: ProxmoxMachine, uid: str) -> bool:
        """
        Reserve a guest for a claim; false if another one has it.

        The cache may be older than the last write, which may be our own with a lost answer.
        """
        found: ProxmoxMachine | None = warm
        for _ in range(RESERVE_TRIES):
            if found is None or not is_warm(found):
                return False
            if (holder := found.metadata.annotations.get(RESERVED_FOR)) is not None:
                return holder == uid
            if await self._patch(found, {"metadata": {"annotations": {RESERVED_FOR: uid}}}):
                return True
            found = await self._kube.find(ProxmoxMachine, warm.name, warm.namespace)
        return False

    async def hand_over(self, warm: ProxmoxMachine, body: Json) -> bool:
        """Make the guest that of a launch: ``body`` is the ProxmoxMachine it becomes."""
        meta, spec = body["metadata"], body["spec"]
        applied = last_applied.wanted(msgspec.convert(spec, ProxmoxMachineSpec))
        every = dict.fromkeys(applied.__struct_encode_fields__) | msgspec.to_builtins(applied)
        change = {
            "metadata": {
                "annotations": NOT_WARM,
                "labels": meta["labels"],
                "ownerReferences": meta["ownerReferences"],
            },
            "spec": spec | {"zones": None, "claim": {"applied": every}},
        }
        return await self._patch(warm, change)

    async def _patch(self, warm: ProxmoxMachine, change: Json) -> bool:
        change["metadata"]["resourceVersion"] = warm.metadata.resource_version
        try:
            await self._kube.merge(ProxmoxMachine, warm.name, change, warm.namespace)
        except (WriteConflict, NotFound):
            return False
        return True


def host_of(machine: ProxmoxMachine) -> HostKey:
    return HostKey(machine.spec.region or "", machine.spec.target or "")


def is_ready(machine: ProxmoxMachine) -> bool:
    """Whether a guest is cloned and stopped."""
    return not machine.deleting and _state(machine) == (ProxmoxMachineReason.WARM, "stopped")


def is_unobserved(machine: ProxmoxMachine) -> bool:
    """Whether a guest was ready when its region, or its host's pvestatd, last answered."""
    return not machine.deleting and _state(machine) in NOT_OBSERVED


def _state(machine: ProxmoxMachine) -> tuple[str, str]:
    """The reason of the Ready condition, and the power state."""
    ready = next((c for c in machine.status.conditions if c.type == "Ready"), None)
    return ready.reason if ready else "", machine.status.power_state


def references(machines: Iterable[Machine]) -> dict[str, str]:
    """The UID of the claim by the name of the ProxmoxMachine that its Machine refers to."""
    named = ((m.spec.infrastructure_ref, m) for m in machines)
    return {ref.name: m.metadata.labels.get(CLAIM_UID, "") for ref, m in named if ref}
