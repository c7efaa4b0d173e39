"""
What the quota of a tenant leaves for machines of its autoscaler.

The limits are the annotation ``moxwell.dev/quota`` of the namespace of the tenant and of the
tenants above it. All machines in these namespaces count, and node claims that have none yet.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.karpenter.state.snapshots import ScaledClusterView
from moxwell.errors import MoxwellError
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling import quota
from moxwell.scheduling.resource_lists import CPU, MEMORY, MILLI, NODES, less, offered, total

NAMES = (CPU, MEMORY, NODES)
log = structlog.get_logger(__name__)


class TenantQuota:
    """Reads the quotas of tenants; one object per daemon."""

    def __init__(self, namespaces: Cache[Any], machines: Cache[ProxmoxMachine]) -> None:
        self._namespaces, self._machines = namespaces, machines

    def left(self, cluster: Key, view: ScaledClusterView) -> dict[str, int]:
        """What the autoscaler of a cluster may still use, in thousandths; empty: no quota."""
        waiting = total(
            {**n.capacity, NODES: MILLI}
            for n in view.cluster.nodes
            if n.managed and not _has_machine(view, n.name)
        )
        found: dict[str, int] = {}
        for tenant in quota.tenant_namespaces(cluster.namespace):
            for name, amount in less(self._limits(tenant), waiting).items():
                free = amount - self._used(tenant).get(name, 0)
                found[name] = min(found.get(name, free), free)
        return found

    def _limits(self, tenant: str) -> dict[str, int]:
        """The limits of a namespace; an annotation that cannot be read leaves nothing."""
        space: Mapping[str, Any] = self._namespaces.find(Key("", tenant)) or {}
        try:
            given = quota.read_annotation(space.get("metadata") or {})
            return offered({name: str(given[name]) for name in NAMES if name in given})
        except MoxwellError:
            log.warning("quota cannot be read", namespace=tenant, annotation=quota.QUOTA)
            return dict.fromkeys(NAMES, 0)

    def _used(self, tenant: str) -> dict[str, int]:
        machines = self._machines.list()
        return machine_totals(m for m in machines if quota.belongs_to(m.namespace, tenant))


def _has_machine(view: ScaledClusterView, name: str) -> bool:
    """Whether the node of the view has a machine, which is counted already."""
    claim = view.nodes[name].claim
    return claim is not None and bool(claim.status.provider_id)


def machine_totals(machines: Iterable[ProxmoxMachine]) -> dict[str, int]:
    """What machines use, in thousandths. Pure."""
    used = quota.total(quota.machine_amounts(m.spec) for m in machines)
    return {CPU: used.cpu * MILLI, MEMORY: used.memory * MILLI, NODES: used.nodes * MILLI}
