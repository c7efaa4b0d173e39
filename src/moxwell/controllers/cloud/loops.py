"""The names and intervals of the cloud controllers, which a command line chooses."""

from dataclasses import dataclass

NODE, LIFECYCLE, SERVICE = LOOPS = ("cloud.node", "cloud.lifecycle", "cloud.service")
REFRESH_SECONDS, MONITOR_SECONDS = 300.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudIntervals:
    """Intervals and concurrency, with the upstream flags that set them."""

    refresh_seconds: float = REFRESH_SECONDS  # --node-status-update-frequency
    monitor_seconds: float = MONITOR_SECONDS  # --node-monitor-period
    concurrency: int | None = None  # --concurrent-node-syncs
