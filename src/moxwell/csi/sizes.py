"""
How large a volume becomes: from the range that was asked for to bytes that Proxmox can make.

The surprise: sizes are rounded up to 1 MiB and no further, so that what was asked for exactly is
made exactly; a limit is a promise, and a size above it is refused rather than made.
"""

from moxwell.csi.errors import OutOfRange

MIB = 1 << 20
GIB = 1 << 30
DEFAULT_BYTES = 10 * GIB
SMALLEST_BYTES = 4 * MIB  # one LVM extent; LINSTOR wants 3 MiB


def choose_size(required: int, limit: int) -> int:
    """The bytes to make; 0 means not given."""
    if required < 0 or limit < 0:
        raise OutOfRange("a size cannot be negative")
    if limit and required > limit:
        raise OutOfRange(f"required {required} bytes are more than the limit of {limit}")
    wanted = required or min(DEFAULT_BYTES, limit or DEFAULT_BYTES)
    size = -(-max(wanted, SMALLEST_BYTES) // MIB) * MIB
    if not required and limit:
        size = max(wanted // MIB * MIB, SMALLEST_BYTES)
    if limit and size > limit:
        raise OutOfRange(f"the smallest possible size, {size} bytes, is above the limit of {limit}")
    return size


def fits(size: int, required: int, limit: int) -> bool:
    """Is an existing volume what is asked for? Rounding up to what we make is no difference."""
    if not required and not limit:
        return True
    rounded = choose_size(required, 0) if required else 0
    return size >= required and (not limit or size <= limit) and (not required or size == rounded)
