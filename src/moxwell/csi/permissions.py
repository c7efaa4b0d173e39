"""
Checks which driver capabilities the Proxmox credentials of a region allow; only reads.

Only ``snapshotMode: root`` needs root@pam. Proxmox shows tasks of other users only with Sys.Audit
on ``/``.
"""

from dataclasses import dataclass

from moxwell.pve import preflight
from moxwell.pve.client import PveReader
from moxwell.pve.preflight import Feature, Need

CAPABILITIES: dict[str, tuple[Feature, ...]] = {
    "volumes": ("volumes",),
    "snapshots and clones": ("volumes", "volume-copies"),
    "clones on another host, volume migrate": ("volumes", "volume-copies", "volume-moves"),
    "replicated volumes": ("volumes", "volume-replicas"),
    "detection of disks attached by others": ("volumes", "volume-foreign-tasks"),
}
ALL_FEATURES: tuple[Feature, ...] = ("volumes", "volume-copies", "volume-moves", "volume-replicas")


@dataclass(frozen=True, slots=True)
class CapabilityCheck:
    """The missing privileges of one capability in one region."""

    region: str
    capability: str
    missing: tuple[Need, ...]

    @property
    def ok(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        if self.ok:
            return f"region {self.region}: {self.capability}: all privileges granted"
        missing_privileges = ", ".join(
            f"{n.privilege} on {n.path} (to {n.purpose})" for n in self.missing
        )
        return f"region {self.region}: {self.capability}: missing {missing_privileges}"


async def check(pve: PveReader) -> tuple[CapabilityCheck, ...]:
    """Check every capability with two requests."""
    version, permissions = await pve.version(), await pve.access.permissions()
    return tuple(
        CapabilityCheck(pve.region, name, preflight.missing(permissions, version.major, features))
        for name, features in CAPABILITIES.items()
    )
