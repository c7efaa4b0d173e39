"""Decides what a machine waits for while its guest has a QEMU process but is not running. Pure."""

from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.controllers.infra.machine.observed import MachineGuest
from moxwell.pve.run_states import RunState
from moxwell.runtime.move import Wait

RESUME = "resume it in Proxmox (qm resume)"
RESET = "reset or stop it in Proxmox; its console and the log of the host name the cause"
STATES: dict[str, tuple[ProxmoxMachineReason, str]] = {
    RunState.PAUSED: (ProxmoxMachineReason.PAUSED, RESUME),
    RunState.DEBUG: (ProxmoxMachineReason.PAUSED, "a debugger has stopped it"),
    RunState.SUSPENDED: (ProxmoxMachineReason.SUSPENDED, "it sleeps (ACPI S3); " + RESUME),
    RunState.PRELAUNCH: (ProxmoxMachineReason.STARTING, "QEMU has started, its CPUs have not"),
    RunState.SHUTDOWN: (ProxmoxMachineReason.STOPPED, "it has shut down, QEMU has not ended yet"),
    RunState.INTERNAL_ERROR: (
        ProxmoxMachineReason.GUEST_FAILED,
        "QEMU stopped it after an internal error; " + RESET,
    ),
    RunState.IO_ERROR: (
        ProxmoxMachineReason.GUEST_FAILED,
        "a disk failed or its storage is full; repair the storage, then " + RESUME,
    ),
    RunState.WATCHDOG: (ProxmoxMachineReason.GUEST_FAILED, "its watchdog expired; " + RESET),
    RunState.GUEST_PANICKED: (ProxmoxMachineReason.GUEST_FAILED, "its kernel panicked; " + RESET),
    RunState.INMIGRATE: (ProxmoxMachineReason.MIGRATING, "its migration has not finished"),
    RunState.FINISH_MIGRATE: (ProxmoxMachineReason.MIGRATING, "its migration finishes"),
    RunState.POSTMIGRATE: (ProxmoxMachineReason.MIGRATING, "it was migrated, or saved, and waits"),
    RunState.SAVE_VM: (ProxmoxMachineReason.TASK_RUNNING, "its state is saved for a snapshot"),
    RunState.RESTORE_VM: (ProxmoxMachineReason.TASK_RUNNING, "its state is restored"),
    RunState.COLO: (ProxmoxMachineReason.TASK_RUNNING, "a checkpoint is made"),
}


def wait_to_execute(guest: MachineGuest) -> Wait:
    """The wait for a guest that does not execute, reported as what it is."""
    status = guest.seen.status
    unknown = (ProxmoxMachineReason.STOPPED, "the state is unknown to this release")
    reason, cause = STATES.get(status, unknown)
    return Wait(reason, f"guest {guest.seen.vmid} is {status}: {cause}")
