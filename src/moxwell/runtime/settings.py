"""
The settings of a manager as one frozen value.

``cli`` and ``app`` read flags and files; the runtime does not. ``check`` enforces the order of the
lease times: a replica that cannot renew stops (``renew_deadline``) before another may start
(``lease_duration``).
"""

from dataclasses import dataclass, field

from moxwell.errors import Invalid
from moxwell.runtime.backoff import BackoffSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds, as in client-go's leader election."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def check(self) -> None:
        """Refuse times that would let two replicas hold one lease."""
        if not self.lease_duration > self.renew_deadline > self.retry_period * 1.2 > 0:
            raise Invalid(
                "lease times must satisfy lease_duration > renew_deadline > 1.2 * retry_period > 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """
    Where a server listens; port 0 selects a free port; ``tls`` uses a self-signed certificate.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """How the manager and its controllers run."""

    identity: str = "moxwell"  # of this replica; unique among replicas
    namespace: str = "moxwell-system"  # of the leases and the webhook certificate
    namespaces: tuple[str, ...] = ()  # watch only these; empty: all
    concurrency: int = 4  # concurrent passes per controller and region
    elect: bool = True  # require a lease
    shards: bool = False  # distribute the regions over the replicas
    lease_name: str = "moxwell"
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    backoff_settings: BackoffSettings = field(default_factory=BackoffSettings)
    resync_seconds: float = 3600.0
    terminal_seconds: float = 300.0  # retry interval of a terminal error
    grace_seconds: float = 20.0  # grace period for passes at shutdown
    page_size: int = 500
    streaming_lists: bool = False
    health: Listen | None = None
    webhooks: Listen | None = None
