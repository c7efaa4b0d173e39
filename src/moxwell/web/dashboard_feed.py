"""
Joins informer caches and Proxmox inventories into an overview for the dashboard.

Once a second while a browser follows, but with at most a tenth of the time of one core. While
nobody does, only after changes and at most every ten seconds, for the history. Reads what is in
memory; what host agents published is read every ten minutes. The change log keeps only differences.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from moxwell.api.capi.core import Cluster as CapiCluster
from moxwell.api.capi.core import Machine as CapiMachine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress
from moxwell.clock import Clock
from moxwell.controllers.karpenter.disruption.controller import DisruptionInsight
from moxwell.controllers.tenancy.cluster.naming import GROUP_LABEL
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.task_group import keep_running
from moxwell.web import dashboard_node_pools, dashboard_volumes, model, stage_durations
from moxwell.web.change_log import ChangeLog
from moxwell.web.host_topologies import HostTopologies
from moxwell.web.views import Views

MIB = 1 << 20
INTERVAL_SECONDS, UNREAD_SECONDS = 1.0, 10.0
MOST_SHARE = 0.1  # of the time
TenantCaches = Callable[[Key], Caches | None]  # None while a tenant does not run
Insights = Callable[[Key], DisruptionInsight]  # of the autoscaler of a cluster
PodCounts = Callable[[Key], dict[str, int]]  # cluster -> node -> pods
log = structlog.get_logger(__name__)


class DashboardFeed:
    """Creates an overview of everything."""

    def __init__(
        self,
        regions: Regions,
        caches: Caches,
        clock: Clock,
        *,
        mode: str,
        version: str,
        pods: PodCounts,
        tenant_caches: TenantCaches = lambda key: None,
        insights: Insights = lambda key: DisruptionInsight(),
        durations_file: Path | None = None,
        program: str = "moxwell",
        instance: str = "",
    ) -> None:
        self._regions, self._clock, self._mode, self._version = regions, clock, mode, version
        self._caches = caches
        self._apps = caches.of(Kubernetes)
        self._clusters = caches.of(CapiCluster)
        self._machines = caches.of(CapiMachine)
        self._guests = caches.of(ProxmoxMachine)
        self._groups = caches.of(MachineDeployment)
        self._sets = caches.of(MachineSet)
        self._addresses = caches.of(IPAddress, optional=True)
        self._pods, self._tenant_caches, self._insights = pods, tenant_caches, insights
        self._durations_file = durations_file
        self._unreachable: dict[tuple[str, str], datetime] = {}
        self._program, self._instance = program, instance
        self._topologies = HostTopologies(regions, clock)

    async def run(self, change_log: ChangeLog, views: Views) -> None:
        """Update the change log until cancelled; an error in a view ends nothing else."""

        async def failed(error: BaseException) -> None:
            log.error("dashboard feed failed", exc_info=error)
            await self._clock.sleep(UNREAD_SECONDS)

        await keep_running(lambda: self._run(change_log, views), failed)

    async def _run(self, change_log: ChangeLog, views: Views) -> None:
        await self._caches.wait_synced()  # existing objects are no events
        stored = stage_durations.read(self._durations_file)
        views.history.load_durations(stored)
        while True:
            await self._topologies.read()
            seen, began = self._signature(), self._clock.monotonic()
            overview = self.overview()
            change_log.put(views.records(overview), at=overview.now)
            took = self._clock.monotonic() - began
            stored = stage_durations.write(
                self._durations_file, stored, views.history.dump_durations()
            )
            await self._clock.sleep(max(INTERVAL_SECONDS, took / MOST_SHARE))
            await self._wait_reader_or_change(change_log, seen)

    async def _wait_reader_or_change(self, change_log: ChangeLog, seen: object) -> None:
        """Return at once while somebody reads, else after a change."""
        while not change_log.take_request():
            requested = asyncio.ensure_future(change_log.wait_request())
            pause = asyncio.ensure_future(self._clock.sleep(UNREAD_SECONDS))
            try:
                await asyncio.wait((requested, pause), return_when=asyncio.FIRST_COMPLETED)
            finally:
                requested.cancel()
                pause.cancel()
            if self._signature() != seen:
                return

    def _signature(self) -> object:
        """Differs after every change of an object, a host, a guest's host or state, a region."""
        caches = (
            self._apps,
            self._clusters,
            self._machines,
            self._guests,
            self._groups,
            self._sets,
        )
        return (
            tuple(cache.changes for cache in caches),
            tuple(
                (
                    region.inventory.health.reachable,
                    tuple(host.online for host in region.inventory.hosts.values()),
                    frozenset((g.vmid, g.host, g.status) for g in region.inventory.guests.values()),
                )
                for region in self._regions.values()
            ),
        )

    def overview(self) -> model.InfrastructureOverview:
        """Everything now."""
        now = self._clock.now()
        regions = self._regions.all()
        return model.InfrastructureOverview(
            now=now,
            mode=self._mode,
            version=self._version,
            program=self._program,
            instance=self._instance,
            regions=tuple(self._region(r) for r in sorted(regions, key=lambda r: r.name)),
            hosts=tuple(h for r in regions for h in self._hosts(r, now)),
            guests=tuple(g for r in regions for g in _guests(r)),
            clusters=tuple(self._cluster(a) for a in self._apps.list()),
            machines=self._machine_views(),
            storages=tuple(s for r in regions for s in dashboard_volumes.storages_of(r)),
            volumes=tuple(v for a in self._apps.list() for v in self._volumes(a)),
            node_pools=tuple(p for a in self._apps.list() for p in self._node_pools(a)),
        )

    def _region(self, region: Region) -> model.RegionView:
        health, key = region.inventory.health, (region.name, "")
        ago = timedelta(seconds=self._clock.monotonic() - health.since)
        if health.reachable:
            self._unreachable.pop(key, None)
        else:
            self._unreachable.setdefault(key, self._clock.now() - ago)
        return model.RegionView(
            name=region.name,
            reachable=health.reachable,
            read=health.reachable or bool(health.reason),
            since=self._unreachable.get(key),
            error=health.error,
            simulated=self._mode == "lab",
        )

    def _hosts(self, region: Region, now: datetime) -> list[model.HostView]:
        rows = []
        down = not region.inventory.health.reachable
        for host in sorted(region.inventory.hosts.values(), key=lambda h: h.name):
            online, key = host.online and not down, (region.name, host.name)
            if online:
                self._unreachable.pop(key, None)
            rows.append(
                model.HostView(
                    region=region.name,
                    name=host.name,
                    online=online,
                    cpus=host.cpus,
                    memory_mib=host.memory_bytes // MIB,
                    memory_used_mib=host.memory_used_bytes // MIB,
                    cpu_load=host.cpu_load,
                    zone=region.zone_of(host.name),
                    numa=self._topologies.numa_of(*key),
                    unreachable_since=None if online else self._unreachable.setdefault(key, now),
                )
            )
        return rows

    # Clusters and machines

    def _cluster(self, app: Kubernetes) -> model.ClusterView:
        ready = next((c for c in app.status.conditions if c.type == "Ready"), None)
        groups = [d for d in self._groups.list(app.namespace) if _belongs_to(d, app.name)]
        found = self._clusters.find(Key(app.namespace, app.name))
        names = [
            m.name for m in self._machines.list(app.namespace) if m.spec.cluster_name == app.name
        ]
        addresses, pools = dashboard_volumes.addresses_of(
            names, self._addresses.list(app.namespace)
        )
        return model.ClusterView(
            namespace=app.namespace,
            name=app.name,
            version=app.status.version,
            target=groups[0].spec.template.spec.version if groups else "",
            endpoint=app.status.endpoint,
            endpoint_ok=bool(found and found.status.initialization.control_plane_initialized),
            control_plane="hosted, ready" if app.status.version else "",
            deleting=app.deleting,
            ready=ready is not None and ready.status == "True",
            message=ready.message if ready else "",
            since=ready.last_transition_time if ready else None,
            created=app.metadata.creation_timestamp,
            groups=tuple(self._group(d) for d in groups),
            addresses=addresses or ("by DHCP" if names else ""),
            address_pools=pools,
        )

    def _volumes(self, app: Kubernetes) -> tuple[model.VolumeView, ...]:
        key = Key(app.namespace, app.name)
        return dashboard_volumes.volumes_of(key, self._tenant_caches(key))

    def _node_pools(self, app: Kubernetes) -> tuple[model.NodePoolView, ...]:
        return self.node_pools(Key(app.namespace, app.name))

    def node_pools(self, key: Key) -> tuple[model.NodePoolView, ...]:
        """The node pools of a cluster, with why each node exists and when it is removed."""
        caches, pods = self._tenant_caches(key), self._pods(key)
        return dashboard_node_pools.node_pools_of(key, caches, self._insights(key), pods)

    def _group(self, group: MachineDeployment) -> model.NodeGroupView:
        template = group.spec.template.spec.infrastructure_ref
        guest = next(
            (
                m
                for m in self._guests.list(group.namespace)
                if template and _cloned_from(m) == template.name
            ),
            None,
        )
        return model.NodeGroupView(
            name=group.metadata.labels.get(GROUP_LABEL, group.name),
            replicas=1 if group.spec.replicas is None else group.spec.replicas,
            ready=group.status.ready_replicas or 0,
            updated=group.status.up_to_date_replicas or 0,
            cpus=_cpus(guest),
            memory_mib=(guest.spec.memory_mib or 0) if guest else 0,
        )

    def _machine_views(self) -> tuple[model.MachineView, ...]:
        machines = self._machines.list()
        clusters = {Key(m.namespace, m.spec.cluster_name) for m in machines}
        pods = {cluster: self._pods(cluster) for cluster in clusters}
        return tuple(
            self._machine(m, pods[Key(m.namespace, m.spec.cluster_name)]) for m in machines
        )

    def _machine(self, machine: CapiMachine, pods: dict[str, int]) -> model.MachineView:
        ref = machine.spec.infrastructure_ref
        guest = self._guests.find(Key(machine.namespace, ref.name)) if ref else None
        spec, status = (guest.spec, guest.status) if guest else (None, None)
        node = machine.status.node_ref.name if machine.status.node_ref else ""
        addresses = [a.address for a in machine.status.addresses if a.type == "InternalIP"]
        conditions = status.conditions if status else ()
        claim = spec.claim if spec else None
        return model.MachineView(
            namespace=machine.namespace,
            name=machine.name,
            cluster=machine.spec.cluster_name,
            group=machine.metadata.labels.get(GROUP_LABEL, ""),
            region=(spec.region or "") if spec else "",
            host=(status.proxmox_node or (claim.host if claim else "")) if status else "",
            vmid=(spec.virtual_machine_id or 0) if spec else 0,
            address=addresses[0] if addresses else "",
            version=machine.spec.version,
            cpus=_cpus(guest),
            memory_mib=(spec.memory_mib or 0) if spec else 0,
            numa=tuple(sorted({n.host_node for n in spec.numa_nodes})) if spec else (),
            observed=guest is not None,
            deleting=machine.deleting,
            outdated=self._is_outdated(machine),
            move=status.next_move if status else "",
            node=node,
            node_ready=_node_ready(machine) if node else False,
            pods=pods.get(node, 0),
            created=machine.metadata.creation_timestamp,
            conditions=(*_conditions(conditions), *_conditions(machine.status.conditions, "Node")),
            related=self._related(machine),
            template=claim.template if claim else 0,
        )

    def _is_outdated(self, machine: CapiMachine) -> bool:
        name = machine.metadata.labels.get(DEPLOYMENT_NAME, "")
        group = self._groups.find(Key(machine.namespace, name))
        owner = machine.metadata.controller
        own = self._sets.find(Key(machine.namespace, owner.name)) if owner else None
        if group is None or own is None:
            return False
        return bool(own.spec.template.spec != group.spec.template.spec)

    def _related(self, machine: CapiMachine) -> tuple[tuple[int, str, str], ...]:
        labels = machine.metadata.labels
        owner = machine.metadata.controller
        spec = machine.spec
        rows = [(0, "Cluster", spec.cluster_name)]
        if DEPLOYMENT_NAME in labels:
            rows.append((1, "MachineDeployment", labels[DEPLOYMENT_NAME]))
        if owner is not None:
            rows.append((2, owner.kind, owner.name))
        rows.append((3, "Machine", machine.name))
        if spec.infrastructure_ref:
            rows.append((4, spec.infrastructure_ref.kind, spec.infrastructure_ref.name))
        if spec.bootstrap.config_ref:
            rows.append((4, spec.bootstrap.config_ref.kind, spec.bootstrap.config_ref.name))
        if spec.provider_id:
            rows.append((4, "Guest", spec.provider_id.removeprefix("proxmox://")))
        node = machine.status.node_ref
        rows.append((4, "Node", node.name if node else "not yet"))
        return tuple(rows)


