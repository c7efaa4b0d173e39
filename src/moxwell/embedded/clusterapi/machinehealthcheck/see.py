"""
Observes Machines and their nodes, and for how long each has been in its state.

Durations are counted from our own observations: the times in conditions are written by other clocks
or by ours before it was set.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moxwell.api import selectors
from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.machinehealthcheck.plan import (
    CHECK_SECONDS,
    HeldState,
    ObservedHealth,
    Source,
    cluster_key,
    machine_conditions,
    node_conditions,
)
from moxwell.embedded.clusterapi.machines import cached_machines
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.observed_durations import ObservedDurations
from moxwell.embedded.token_buckets import TokenBuckets
from moxwell.embedded.zones import ZoneNodes, count_zones, eviction_rate, ready_status, zone_of
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import TenantClients

Json = Mapping[str, Any]
NODES_SECONDS = 5.0  # how long a list of nodes is used
LONGEST_GAP = 2 * CHECK_SECONDS


class TenantNodes:
    """The nodes of tenant clusters, listed once for all checks of a cluster."""

    def __init__(self, tenants: TenantClients, clock: Clock) -> None:
        self._tenants, self._clock = tenants, clock
        self._lists: dict[Key, tuple[float, dict[str, Json] | None]] = {}

    async def of(self, cluster: Key) -> dict[str, Json] | None:
        """The nodes by name; None if the API of the tenant does not answer."""
        known, now = self._lists.get(cluster), self._clock.monotonic()
        if known is None or now - known[0] >= NODES_SECONDS:
            known = self._lists[cluster] = (now, await self._list(cluster))
        return known[1]

    async def _list(self, cluster: Key) -> dict[str, Json] | None:
        try:
            tenant: Reader | None = await self._tenants.find(cluster)
            found = (await tenant.list(NODES)).items if tenant else None
        except MoxwellError:
            return None
        return None if found is None else {n["metadata"]["name"]: n for n in found}


class HealthObserver:
    """What the decision of a check needs; durations and requested deletions are in memory."""

    def __init__(
        self, tenants: TenantClients, clock: Clock, machines: Cache[Any], buckets: TokenBuckets
    ) -> None:
        self._machines, self._buckets = machines, buckets
        self._nodes = TenantNodes(tenants, clock)
        self._durations = ObservedDurations(clock, LONGEST_GAP)
        self._under_way: dict[str, Key] = {}

    async def observe(self, check: MachineHealthCheck) -> ObservedHealth:
        """Observe the Machines that a check selects."""
        name = check.spec.cluster_name
        selector = selectors.from_object(check.spec.selector)
        found = cached_machines(self._machines, name, check.namespace)
        machines = tuple(m for m in found if selector.matches(m.metadata.labels))
        nodes = await self._nodes.of(Key(check.namespace, name))
        by_machine = {m.name: _node_of(m, nodes) for m in machines}
        zones = count_zones((nodes or {}).values(), lambda n: ready_status(n) == "Unknown")
        return ObservedHealth(
            machines,
            by_machine,
            dict(self._observe(check, machines, by_machine, zones, readable=nodes is not None)),
            zones,
            self._ready_zones(cluster_key(check), machines, by_machine, zones),
            self._requested(),
        )

    def requested(self, uid: str, key: Key) -> None:
        """Record that the deletion of a Machine was requested; the cache may not show it yet."""
        self._under_way[uid] = key

    def _requested(self) -> frozenset[str]:
        for uid, key in list(self._under_way.items()):
            machine = self._machines.find(key)
            if machine is None or machine.uid != uid:
                del self._under_way[uid]
        return frozenset(self._under_way)

    def _ready_zones(
        self,
        cluster: str,
        machines: Iterable[Machine],
        nodes: Mapping[str, Json | None],
        zones: Mapping[str, ZoneNodes],
    ) -> frozenset[str]:
        names = {_zone(m, nodes[m.name]) for m in machines}
        return frozenset(
            z for z in names if self._buckets.available((cluster, z), eviction_rate(z, zones))
        )

    def _observe(
        self,
        check: MachineHealthCheck,
        machines: Iterable[Machine],
        nodes: Mapping[str, Json | None],
        zones: Mapping[str, ZoneNodes],
        *,
        readable: bool,
    ) -> Iterator[tuple[HeldState, float]]:
        """Nothing is counted for a node that cannot be read or whose zone is disrupted."""
        for machine in machines:
            node = nodes[machine.name]
            disrupted = eviction_rate(_zone(machine, node), zones) == 0
            for state, value in _states(check, machine, node, readable=readable):
                seconds = self._durations.observe(state, value)
                if disrupted and state.source is not Source.MACHINE:
                    self._durations.restart(state)
                    seconds = 0.0
                yield state, seconds


def _states(
    check: MachineHealthCheck, machine: Machine, node: Json | None, *, readable: bool
) -> Iterator[tuple[HeldState, str]]:
    rules = check.spec.checks
    if machine.status.node_ref is None and readable:
        yield HeldState(machine.uid, Source.STARTUP), ""
    of_node, of_machine = node_conditions(node), machine_conditions(machine)
    for kind in {r.type for r in rules.unhealthy_node_conditions} & set(of_node):
        yield HeldState(machine.uid, Source.NODE, kind), of_node[kind]
    for kind in {r.type for r in rules.unhealthy_machine_conditions} & set(of_machine):
        yield HeldState(machine.uid, Source.MACHINE, kind), of_machine[kind]


def _node_of(machine: Machine, nodes: Mapping[str, Json] | None) -> Json | None:
    ref = machine.status.node_ref
    return None if ref is None or nodes is None else nodes.get(ref.name)


def _zone(machine: Machine, node: Json | None) -> str:
    return zone_of(node) if node else machine.spec.failure_domain
