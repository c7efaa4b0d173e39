"""
Whether a machine needs a host: the first one, or another one because the claimed one failed. Pure.

``see`` uses it to choose what to read, ``plan`` to choose the move.
"""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.controllers.infra.machine.observed import ObservedProxmoxMachine, OwnerObjects
from moxwell.pve import errors
from moxwell.runtime.move import Wait
from moxwell.scheduling.inventory_model import HostKey

IDLE_SECONDS = 60.0  # a clone lock without a task, on a host that is online
OFFLINE_SECONDS = 300.0  # a clone lock on a host that is offline
GIVE_UP_HOST = (
    errors.StorageFull,
    errors.NotSupported,
    errors.HostMissing,
    errors.HostUnreachable,
    errors.VolumeMissing,
)


def own_name(obj: ProxmoxMachine) -> str:
    """The claimed guest as region/VMID."""
    return f"{obj.spec.region}/{obj.spec.virtual_machine_id}"


def missing_prerequisite(obj: ProxmoxMachine, owners: OwnerObjects) -> Wait | None:
    """What other controllers must do before a VMID is claimed; None afterwards."""
    if obj.spec.provider_id or obj.spec.virtual_machine_id:
        return None
    if not (
        owners.cluster.status.initialization.infrastructure_provisioned
        or owners.proxmox_cluster.status.initialization.provisioned
    ):
        message = f"ProxmoxCluster {owners.proxmox_cluster.name} is not provisioned yet"
        return Wait(ProxmoxMachineReason.WAITING_FOR_CLUSTER_INFRASTRUCTURE, message)
    bootstrap = owners.machine.spec.bootstrap
    if bootstrap.data_secret_name is None and bootstrap.config_ref is not None:
        config = bootstrap.config_ref
        message = f"{config.kind} {config.name} has no bootstrap data yet"
        return Wait(ProxmoxMachineReason.WAITING_FOR_BOOTSTRAP_DATA, message)
    return None


def is_stale(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> bool:
    """Whether the claimed guest is an incomplete clone that no task continues."""
    guest = seen.guest
    if obj.spec.provider_id or seen.task_running or guest is None or guest.ours:
        return False
    if guest.config is not None and guest.config.is_stale_clone and not guest.config.lock:
        return True  # somebody has unlocked it
    idle = seen.idle_clone_seconds
    if idle is None:
        return False
    if not guest.host_online:
        return idle >= OFFLINE_SECONDS
    return idle >= IDLE_SECONDS and seen.clone_tasks_run is False


def hosts_to_avoid(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> frozenset[HostKey] | None:
    """The hosts to avoid in a new placement; None if the claimed host is still right."""
    claim, guest = obj.spec.claim, seen.guest
    if claim is None or obj.spec.provider_id or not seen.region.usable:
        return None
    claimed = frozenset({HostKey(obj.spec.region or "", claim.host)})
    if is_stale(obj, seen):
        return frozenset() if seen.claim_host_online else claimed
    if guest is not None:
        return frozenset() if not guest.ours and not guest.cloning else None
    if not seen.claim_host_online:
        return claimed
    failure = seen.failure
    if failure is None or failure.count < 2 or seen.task_running:
        return None
    return claimed if isinstance(failure.error, GIVE_UP_HOST) else None


def needs_place(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> bool:
    """Whether a host is to be chosen in this pass."""
    if seen.owners is None or missing_prerequisite(obj, seen.owners) is not None:
        return False
    if obj.spec.virtual_machine_id is None:
        return True
    return hosts_to_avoid(obj, seen) is not None


def abandoned(obj: ProxmoxMachine, seen: ObservedProxmoxMachine) -> tuple[str, ...]:
    """The stale clones of a new claim: the old VMID too, unless another guest has taken it."""
    claim = obj.spec.claim
    if claim is None:
        return ()
    taken = seen.guest is not None and not is_stale(obj, seen)
    new = () if taken else (own_name(obj),)
    return tuple(dict.fromkeys([*claim.stale_clones, *new]))
