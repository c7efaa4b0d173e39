"""
Claims: choosing a VMID that nobody has, had lately, or was promised.

In: a range, the ids in use, those promised in the Kubernetes API, and those freed lately. Out: an
id to write down *before* anything is made under it. The surprise: Proxmox's own ``nextid`` reserves
nothing and hands a freed id out again within seconds, under which late deletes then kill strangers.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct

from moxwell.errors import Busy, Invalid

COOLDOWN_SECONDS = 300.0
LOWEST, HIGHEST = 100, 999_999_999


class NoVmidLeft(Busy):
    """The range is used up."""

    reason = "NoFreeVMID"


class VmidRange(Struct, frozen=True):
    """The ids that are ours to give; both ends belong to it."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not LOWEST <= self.start <= self.end <= HIGHEST:
            raise Invalid(f"VMID range {self.start}-{self.end} must lie within 100-999999999")

    def __contains__(self, vmid: object) -> bool:
        return isinstance(vmid, int) and self.start <= vmid <= self.end


def choose_vmid(
    span: VmidRange,
    *,
    used: Collection[int],
    claimed: Collection[int] = (),
    freed: Mapping[int, float] | None = None,
    now: float = 0.0,
    after: int = 0,
) -> int:
    """The next id after ``after`` (around the range's end) that is free and has cooled down."""
    taken = set(used) | set(claimed)
    taken |= {vmid for vmid, at in (freed or {}).items() if now - at < COOLDOWN_SECONDS}
    first = after + 1 if span.start <= after < span.end else span.start
    for start, end in ((first, span.end), (span.start, first - 1)):
        for vmid in range(start, end + 1):
            if vmid not in taken:
                return vmid
    raise NoVmidLeft(
        f"all {span.end - span.start + 1} ids of {span.start}-{span.end} are used, "
        "claimed or cooling down"
    )
