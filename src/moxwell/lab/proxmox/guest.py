"""
The plug for what runs inside a guest.

The simulator calls ``booted`` when a guest has come up and ``stopped`` when it is gone;
``agent`` answers what the QEMU guest agent is asked. ``Silent`` is a guest without an operating
system. A real inside (a Kubernetes node, say) is supplied by the program that starts the simulator.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from moxwell.lab.proxmox.errors import PveError


@dataclass(frozen=True, slots=True)
class GuestView:
    """What a guest can see of itself: its configuration and its media."""

    region: str
    node: str
    vmid: int
    kind: str
    name: str
    uuid: str
    conf: dict[str, Any]
    media: Callable[[str], bytes | None]  # drive ("ide2") -> bytes of the medium, None: none
    power_off: Callable[[], Any] = field(default=lambda: None)  # the guest turns itself off
    reboot: Callable[[], Any] = field(default=lambda: None)
    plugged: Callable[[], dict[str, Any]] = field(default=dict)  # the hardware it has now
    setup_seconds: float = 8.0  # what its first boot takes longer


class AgentSilent(PveError):
    """Nothing answers inside."""

    def __init__(self) -> None:
        super().__init__(500, "QEMU guest agent is not running")


class Inside(Protocol):
    """What runs in guests."""

    async def booted(self, view: GuestView) -> None:
        """The guest has come up with this configuration and these media."""
        ...

    async def stopped(self, region: str, vmid: int) -> None:
        """The guest was stopped, reset or lost."""
        ...

    async def agent(self, view: GuestView, command: str, args: dict[str, Any]) -> Any:
        """The ``return`` of a guest agent command; raises AgentSilent where nobody answers."""
        ...

    def listens(self, view: GuestView) -> bool:
        """Does the guest react to the power button or to the agent's shutdown?"""
        ...


class Silent:
    """A guest in which nothing runs."""

    async def booted(self, view: GuestView) -> None:
        return None

    async def stopped(self, region: str, vmid: int) -> None:
        return None

    async def agent(self, view: GuestView, command: str, args: dict[str, Any]) -> Any:
        raise AgentSilent

    def listens(self, view: GuestView) -> bool:
        return False
