"""
The interface between the simulator and guest operating systems.

The simulator calls ``booted`` when a guest has booted, ``stopped`` when its VM stopped, and
``agent`` for guest agent commands. The program that starts the simulator can supply an
implementation, such as :mod:`moxwell.lab.guests`; the default is :mod:`.builtin_guest`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.state import SimVolume


@dataclass(frozen=True, slots=True)
class GuestVm:
    """The VM as its guest operating system sees it: configuration, media, power control."""

    region: str
    node: str
    vmid: int
    kind: str
    name: str
    uuid: str
    conf: dict[str, Any]
    media: Callable[[str], bytes | None]  # drive ("ide2") -> bytes of its medium, or None
    power_off: Callable[[], Any] = field(default=lambda: None)  # power off from inside
    reboot: Callable[[], Any] = field(default=lambda: None)
    live_config: Callable[[], dict[str, Any]] = field(
        default=dict
    )  # the current hardware configuration
    setup_seconds: float = 8.0  # additional duration of the first boot
    load: Callable[[], tuple[float, float]] = field(
        default=lambda: (0.01, 0.5)
    )  # the least shares of its vCPUs and its memory that it uses
    report_load: Callable[[float, float], None] = field(
        default=lambda cpu, memory: None
    )  # called with the shares that it uses


class GuestAgentNotRunning(PveException):
    """The guest agent is not running."""

    def __init__(self) -> None:
        super().__init__(500, "QEMU guest agent is not running")


class AgentRefusal(PveException):
    """The guest agent answered with an error; ``error`` is that answer."""

    def __init__(self, text: str) -> None:
        super().__init__(500, f"Agent error: {text}")
        self.error = {"class": "GenericError", "desc": text}


class GuestOs(Protocol):
    """The operating systems of all guests."""

    async def booted(self, vm: GuestVm) -> None:
        """The guest booted with this configuration and these media."""
        ...

    async def stopped(self, region: str, vmid: int) -> None:
        """The VM was stopped, reset or lost."""
        ...

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        """The result of an agent command; raises GuestAgentNotRunning without an agent."""
        ...

    def handles_shutdown(self, vm: GuestVm) -> bool:
        """Whether the guest reacts to the ACPI power button and the agent's shutdown command."""
        ...


@runtime_checkable
class DiskWriter(Protocol):
    """Guest operating systems that write to the disks of their VMs."""

    def content_id(self, storage: str, node: str, volume: SimVolume) -> str:
        """The content id of what the disk contains now; later writes do not change that content."""
        ...
