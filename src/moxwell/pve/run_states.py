"""
The states that Proxmox reports for a guest. Pure.

``/cluster/resources`` shows QEMU's own state (``RunState`` of its QAPI schema) instead of
``running`` when the two differ; ``status/current`` shows ``running`` and the state as
``qmpstatus``. Only a guest in the state ``running`` executes and reacts to a shutdown request. In
all other states of QEMU its process exists: the guest cannot be destroyed before it is stopped.
"""

from enum import StrEnum

STOPPED = "stopped"
UNREPORTED = "unknown"  # the host is down, or the guest is too new to be reported


class RunState(StrEnum):
    """The states of a QEMU process."""

    DEBUG = "debug"
    INMIGRATE = "inmigrate"
    INTERNAL_ERROR = "internal-error"
    IO_ERROR = "io-error"
    PAUSED = "paused"
    POSTMIGRATE = "postmigrate"
    PRELAUNCH = "prelaunch"
    FINISH_MIGRATE = "finish-migrate"
    RESTORE_VM = "restore-vm"
    RUNNING = "running"
    SAVE_VM = "save-vm"
    SHUTDOWN = "shutdown"
    SUSPENDED = "suspended"
    WATCHDOG = "watchdog"
    GUEST_PANICKED = "guest-panicked"
    COLO = "colo"


def executes(status: str) -> bool:
    """Whether the guest executes and can shut down by itself."""
    return status == RunState.RUNNING


def has_process(status: str) -> bool:
    """Whether QEMU runs for the guest; also for a state that this release does not know."""
    return status not in {"", STOPPED, UNREPORTED}
