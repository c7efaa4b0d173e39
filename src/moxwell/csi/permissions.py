"""
What the driver's credentials must be allowed, capability by capability.

In: a region. Out: for each capability whether all its privileges are there, and which are missing.
The surprise: nothing needs root@pam but ``snapshotMode: root``; a driver that only makes and
attaches volumes needs none of the rights to make guests; and Proxmox shows other people's tasks
only to whoever may audit the root, ``/``.
"""

from dataclasses import dataclass

from moxwell.pve import preflight
from moxwell.pve.client import Pve
from moxwell.pve.preflight import Feature, Need

CAPABILITIES: dict[str, tuple[Feature, ...]] = {
    "volumes": ("volumes",),
    "snapshots and clones": ("volumes", "volume-copies"),
    "clones on another host, volume migrate": ("volumes", "volume-copies", "volume-moves"),
    "replicated volumes": ("volumes", "volume-replicas"),
    "disks attached by other hands": ("volumes", "volume-news"),
}
ALL: tuple[Feature, ...] = ("volumes", "volume-copies", "volume-moves", "volume-replicas")


@dataclass(frozen=True, slots=True)
class Finding:
    """One capability in one region."""

    region: str
    capability: str
    missing: tuple[Need, ...]

    @property
    def ok(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        if self.ok:
            return f"region {self.region}: {self.capability}: all privileges are there"
        lacks = ", ".join(f"{n.privilege} on {n.path} (to {n.purpose})" for n in self.missing)
        return f"region {self.region}: {self.capability}: missing {lacks}"


async def check(pve: Pve) -> tuple[Finding, ...]:
    """Two requests, no change."""
    version, permissions = await pve.version(), await pve.access.permissions()
    return tuple(
        Finding(pve.region, name, preflight.missing(permissions, version.major, features))
        for name, features in CAPABILITIES.items()
    )
