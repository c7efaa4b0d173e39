"""
Chooses a VMID from a range; Proxmox's ``nextid`` reserves nothing. Pure.

A seed (the owner's UID) spreads the choices over the range: two machines seldom choose the same
VMID, a freed VMID is seldom reused soon, and a repeated pass chooses the same VMID again.
"""

import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass

from moxwell.errors import Invalid

LOWEST, HIGHEST = 100, 999_999_999
COOL_DOWN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class VmidRange:
    """An inclusive range of VMIDs."""

    start: int = 10_000
    end: int = 99_999

    def __post_init__(self) -> None:
        if not LOWEST <= self.start <= self.end <= HIGHEST:
            raise Invalid(
                f"VMID range {self.start}-{self.end} must lie in {LOWEST}-{HIGHEST}, start first"
            )

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, vmid: int) -> bool:
        return self.start <= vmid <= self.end


class RangeExhausted(Invalid):
    """Every VMID of the range is in use or was freed recently."""

    reason = "VMIDRangeExhausted"


def find_vmid(
    within: VmidRange, taken: Container[int], cooling: Container[int] = (), *, seed: str
) -> int | None:
    """The first free VMID after the position given by the seed; None if the range has none."""
    first = zlib.crc32(seed.encode()) % len(within)
    for offset in range(len(within)):
        vmid = within.start + (first + offset) % len(within)
        if vmid not in taken and vmid not in cooling:
            return vmid
    return None


def choose_vmid(
    within: VmidRange, taken: Container[int], cooling: Container[int] = (), *, seed: str
) -> int:
    """The first free VMID after the position given by the seed."""
    found = find_vmid(within, taken, cooling, seed=seed)
    if found is not None:
        return found
    raise RangeExhausted(
        f"every VMID in {within.start}-{within.end} is in use or was freed less than "
        f"{COOL_DOWN_SECONDS // 60} minutes ago; widen the range"
    )


def cooling(freed: Mapping[int, float], now: float) -> frozenset[int]:
    """The VMIDs freed too recently to be reused; times are seconds of one clock."""
    return frozenset(vmid for vmid, when in freed.items() if now - when < COOL_DOWN_SECONDS)
