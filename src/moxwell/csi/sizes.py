"""
Chooses the size of a volume from a CSI capacity range.

Sizes are rounded up to 1 MiB and no further. A size above limit_bytes is refused.
"""

from moxwell.csi.errors import OutOfRange

MIB = 1 << 20
GIB = 1 << 30
DEFAULT_BYTES = 10 * GIB
SMALLEST_BYTES = 4 * MIB  # one LVM extent; LINSTOR requires 3 MiB


def choose_size(required: int, limit: int) -> int:
    """The size in bytes to allocate; 0 stands for an unset bound."""
    if required < 0 or limit < 0:
        raise OutOfRange("capacity range: a size cannot be negative")
    if limit and required > limit:
        raise OutOfRange(f"required_bytes {required} is above limit_bytes {limit}")
    wanted = required or min(DEFAULT_BYTES, limit or DEFAULT_BYTES)
    size = -(-max(wanted, SMALLEST_BYTES) // MIB) * MIB
    if not required and limit:
        size = max(wanted // MIB * MIB, SMALLEST_BYTES)
    if limit and size > limit:
        raise OutOfRange(f"the smallest possible size, {size} bytes, is above limit_bytes {limit}")
    return size


def fits(size: int, required: int, limit: int) -> bool:
    """
    Return whether the size of an existing volume satisfies the capacity range, rounding included.
    """
    if not required and not limit:
        return True
    rounded = choose_size(required, 0) if required else 0
    return size >= required and (not limit or size <= limit) and (not required or size == rounded)