def _guests(region: Region) -> list[model.GuestView]:
    return [
        model.GuestView(
            region=region.name,
            host=guest.host,
            vmid=guest.vmid,
            name=guest.name or str(guest.vmid),
            running=guest.running or guest.status == "unknown",
            cpus=int(guest.cpus),
            memory_mib=guest.memory_bytes // MIB,
            memory_used_mib=guest.memory_used_bytes // MIB,
            cpu_load=guest.cpu_load,
        )
        for guest in sorted(region.inventory.guests.values(), key=lambda g: g.vmid)
        if not guest.template
    ]


def _belongs_to(group: MachineDeployment, cluster: str) -> bool:
    return group.metadata.labels.get(CLUSTER_NAME) == cluster


def _cloned_from(machine: ProxmoxMachine) -> Any:
    return machine.metadata.annotations.get("cluster.x-k8s.io/cloned-from-name")


def _cpus(machine: ProxmoxMachine | None) -> int:
    if machine is None:
        return 0
    return (machine.spec.num_cores or 1) * (machine.spec.num_sockets or 1)


def _node_ready(machine: CapiMachine) -> bool | None:
    ready = next((c for c in machine.status.conditions if c.type == "NodeReady"), None)
    if ready is None or ready.status == "Unknown":
        return None
    return ready.status == "True"


def _conditions(found: Any, only: str = "") -> list[model.ConditionView]:
    return [
        model.ConditionView(
            type=c.type,
            status=c.status,
            reason=c.reason,
            message=c.message,
            since=c.last_transition_time,
        )
        for c in found
        if c.type.startswith(only) and not (c.type == "Paused" and c.status == "False")
    ]
