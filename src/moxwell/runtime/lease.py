"""
One Lease under the leader election protocol of client-go.

``attempt`` tries once to acquire or renew it. Another holder's lease is free when its record has
not changed for its duration on *our* monotonic clock since *we* observed the change; wall clocks
are not compared. We hold the lease until ``renew_deadline`` after the last successful renewal was
*sent*, which is earlier than anyone else may acquire it.

``identity`` must differ between processes, including two runs of one pod.
"""

from typing import Any

import msgspec

from moxwell.api.kinds import Resource
from moxwell.api.meta import micro_time
from moxwell.clock import Clock
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound, WriteConflict
from moxwell.runtime.settings import LeaseTimes

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
Json = dict[str, Any]


class LeaderLease:
    """A named lease as this process observes it."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        labels: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self._kube, self._clock, self._times = kube, clock, times
        self._namespace, self._identity, self._labels = namespace, identity, labels or {}
        self._record: Json | None = None  # the record as last observed
        self._seen_at = 0.0
        self._until = 0.0

    @property
    def held(self) -> bool:
        """Whether this process holds the lease now."""
        return self._clock.monotonic() < self._until

    @property
    def seconds_left(self) -> float:
        """Seconds this process may act if no further renewal succeeds."""
        return self._until - self._clock.monotonic()

    async def attempt(self) -> bool:
        """Acquire or renew the lease; False if another process holds it or wrote first."""
        sent = self._clock.monotonic()
        current = self._record
        if current is None or not self.held:
            current = await self._kube.find(LEASES, self.name, self._namespace)
            self.observe(current)
        if current is not None and not self._is_free(current):
            self._until = 0.0
            return False
        try:
            written = await self._write(current)
        except (WriteConflict, AlreadyExists, NotFound):
            self._record = None  # read it again in the next try
            return False
        self.observe(written)
        self._until = sent + self._times.renew_deadline
        return True

    async def release(self) -> None:
        """Release the lease if this process holds it."""
        current = self._record
        if (
            current is None
            or not self.held
            or current["spec"].get("holderIdentity") != self._identity
        ):
            self._until = 0.0
            return
        self._until = 0.0
        spec = {**current["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        spec["renewTime"] = spec["acquireTime"] = micro_time(self._clock.now())
        try:
            await self._kube.replace({**current, "spec": spec}, LEASES)
        except (WriteConflict, NotFound):
            self._record = None

    def observe(self, record: Json | None) -> None:
        """Record the observed lease and when it last changed."""
        if record is None or self._record is None or record["spec"] != self._record["spec"]:
            self._seen_at = self._clock.monotonic()
        self._record = record

    @property
    def holder(self) -> str:
        """The current holder as far as observed; empty if there is none."""
        if self._record is None or self._is_expired(self._record):
            return ""
        return str(self._record["spec"].get("holderIdentity") or "")

    def _is_free(self, record: Json) -> bool:
        holder = record["spec"].get("holderIdentity") or ""
        return holder in ("", self._identity) or self._is_expired(record)

    def _is_expired(self, record: Json) -> bool:
        seconds = record["spec"].get("leaseDurationSeconds") or self._times.lease_duration
        return self._clock.monotonic() >= self._seen_at + float(seconds)

    async def _write(self, current: Json | None) -> Json:
        now = micro_time(self._clock.now())
        spec: Json = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._times.lease_duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        if current is None:
            meta = {"name": self.name, "namespace": self._namespace, "labels": self._labels}
            head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            return await self._kube.create({**head, "metadata": meta, "spec": spec}, LEASES)
        old = current["spec"]
        spec["leaseTransitions"] = old.get("leaseTransitions") or 0
        if old.get("holderIdentity") == self._identity:
            spec["acquireTime"] = old.get("acquireTime") or now
        else:
            spec["leaseTransitions"] += 1
        wanted = msgspec.json.decode(msgspec.json.encode(current))
        wanted["spec"] = {**old, **spec}
        return await self._kube.replace(wanted, LEASES)
