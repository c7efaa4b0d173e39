"""
Observes one ProxmoxMachine: owners, region, guest, addresses, bootstrap ISO, bootstrap progress.

Caches and the shared inventory answer nearly everything. Proxmox is asked only in the stages that
need it (a clone without owner mark, a booting guest), so a running machine costs no requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from moxwell.api.capi.core import Cluster, Machine, MachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim, LastApplied
from moxwell.api.infra.tenant_limits import TenantLimits, limits_in
from moxwell.api.infra.warm_guests import is_warm
from moxwell.api.infra.zone_settings import zone_settings_of
from moxwell.api.kinds import Resource
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap import node_templates
from moxwell.bootstrap.network_plan import devices_of
from moxwell.controllers.infra.machine.clone_slots import CloneSlots, CloneTarget
from moxwell.controllers.infra.machine.guest import GuestReader, read_bootstrap
from moxwell.controllers.infra.machine.guest_agent import GuestAgentProbe
from moxwell.controllers.infra.machine.in_place import moves_pool
from moxwell.controllers.infra.machine.ip_claims import IPClaimReader
from moxwell.controllers.infra.machine.observed import (
    MachineRegion,
    ObservedPlacement,
    ObservedProxmoxMachine,
    OwnerObjects,
)
from moxwell.controllers.infra.machine.placement_reader import PlacementReader
from moxwell.controllers.infra.machine.quota import QuotaReader, grows
from moxwell.controllers.infra.machine.replacement import (
    IDLE_SECONDS,
    is_stale,
    needs_place,
    own_name,
)
from moxwell.controllers.infra.machine.stale_clone import StaleCloneObserver, clone_tasks_run
from moxwell.controllers.infra.machine.taken_addresses import TakenAddressReader
from moxwell.controllers.infra.owners import cluster_key, owner_key, proxmox_cluster_key
from moxwell.controllers.infra.task_backoff import TaskBackoff
from moxwell.controllers.infra.waiting_placements import WaitingPlacements
from moxwell.controllers.infra.zone_defaults import ZoneResolver
from moxwell.errors import Denied, MoxwellError, Retryable
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


@dataclass(frozen=True, slots=True)
class MachineCaches:
    """The caches of the objects that a machine belongs to."""

    machines: Cache[Machine]
    clusters: Cache[Cluster]
    proxmox_clusters: Cache[ProxmoxCluster]


IsScaled = Callable[[Key], bool]  # whether an autoscaler runs for the Cluster of this key


class MachineObserver:
    """Observes one machine at a time."""

    def __init__(
        self,
        regions: Regions,
        caches: MachineCaches,
        *,
        placement: PlacementReader,
        zones: ZoneResolver,
        ip_claims: IPClaimReader,
        guests: GuestReader,
        agent: GuestAgentProbe,
        backoff: TaskBackoff,
        stale_clones: StaleCloneObserver,
        quota: QuotaReader,
        clone_slots: CloneSlots,
        is_scaled: IsScaled,
        waiting: WaitingPlacements,
        taken: TakenAddressReader,
    ) -> None:
        self._taken = taken
        self._clone_slots, self._is_scaled, self._waiting = clone_slots, is_scaled, waiting
        self._regions, self._caches, self._stale_clones = regions, caches, stale_clones
        self._placement, self._zones, self._ip_claims = placement, zones, ip_claims
        self._guests, self._agent, self._backoff = guests, agent, backoff
        self._quota = quota

    async def see(self, obj: ProxmoxMachine, reader: Reader) -> ObservedProxmoxMachine:
        """Everything this pass needs; what a placement needs is read last."""
        seen = self._see_owners(obj)
        if obj.deleting:
            return await self._see_deletion(obj, seen)
        owners = seen.owners
        if owners is None:
            return seen
        if obj.spec.virtual_machine_id is not None:
            seen = await self._see_guest(obj, owners, seen, reader)
            seen = await self._see_growth(obj, seen, reader)
        if needs_place(obj, seen):
            tenant = await self._see_tenant(obj, reader)
            placement = await self._see_placement(obj, owners, tenant, reader)
            seen = structs.replace(seen, tenant=tenant, placement=placement)
        return seen

    # ---- objects

    def _see_owners(self, obj: ProxmoxMachine) -> ObservedProxmoxMachine:
        key = owner_key(obj, "Machine")
        machine = self._caches.machines.find(key) if key else None
        key = cluster_key(obj, machine)
        cluster = self._caches.clusters.find(key) if key else None
        key = proxmox_cluster_key(cluster) if cluster else None
        proxmox_cluster = self._caches.proxmox_clusters.find(key) if key else None
        owners = None
        future = machine or (_future_machine(obj, cluster) if cluster and is_warm(obj) else None)
        if future and cluster and proxmox_cluster:
            owners = OwnerObjects(future, cluster, proxmox_cluster)
        return ObservedProxmoxMachine(
            machine=machine,
            owners=owners,
            scope=str(key) if proxmox_cluster and key else "",
            owned_claims=self._ip_claims.owned(obj),
            legacy_applied=legacy_applied(obj),
            scaled=cluster is None or self._is_scaled(Key(cluster.namespace, cluster.name)),
        )

    async def _see_tenant(self, obj: ProxmoxMachine, reader: Reader) -> TenantLimits | None:
        """The limits of the machine's tenant; without the right to read namespaces none exist."""
        try:
            namespace = await reader.find(NAMESPACES, obj.namespace)
        except Denied:
            return None
        return limits_in((namespace or {}).get("metadata") or {})

    async def _see_placement(
        self,
        obj: ProxmoxMachine,
        owners: OwnerObjects,
        tenant: TenantLimits | None,
        reader: Reader,
    ) -> ObservedPlacement:
        machine, cluster = owners.machine.spec, owners.proxmox_cluster
        limits = await self._quota.limits(obj.namespace, reader)
        zones, unreachable = self._zones.zones(cluster, machine.failure_domain, obj.spec.zones)
        if not zones:
            return ObservedPlacement(None, unreachable=unreachable)
        found = await self._placement.read(
            obj, cluster.spec, zones, version=machine.version, tenant=tenant
        )
        excess = self._quota.excess_of_new(obj, limits)  # nothing is awaited after the read
        self._waiting.note(obj, None if excess else found.input)
        return replace(found, unreachable=unreachable, excess=excess)

    async def _see_growth(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine, reader: Reader
    ) -> ObservedProxmoxMachine:
        """Whether a tenant may have the larger size or the pool that a change in place asks for."""
        guest = seen.guest
        if guest is not None and guest.warm and not is_warm(obj):  # it is handed over
            limits = await self._quota.limits(obj.namespace, reader)
            return structs.replace(seen, excess=self._quota.excess_of_new(obj, limits))
        if obj.spec.changes != "InPlace" or guest is None or not guest.marked:
            return seen
        if moves_pool(obj, guest):
            seen = structs.replace(seen, tenant=await self._see_tenant(obj, reader))
        if not grows(obj.spec, guest):
            return seen
        limits = await self._quota.limits(obj.namespace, reader)
        return structs.replace(seen, excess=self._quota.excess_of_growth(obj, guest, limits))

    # ---- the guest

    async def _see_guest(
        self,
        obj: ProxmoxMachine,
        owners: OwnerObjects,
        seen: ObservedProxmoxMachine,
        reader: Reader,
    ) -> ObservedProxmoxMachine:
        region, seen = self._see_region(obj, seen)
        if region is None:
            return seen
        claim = obj.spec.claim
        zone_name = claim.zone if claim else ""
        zone = zone_settings_of(owners.cluster.name, owners.proxmox_cluster.spec, zone_name)
        seen = self._see_tasks(obj, region, structs.replace(seen, zone=zone))
        if claim is None:
            return structs.replace(seen, guest=await self._guests.find(obj, region))
        if not obj.spec.provider_id and not is_warm(obj):
            seen = await self._see_iso(obj, owners.machine, region, seen, reader)
        ready = bool(obj.spec.provider_id or seen.iso_exists or is_warm(obj))
        seen = structs.replace(seen, guest=await self._guests.find(obj, region, read_config=ready))
        seen = await self._see_stale_clones(obj, region, _located(seen, claim, region))
        if seen.guest is not None and seen.guest.marked:
            seen = structs.replace(seen, ha_mode=await self._guests.ha_mode(obj, region))
            seen = await self._see_bootstrap(obj, owners.machine, region, seen)
        if seen.guest is None:
            owner = Key(obj.namespace, obj.name)
            target = CloneTarget(claim.template_host, claim.storage, not claim.linked)
            waits = self._clone_slots.are_taken(owner, region, target)
            seen = structs.replace(seen, clone_must_wait=waits)
        return await self._see_addresses(obj, region, seen)

    async def _see_stale_clones(
        self, obj: ProxmoxMachine, region: Region, seen: ObservedProxmoxMachine
    ) -> ObservedProxmoxMachine:
        """How long an incomplete clone is idle, and the state of abandoned clones."""
        guest = seen.guest
        idle = self._stale_clones.idle_seconds(obj, guest, task_running=seen.task_running)
        running = None
        if idle is not None and idle >= IDLE_SECONDS and guest is not None and guest.host_online:
            running = await clone_tasks_run(region, guest.seen.host)
        seen = structs.replace(seen, idle_clone_seconds=idle, clone_tasks_run=running)
        names = list(obj.spec.claim.stale_clones) if obj.spec.claim else []
        if obj.deleting and is_stale(obj, seen):
            names.append(own_name(obj))
        return structs.replace(
            seen, stale_clones=await self._stale_clones.read(obj, names, seen.scope)
        )

    async def _see_iso(
        self,
        obj: ProxmoxMachine,
        machine: Machine,
        region: Region,
        seen: ObservedProxmoxMachine,
        reader: Reader,
    ) -> ObservedProxmoxMachine:
        """The bootstrap ISO and its contents; it can be uploaded before the guest exists."""
        claim = obj.spec.claim
        assert claim is not None
        template = await self._guests.template(region, claim)
        devices = devices_of(obj.spec, template.nics if template else {})
        addresses = self._ip_claims.read(obj, devices, seen.zone)
        seen = structs.replace(seen, devices=devices, addresses=addresses)
        if not addresses.ready or seen.uploading:
            return structs.replace(seen, iso_exists=None)
        if await self._guests.iso_exists(obj, region, claim):
            return structs.replace(seen, iso_exists=True)
        taken = await self._taken.find(obj, region, seen, template.nics if template else {})
        if taken:
            found = replace(addresses, taken=taken)
            return structs.replace(seen, addresses=found, iso_exists=None)
        bootstrap = await read_bootstrap(reader, machine, template)
        seen = structs.replace(seen, iso_exists=False, bootstrap=bootstrap)
        if bootstrap is None or bootstrap.format != node_templates.FORMAT:
            return seen
        nics = template.nics if template else {}
        bridges = await self._placement.host_bridges(
            region, claim.host, devices, nics, seen.zone.bridge
        )
        return structs.replace(seen, host_bridges=bridges)

    async def _see_bootstrap(
        self, obj: ProxmoxMachine, machine: Machine, region: Region, seen: ObservedProxmoxMachine
    ) -> ObservedProxmoxMachine:
        """How far the bootstrap of a started guest is."""
        guest, claim = seen.guest, obj.spec.claim
        if guest is None or claim is None or not obj.spec.provider_id:
            return seen
        if not guest.booting:
            return structs.replace(seen, bootstrapped=True)
        if machine.status.node_ref is not None:
            exists = await self._guests.iso_exists(obj, region, claim)
            return structs.replace(seen, bootstrapped=True, iso_exists=exists)
        if not guest.seen.running:
            return seen
        progress = await self._agent.bootstrap_progress(obj, region, guest.seen, machine)
        return structs.replace(
            seen,
            bootstrapped=progress.done,
            agent_message=progress.message,
            agent_poll_seconds=progress.poll_seconds,
        )

    async def _see_addresses(
        self, obj: ProxmoxMachine, region: Region, seen: ObservedProxmoxMachine
    ) -> ObservedProxmoxMachine:
        """The addresses from the pools, or from the guest agent if DHCP assigned them."""
        guest = seen.guest
        if not seen.devices:
            devices = devices_of(obj.spec, {})
            addresses = self._ip_claims.read(obj, devices, seen.zone)
            seen = structs.replace(seen, devices=devices, addresses=addresses)
        runs = guest is not None and seen.bootstrapped and guest.seen.running
        if seen.addresses.requests or guest is None or not runs:
            return seen
        found = await self._agent.addresses(obj, region, guest.seen)
        return structs.replace(seen, agent_addresses=found)

    # ---- deletion

    async def _see_deletion(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine
    ) -> ObservedProxmoxMachine:
        vmid, claim = obj.spec.virtual_machine_id, obj.spec.claim
        if vmid is None or not obj.spec.region:
            return structs.replace(seen, vmid_free=True, iso_exists=False)
        region, seen = self._see_region(obj, seen)
        if region is None:
            return seen
        seen = self._see_tasks(obj, region, seen)
        guest = await self._guests.find(obj, region)
        seen = structs.replace(seen, guest=guest)
        if claim is not None:
            seen = await self._see_stale_clones(obj, region, _located(seen, claim, region))
        if guest is not None and (guest.ours or guest.cloning or is_stale(obj, seen)):
            return seen
        free = guest is not None or await region.inventory.is_gone(vmid, recent=True)
        if not free:
            region.inventory.poll_frequently()
        exists = await self._iso_remains(obj, region, seen)
        return structs.replace(seen, vmid_free=free, iso_exists=exists)

    async def _iso_remains(
        self, obj: ProxmoxMachine, region: Region, seen: ObservedProxmoxMachine
    ) -> bool:
        claim = obj.spec.claim
        if claim is None or not claim.iso_storage or not seen.claim_host_known:
            return False
        if not seen.claim_host_online:
            return True
        try:
            return await self._guests.iso_exists(obj, region, claim)
        except MoxwellError as error:
            if isinstance(error, Retryable):
                raise
            return False  # the storage does not exist any more

    # ---- region and tasks

    def _see_region(
        self, obj: ProxmoxMachine, seen: ObservedProxmoxMachine
    ) -> tuple[Region | None, ObservedProxmoxMachine]:
        name, visible = obj.spec.region or "", self._regions.scope(seen.scope)
        region = visible.find(name)
        if region is None:
            known = ", ".join(sorted(visible)) or "none"
            error = f"region {name!r} is not configured (configured: {known})"
            return None, structs.replace(seen, region=MachineRegion(known=False, error=error))
        health = region.inventory.health
        if not health.reachable:
            error = f"region {name} does not answer: {region.problem}"
            return None, structs.replace(seen, region=MachineRegion(reachable=False, error=error))
        return region, structs.replace(seen, region=MachineRegion(root=region.config.is_root))

    def _see_tasks(
        self, obj: ProxmoxMachine, region: Region, seen: ObservedProxmoxMachine
    ) -> ObservedProxmoxMachine:
        key = Key(obj.namespace, obj.name)
        types = [upid.type for upid in region.tasks.of(key)]
        return structs.replace(
            seen,
            task_running=any(type_ != "imgcopy" for type_ in types),
            uploading="imgcopy" in types,
            failure=self._backoff.find(key),
            backoff_seconds=self._backoff.seconds_left(key),
        )


