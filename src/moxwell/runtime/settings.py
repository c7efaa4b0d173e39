"""
What a manager is told from outside, as one frozen value.

Flags and files are read by ``cli`` and ``app``; the runtime reads neither. The lease numbers are
those of the genuine protocol, and ``check`` keeps their order: whoever cannot renew stops
(``renew_deadline``) before anybody else may begin (``lease_duration``).
"""

from dataclasses import dataclass, field

from moxwell.errors import Invalid
from moxwell.runtime.backoff import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds, as in client-go's leader election."""

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def check(self) -> None:
        """Refuse numbers that would let two hold one lease."""
        if not self.lease_duration > self.renew_deadline > self.retry_period * 1.2 > 0:
            raise Invalid(
                "lease times must satisfy lease_duration > renew_deadline > 1.2 * retry_period > 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where a server listens; port 0 takes any free one; ``tls`` with a certificate of its own."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the manager and all its controllers run."""

    identity: str = "moxwell"  # this replica; must differ between replicas
    namespace: str = "moxwell-system"  # where leases and the webhook certificate live
    namespaces: tuple[str, ...] = ()  # work only in these; empty: in all
    concurrency: int = 4  # passes at a time, per controller and region
    elect: bool = True  # hold a lease before working
    shards: bool = False  # share the regions among replicas
    lease_name: str = "moxwell"
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    pace: Pace = field(default_factory=Pace)
    resync_seconds: float = 3600.0
    terminal_seconds: float = 300.0  # a refused object is looked at again after this
    grace_seconds: float = 20.0  # how long passes may finish when stopping
    page_size: int = 500
    streaming_lists: bool = False
    health: Listen | None = None
    webhooks: Listen | None = None
