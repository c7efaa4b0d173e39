"""The moves of ``infra.machine``, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim, LastApplied
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import OwnerReference
from moxwell.bootstrap.network_plan import AddressRequest
from moxwell.controllers.infra.machine.observed import TakenAddress
from moxwell.controllers.infra.patches import explicit
from moxwell.pve.reservations import Reservation
from moxwell.pve.steps import Step
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait

ZONE_LABEL = "topology.kubernetes.io/proxmox-zone"


@dataclass(frozen=True, slots=True)
class MachineVersion:
    """The ProxmoxMachine that a move writes, at the version the decision is based on."""

    namespace: str
    name: str
    uid: str
    resource_version: str

    @classmethod
    def of(cls, obj: ProxmoxMachine) -> "MachineVersion":
        meta = obj.metadata
        return cls(meta.namespace, meta.name, meta.uid, meta.resource_version)

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class ReserveVMID:
    """Write region, VMID, host and template to the spec before anything is created."""

    target: MachineVersion
    region: str
    vmid: int
    claim: Claim
    reservation: Reservation = field(repr=False)
    message: str = ""

    def patch(self) -> dict[str, Any]:
        spec = {
            "region": self.region,
            "virtualMachineID": self.vmid,
            "claim": explicit(self.claim),
        }
        return {"labels": {ZONE_LABEL: self.claim.zone or "default"}, "spec": spec}


@dataclass(frozen=True, slots=True)
class AdoptGuest:
    """Write the claim of a guest that CAPMOX created."""

    target: MachineVersion
    claim: Claim

    def patch(self) -> dict[str, Any]:
        return {"spec": {"claim": explicit(self.claim)}}


@dataclass(frozen=True, slots=True)
class RecordApplied:
    """Write to the claim what was applied to the guest, so that it can be removed later."""

    target: MachineVersion
    applied: LastApplied

    def patch(self) -> dict[str, Any]:
        return {"spec": {"claim": {"applied": explicit(self.applied)}}}


@dataclass(frozen=True, slots=True)
class SetProviderID:
    """Write the providerID; from then on a guest that does not exist counts as vanished."""

    target: MachineVersion
    provider_id: str

    def patch(self) -> dict[str, Any]:
        return {"spec": {"providerID": self.provider_id}}


@dataclass(frozen=True, slots=True)
class ForgetStaleClone:
    """Remove deleted stale clones from the claim; ``stale_clones`` are the remaining ones."""

    target: MachineVersion
    stale_clones: tuple[str, ...]

    def patch(self) -> dict[str, Any]:
        rest = list(self.stale_clones) or None
        return {"spec": {"claim": {"staleClones": rest, "left": None}}}


@dataclass(frozen=True, slots=True)
class DeleteWarmGuest:
    """Delete a warm guest's ProxmoxMachine, because its cluster is being deleted."""

    target: MachineVersion


SpecPatch = ReserveVMID | AdoptGuest | RecordApplied | SetProviderID | ForgetStaleClone


@dataclass(frozen=True, slots=True)
class ClaimAddresses:
    """Create the missing IPAddressClaims and delete those that are wrong."""

    namespace: str
    owner: OwnerReference = field(repr=False)
    requests: tuple[AddressRequest, ...]
    wrong: tuple[str, ...] = ()
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        obj: ProxmoxMachine,
        requests: tuple[AddressRequest, ...],
        wrong: tuple[str, ...],
        **more: Any,
    ) -> "ClaimAddresses":
        return cls(obj.namespace, owner_reference(obj), requests, wrong, **more)


@dataclass(frozen=True, slots=True)
class SetAddressesAside:
    """
    Keep claims whose addresses somebody else uses as reservations, so that others are given.

    They belong to the ProxmoxCluster then.
    """

    namespace: str
    owner: OwnerReference = field(repr=False)
    taken: tuple[TakenAddress, ...]

    @property
    def message(self) -> str:
        return "; ".join(map(str, self.taken)) + "; another one is claimed"


@dataclass(frozen=True, slots=True)
class ReleaseAddresses:
    """Delete the IPAddressClaims, or, for a guest that is kept, keep them without an owner."""

    namespace: str
    claims: tuple[str, ...]
    keep: bool = False


@dataclass(frozen=True, slots=True)
class TakeStep:
    """Perform one step on Proxmox."""

    owner: Key
    step: Step
    scope: str = ""  # the cluster whose own regions it may use

    def __str__(self) -> str:
        return str(self.step)


AddressMove = ClaimAddresses | SetAddressesAside | ReleaseAddresses
Move = SpecPatch | AddressMove | DeleteWarmGuest | TakeStep | Wait | Done


def name_of(move: Move) -> str:
    """The value of ``status.nextMove``."""
    if isinstance(move, Done):
        return ""
    if isinstance(move, Wait):
        return f"wait: {move.reason}"
    return type(move.step if isinstance(move, TakeStep) else move).__name__
