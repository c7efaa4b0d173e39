"""
Checks, audits and counts every write to Proxmox, and refuses it in a dry run.

``WriteCaller`` hands each POST, PUT and DELETE to ``Effects.send`` before it reaches the transport.
A write whose target is not covered by its ``Owned`` is refused with ``Foreign``; in dry-run mode
every write is refused with ``DryRun``. Both refusals are audited and nothing is sent.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from moxwell.clock import Clock, SystemClock
from moxwell.errors import Denied, MoxwellError
from moxwell.pve.audit import Audit, AuditRecord, LogAudit, actor, redacted
from moxwell.pve.ownership import Foreign
from moxwell.pve.targets import WriteTarget, target_of
from moxwell.pve.values import Params

OK = "ok"
FAILED = "failed"
REFUSED = "refused"
INTERRUPTED = "Interrupted"  # cancelled, or a bug: the write may have happened
_UPID = re.compile(rb'"(UPID:[^"]{1,300})"')


class DryRun(Denied):
    """Writes to Proxmox are disabled in this process; nothing was sent."""

    reason = "DryRun"


class Owned:
    """What a writer may touch, and how its caller proved that it owns that.

    ``volumes`` are whole file names of volumes, without storage and directory: ``vm-9999-pvc-a``
    does not cover ``vm-9999-pvc-a-b``. ``names`` are pools, HA rules, security groups and other
    objects without a VMID.
    """

    __slots__ = ("names", "proof", "vmids", "volumes")

    def __init__(
        self,
        proof: str,
        *,
        vmids: Iterable[int] = (),
        volumes: Iterable[str] = (),
        names: Iterable[str] = (),
    ) -> None:
        self.proof = proof
        self.vmids = frozenset(vmids)
        self.volumes = frozenset(file_name(text) for text in volumes if text)
        self.names = frozenset(names)

    def covers(self, target: WriteTarget) -> bool:
        """Report whether every object of a target is owned."""
        if not (target.vmids or target.volume or target.name):
            return False
        return (
            self.vmids.issuperset(target.vmids)
            and (not target.volume or file_name(target.volume) in self.volumes)
            and (not target.name or target.name in self.names)
        )


def file_name(volume: str) -> str:
    """The file name in a volume id: ``vm-1-disk-0.raw`` in ``local:1/vm-1-disk-0.raw``."""
    return volume.rpartition(":")[2].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PveWrite:
    """A write request as a value; prints as method, region and path. ``owned`` None: unlimited."""

    region: str
    method: str
    path: str
    params: Params
    owned: Owned | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} in region {self.region}"

    @property
    def target(self) -> WriteTarget:
        return target_of(self.method, self.path, self.params)


class Effects:
    """Sends the writes of all regions; ``counts`` holds their number by region and outcome."""

    def __init__(
        self, audit: Audit | None = None, *, dry_run: bool = False, clock: Clock | None = None
    ) -> None:
        self._audit: Audit = audit or LogAudit()
        self._clock: Clock = clock or SystemClock()
        self.dry_run = dry_run
        self.counts: Counter[tuple[str, str]] = Counter()

    async def send(self, write: PveWrite, transmit: Callable[[], Awaitable[bytes]]) -> bytes:
        """Transmit a write unless it is refused; record the outcome in either case."""
        target, began = write.target, self._clock.monotonic()
        outcome, error, body = REFUSED, "", b""
        try:
            self._refuse(write, target)
            outcome, error = FAILED, INTERRUPTED  # unless an error of ours replaces it
            body = await transmit()
            outcome, error = OK, ""
            return body
        except MoxwellError as failure:
            error = type(failure).__name__
            raise
        finally:
            self._record(write, target, outcome, error, body, self._clock.monotonic() - began)

    def _refuse(self, write: PveWrite, target: WriteTarget) -> None:
        if write.owned is not None and not write.owned.covers(target):
            raise Foreign(f"{write} touches what its caller does not own ({write.owned.proof})")
        if self.dry_run:
            raise DryRun(f"dry run: {write} was not sent")

    def _record(
        self,
        write: PveWrite,
        target: WriteTarget,
        outcome: str,
        error: str,
        body: bytes,
        seconds: float,
    ) -> None:
        self.counts[write.region, outcome] += 1
        controller, key = actor()
        upid = _UPID.search(body) if body else None
        self._audit.record(
            AuditRecord(
                controller=controller,
                object=key,
                region=write.region,
                host=target.host,
                vmids=target.vmids,
                volume=target.volume,
                name=target.name,
                method=write.method,
                path=write.path,
                params=redacted(write.params),
                proof=write.owned.proof if write.owned else "",
                outcome=outcome,
                error=error,
                upid=upid[1].decode("utf-8", "replace") if upid else "",
                seconds=round(seconds, 3),
            )
        )
