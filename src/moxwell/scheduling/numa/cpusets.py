"""Lists of CPUs as Linux and Proxmox write them: ``0-3,8``."""

import re
from collections.abc import Iterable

from moxwell.errors import Invalid

MAX_CPU = 8191
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


class InvalidCpuList(Invalid):
    """The text is no list of CPUs."""

    reason = "InvalidCpuList"


def parse_cpus(text: str, separators: str = ",") -> tuple[int, ...]:
    """Read a list of CPUs in its order; numa options of a guest separate by semicolons."""
    found: list[int] = []
    for part in re.split(f"[{separators}]", text.strip()) if text.strip() else ():
        match = _RANGE.fullmatch(part.strip())
        if not match:
            raise InvalidCpuList(f"{part!r} is not a CPU or a range of CPUs such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last > MAX_CPU:
            raise InvalidCpuList(f"{part!r} is not a range of CPUs between 0 and {MAX_CPU}")
        found += range(first, last + 1)
    return tuple(found)


def format_cpus(cpus: Iterable[int], separator: str = ",") -> str:
    """Write CPUs as ascending ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return separator.join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