def _future_machine(obj: ProxmoxMachine, cluster: Cluster) -> Machine:
    """A warm guest has no Machine yet: its own spec says where it is placed."""
    return Machine(
        metadata=ObjectMeta(name=obj.name, namespace=obj.namespace),
        spec=MachineSpec(cluster_name=cluster.name),
    )


def legacy_applied(obj: ProxmoxMachine) -> LastApplied | None:
    """What an earlier version recorded in the status instead of the claim; None if nothing."""
    applied = obj.status.applied or LastApplied()
    if obj.status.hardware:
        applied = structs.replace(applied, hardware_hash=obj.status.hardware)
    return None if applied == LastApplied() else applied


def _located(seen: ObservedProxmoxMachine, claim: Claim, region: Region) -> ObservedProxmoxMachine:
    """Adds the failure domain of the guest's host, and whether the claimed host is online."""
    host = region.inventory.hosts.get(claim.host)
    at = seen.guest.seen.host if seen.guest else claim.host
    zone = claim.zone
    if claim.zone and seen.owners and at != claim.host:
        config = seen.owners.proxmox_cluster.spec.zone_config
        zone = next((z.zone for z in config if at in z.nodes), claim.zone)
    return structs.replace(
        seen,
        claim_host_online=bool(host and host.online),
        claim_host_known=host is not None,
        failure_domain=zone or region.zone_of(at),
    )
