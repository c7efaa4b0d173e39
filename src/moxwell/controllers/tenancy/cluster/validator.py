"""
Validates clusters with what the caches and the regions show now.

It never awaits, so admission can use it between reading and writing an object. Caches are behind
the API for a moment; what was accepted in between is remembered, so that two clusters cannot both
get the last room of a quota.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.cozystack import Kubernetes
from moxwell.api.field_errors import FieldError
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import Clock
from moxwell.controllers.tenancy.cluster import quotas, validation
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.quotas import ClusterName, TenantUsage
from moxwell.controllers.tenancy.cluster.see import NAMESPACES, defaults_in
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.scheduling import quota
from moxwell.scheduling.known_infrastructure import KnownInfrastructure
from moxwell.scheduling.quota import Amounts, Limits

Json = dict[str, Any]
ACCEPTED_SECONDS = 15.0  # how long an accepted cluster may be missing from the cache


@dataclass(frozen=True, slots=True)
class QuotaCaches:
    """The objects that quotas count."""

    namespaces: Cache[Any]
    clusters: Cache[Kubernetes]
    machines: Cache[ProxmoxMachine]

    @classmethod
    def of(cls, caches: Caches) -> "QuotaCaches":
        """The caches of a manager."""
        clusters = caches.of(Kubernetes, optional=True)
        return cls(caches.of(NAMESPACES), clusters, caches.of(ProxmoxMachine))

    @property
    def synced(self) -> bool:
        return all(c.synced for c in (self.namespaces, self.clusters, self.machines))


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan is about to create: metadata of namespaces, and what clusters need."""

    namespaces: Mapping[str, Json] = field(default_factory=dict)
    clusters: Mapping[ClusterName, Amounts] = field(default_factory=dict)


class ClusterValidator:
    """Validates one object after the other; ``volumes`` are the bytes of volumes by cluster."""

    def __init__(
        self,
        known: Callable[[], KnownInfrastructure],
        defaults: Callable[[], Defaults],
        caches: QuotaCaches,
        clock: Clock,
        volumes: Callable[[], Mapping[ClusterName, int]] = dict,
    ) -> None:
        self._known, self._defaults, self._caches = known, defaults, caches
        self._clock, self._volumes = clock, volumes
        self._accepted: dict[ClusterName, tuple[float, Amounts]] = {}

    @property
    def known(self) -> KnownInfrastructure:
        """What is known of the regions now."""
        return self._known()

    def errors(
        self, new: Kubernetes, old: Kubernetes | None, planned: Planned | None = None
    ) -> tuple[FieldError, ...]:
        """Why a cluster cannot work, also if what is ``planned`` existed."""
        after = planned or Planned()
        meta = after.namespaces.get(new.namespace) or self._metadata(new.namespace)
        defaults = validation.with_running(defaults_in(meta, self._defaults()), old)
        found = validation.cluster_errors(new, old, defaults, self._known())
        if found or not self._caches.synced:  # a quota that is not known now is checked later
            return found
        usage = self._usage(new, after)
        return quotas.quota_errors(quotas.quota_excess(new, old, defaults, usage))

    def rollout_note(self, app: Kubernetes, rolling: Iterable[str], planned: Planned) -> str:
        """Why groups cannot roll within the quota; empty if they can, or it is not known."""
        names = tuple(rolling)
        if not names or not self._caches.synced:
            return ""
        found = quotas.rollout_excess(app, names, self._usage(app, planned))
        text = quota.sentence(found)
        return (
            f"{', '.join(names)} cannot roll, which needs one more machine: {text}" if text else ""
        )

    def accept(self, app: Kubernetes) -> None:
        """Count a cluster that is written now until the cache shows it."""
        now = self._clock.monotonic()
        self._accepted = {
            key: row for key, row in self._accepted.items() if now - row[0] < ACCEPTED_SECONDS
        }
        self._accepted[app.namespace, app.name] = (now, quotas.accepted_needs(app))

    def _metadata(self, namespace: str) -> Json:
        found = self._caches.namespaces.find(Key("", namespace))
        return dict((found or {}).get("metadata") or {})

    def _usage(self, app: Kubernetes, planned: Planned) -> TenantUsage:
        limits: dict[str, Limits] = {}
        for tenant in quota.tenant_namespaces(app.namespace):
            meta = planned.namespaces.get(tenant) or self._metadata(tenant)
            limits[tenant] = quota.read_annotation(meta)
        return TenantUsage(
            limits=limits,
            clusters={**self._needs(), **planned.clusters} if any(limits.values()) else {},
            machines=self._caches.machines.list() if any(limits.values()) else (),
            volumes=self._volumes(),
        )

    def _needs(self) -> dict[ClusterName, Amounts]:
        found: dict[ClusterName, Amounts] = {}
        for app in self._caches.clusters.list():
            found[app.namespace, app.name] = quotas.accepted_needs(app)
        now = self._clock.monotonic()
        for key, (at, amounts) in self._accepted.items():
            if now - at < ACCEPTED_SECONDS:
                found[key] = amounts.at_least(found.get(key, Amounts()))
        return found
