"""Lists of CPUs as the kernel writes them: ``0-3,8``."""


def parse_list(text: str) -> tuple[int, ...]:
    """Read a list; parts that are no range are left out."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def format_list(cpus: "set[int] | frozenset[int] | tuple[int, ...]") -> str:
    """Write CPUs as ascending ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
