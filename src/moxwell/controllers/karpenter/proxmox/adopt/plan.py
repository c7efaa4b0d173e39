"""
The objects with which Moxwell adopts a guest that karpenter-provider-proxmox made. Pure.

The operator allows it by the tag of the cluster on the guest. The objects describe the guest as it
is, so that nothing drifts and nothing is changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.proxmox import machine_objects
from moxwell.controllers.karpenter.proxmox.class_hash import class_hash
from moxwell.controllers.karpenter.proxmox.instance_record import (
    InstanceRecord,
    machine_name,
    record_of,
)
from moxwell.controllers.karpenter.proxmox.node_class_check import SelectedZone
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.pve.model import ObservedGuest
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Writes
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE

SCHEME = "proxmox://"
MAX_DIGITS = 9  # of a VMID in Proxmox
RESCAN_SECONDS = 60.0
STEP_SECONDS = 1.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedForeignClaim:
    """A node claim whose guest exists; ``guest`` is None unless the operator lets us adopt it."""

    cluster: Key
    guest: ObservedGuest | None = None
    zone: SelectedZone | None = None  # of the node class, on the guest's host
    node_class: ProxmoxNodeClass | None = None
    machine: Machine | None = None
    proxmox: ProxmoxMachine | None = None
    defaults: MachineDefaults = field(default_factory=MachineDefaults)
    staying: ObservedGuest | None = None  # the guest of a claim that ends without its adoption


class AdoptionReason(StrEnum):
    """Reasons of the events of ``karpenter.adopt``."""

    NOT_OURS = "NotOurs"


def staying_message(guest: ObservedGuest) -> str:
    """What happens to a guest that was not adopted, and what to do."""
    name = f" ({guest.name})" if guest.name else ""
    return (
        f"guest {guest.vmid}{name} on {guest.host} was not made or adopted by this cluster, so it "
        "stays when the node claim is gone; delete it in Proxmox"
    )


def place_of(claim: NodeClaim) -> tuple[str, int] | None:
    """The region and VMID in the provider ID of a claim; None if it has another format."""
    region, _, vmid = claim.status.provider_id.removeprefix(SCHEME).rpartition("/")
    if not claim.status.provider_id.startswith(SCHEME) or not region:
        return None
    is_vmid = vmid.isdecimal() and len(vmid) <= MAX_DIGITS
    return (region, int(vmid)) if is_vmid else None


def next_move(claim: NodeClaim, seen: ObservedForeignClaim) -> Writes | Done:
    """Create the Machine with the record, then its ProxmoxMachine, which adopts the guest."""
    place = place_of(claim)
    if claim.deleting:
        return Done()
    if place is None or seen.guest is None or seen.zone is None or seen.node_class is None:
        return Done(RESCAN_SECONDS)
    if seen.machine is None:
        body = _machine(claim, seen, seen.node_class, seen.zone, seen.guest)
        return Writes((Create(body, Machine.resource),), requeue_after=STEP_SECONDS)
    record = record_of(seen.machine)
    if seen.proxmox is not None or record is None or not record.adopted:
        return Done(RESCAN_SECONDS)
    body = _proxmox_machine(claim, seen, seen.machine, record, place)
    return Writes((Create(body, ProxmoxMachine.resource),), requeue_after=STEP_SECONDS)


def _machine(
    claim: NodeClaim,
    seen: ObservedForeignClaim,
    node_class: ProxmoxNodeClass,
    zone: SelectedZone,
    guest: ObservedGuest,
) -> Json:
    name = machine_name(seen.cluster.name, claim.metadata.name, claim.metadata.uid)
    record = InstanceRecord(
        instance_type=claim.metadata.labels.get(INSTANCE_TYPE, ""),
        node_class=node_class.name,
        class_hash=class_hash(node_class),
        region=zone.key.region,
        host=guest.host,
        template=zone.template.vmid,
        template_host=zone.template.key.name,
        failure_domain=zone.failure_domain,
        capacity=_texts(claim.status.capacity),
        allocatable=_texts(claim.status.allocatable),
        cpus=max(1, int(guest.cpus)),
        memory_mib=guest.memory_bytes // MIB,
        disk_gib=guest.disk_bytes // GIB,
        adopted=True,
    )
    bootstrap = {"dataSecretName": name}  # the guest has booted: nobody reads it
    return machine_objects.machine(
        seen.cluster, name, claim, record, bootstrap, seen.defaults.version
    )


def _texts(amounts: Mapping[str, str | int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _proxmox_machine(
    claim: NodeClaim,
    seen: ObservedForeignClaim,
    machine: Machine,
    record: InstanceRecord,
    place: tuple[str, int],
) -> Json:
    """The ProxmoxMachine with the size that the guest has; nothing else of it is described."""
    assert seen.node_class is not None
    spec = machine_objects.changeable_spec(seen.node_class, seen.defaults) | {
        "region": place[0],
        "virtualMachineID": place[1],
        "providerID": claim.status.provider_id,
        "numSockets": 1,
        "numCores": record.cpus,
        "memoryMiB": record.memory_mib,
        "templateID": record.template,
        "sourceNode": record.template_host,
        "description": f"Node claim {claim.metadata.name}",
    }
    if record.instance_type:
        spec["instanceType"] = record.instance_type
    return machine_objects.owned_proxmox_machine(machine, spec)
