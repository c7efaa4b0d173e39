"""The duration of copies: concurrent copies share the bandwidth of a storage."""

from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.tasks import WorkerContext

_SLICE = 0.5  # seconds after which a copy looks at the number of others


async def transfer(
    runtime: RegionRuntime, ctx: WorkerContext, storages: frozenset[str], size: int, rate: float
) -> None:
    """Wait as long as a copy between these storages takes; ``rate`` is that of a single copy."""
    active: dict[str, int] = runtime.module_data.setdefault("copies", {})
    for name in storages:
        active[name] = active.get(name, 0) + 1
    try:
        left = float(size)
        while left > 0:
            share = rate / max(active[name] for name in storages)
            seconds = min(left / share, max(_SLICE, left / share / 8))
            await ctx.sleep(seconds)
            left = left - seconds * share if seconds < left / share else 0.0
    finally:
        for name in storages:
            active[name] -= 1


def human_size(size: int) -> str:
    """A size as ``qemu-img`` prints it."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
