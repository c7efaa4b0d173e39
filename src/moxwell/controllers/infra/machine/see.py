"""
Looking: everything a pass needs to know of one machine, and no more requests than that.

In flows the object, out flows :class:`Seen`. Caches and the shared inventory answer nearly all of
it; Proxmox itself is asked only in the stages that need it (a clone that is not marked yet, a guest
that boots), so a machine that lives costs no requests at all.
"""

from dataclasses import dataclass, replace

from msgspec import structs

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.network_plan import devices_of
from moxwell.controllers.infra.machine.guest_agent import Peer
from moxwell.controllers.infra.machine.ip_claims import Pools
from moxwell.controllers.infra.machine.observed import Around, Seen
from moxwell.controllers.infra.machine.placement import Chooser
from moxwell.controllers.infra.machine.stale_clone import Carcasses
from moxwell.controllers.infra.owners import cluster_key, ground_key, owner_key
from moxwell.controllers.infra.task_backoff import Setbacks
from moxwell.controllers.infra.zone_defaults import Grounds
from moxwell.errors import MoxwellError, Retryable
from moxwell.pve import errors
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.scheduling.inventory_model import HostKey
from moxwell.scheduling.zone_settings import ground_of

GIVE_UP_HOST = (
    errors.StorageFull,
    errors.CannotHere,
    errors.HostMissing,
    errors.HostUnreachable,
    errors.VolumeMissing,
)


@dataclass(frozen=True, slots=True)
class Caches:
    """The objects of others that a machine depends on."""

    machines: Cache[Machine]
    clusters: Cache[Cluster]
    grounds: Cache[ProxmoxCluster]


class Eyes:
    """Looks at one machine at a time."""

    def __init__(
        self,
        regions: Regions,
        caches: Caches,
        *,
        chooser: Chooser,
        grounds: Grounds,
        pools: Pools,
        peer: Peer,
        setbacks: Setbacks,
        carcasses: Carcasses,
    ) -> None:
        self._regions, self._caches, self._carcasses = regions, caches, carcasses
        self._chooser, self._grounds = chooser, grounds
        self._pools, self._peer, self._setbacks = pools, peer, setbacks

    async def see(self, obj: ProxmoxMachine) -> Seen:
        """Everything this pass needs."""
        seen = self._surroundings(obj)
        if obj.deleting:
            return await self._see_end(obj, seen)
        if seen.around is None or seen.stuck is not None:
            return seen
        if obj.spec.virtual_machine_id is None:
            return await self._see_place(obj, seen.around, seen)
        return await self._see_life(obj, seen.around, seen)

    # ---- whose it is

    def _surroundings(self, obj: ProxmoxMachine) -> Seen:
        key = owner_key(obj, "Machine")
        machine = self._caches.machines.find(key) if key else None
        where = cluster_key(obj, machine)
        cluster = self._caches.clusters.find(where) if where else None
        at = ground_key(cluster) if cluster else None
        ground = self._caches.grounds.find(at) if at else None
        owned = self._pools.owned(obj)
        if machine is None:
            stuck = Wait("WaitingForMachine", "no Machine owns this object yet")
            return Seen(stuck=stuck, owned_claims=owned)
        if cluster is None or ground is None:
            stuck = Wait("WaitingForCluster", "its Cluster or ProxmoxCluster is not there yet")
            return Seen(stuck=stuck, owned_claims=owned)
        around = Around(machine, cluster, ground)
        return Seen(stuck=_stuck(obj, around), around=around, owned_claims=owned)

    # ---- a machine without a place

    async def _see_place(
        self,
        obj: ProxmoxMachine,
        around: Around,
        seen: Seen,
        avoid: frozenset[HostKey] = frozenset(),
    ) -> Seen:
        machine = around.machine.spec
        zones, down = self._grounds.zones(around.ground, machine.failure_domain, obj.spec.zones)
        if not zones:
            return replace(seen, stuck=Wait("RegionUnreachable", down), region_down=down)
        cluster = (around.cluster.name, around.ground.spec)
        choice, placement = await self._chooser.choose(
            obj, cluster, zones, version=machine.version, avoid=avoid
        )
        if choice is None:
            said = placement.sentence() + (f" | {down}" if down else "")
            return replace(seen, stuck=Wait("InsufficientResources", said))
        return replace(seen, choice=choice)

    # ---- a machine with a place

    async def _see_life(self, obj: ProxmoxMachine, around: Around, seen: Seen) -> Seen:
        region, seen = self._see_region(obj, seen)
        if region is None:
            return seen
        claim = obj.spec.claim
        zone = ground_of(around.cluster.name, around.ground.spec, claim.zone if claim else "")
        seen = self._see_work(obj, region, replace(seen, zone=zone))
        if claim is None:
            return replace(seen, guest=await self._peer.find(obj, region))
        if not obj.spec.provider_id:
            seen = await self._see_seed(obj, around.machine, region, seen)
        ready = bool(obj.spec.provider_id or seen.iso_there)
        seen = replace(seen, guest=await self._peer.find(obj, region, ask=ready))
        seen = await self._see_carcasses(obj, region, _located(seen, claim, region))
        if not obj.spec.provider_id and (avoid := _elsewhere(region, claim, seen)) is not None:
            moved = await self._see_place(obj, around, seen, avoid)
            if moved.choice is not None or not seen.claim_host_online:
                return _with_left(obj, claim, moved)
        if seen.guest is not None and seen.guest.marked:
            care = await self._peer.ha_care(obj, region)
            seen = await self._see_boot(obj, around.machine, region, replace(seen, care=care))
        return await self._see_inside(obj, region, seen)

    async def _see_carcasses(self, obj: ProxmoxMachine, region: Region, seen: Seen) -> Seen:
        """Whether the clone died half-way, and what earlier ones left."""
        dead = await self._carcasses.is_dead(obj, region, seen.guest, busy=seen.task)
        left = list(obj.spec.claim.left) if obj.spec.claim else []
        if dead and obj.deleting:
            left.append(f"{region.name}/{obj.spec.virtual_machine_id}")
        return replace(seen, dead=dead, carcasses=await self._carcasses.look(obj, left))

    async def _see_seed(
        self, obj: ProxmoxMachine, machine: Machine, region: Region, seen: Seen
    ) -> Seen:
        """The seed disk and what it is made of; it can be brought before the guest is there."""
        claim = obj.spec.claim
        assert claim is not None
        mould = await self._peer.mould(region, claim)
        devices = devices_of(obj.spec, mould.nics if mould else {})
        addresses = self._pools.look(obj, devices, seen.zone)
        seen = replace(seen, devices=devices, addresses=addresses)
        if not addresses.ready or seen.uploading:
            return replace(seen, iso_there=None)
        if await self._peer.iso_there(obj, region, claim):
            return replace(seen, iso_there=True)
        return replace(seen, iso_there=False, bootstrap=await self._peer.bootstrap(machine))

    async def _see_boot(
        self, obj: ProxmoxMachine, machine: Machine, region: Region, seen: Seen
    ) -> Seen:
        """How far the bootstrap is, of a guest whose seed is still in."""
        guest, claim = seen.guest, obj.spec.claim
        if guest is None or claim is None or not obj.spec.provider_id:
            return seen
        if not guest.booting:
            return replace(seen, bootstrapped=True)
        if machine.status.node_ref is not None:
            there = await self._peer.iso_there(obj, region, claim)
            return replace(seen, bootstrapped=True, iso_there=there)
        if not guest.seen.running:
            return seen
        done, says, pause = await self._peer.sentinel(obj, region, guest.seen, machine)
        return replace(seen, bootstrapped=done, agent_says=says, agent_pause=pause)

    async def _see_inside(self, obj: ProxmoxMachine, region: Region, seen: Seen) -> Seen:
        """Addresses: as claimed, or as the guest's own agent tells where DHCP gave them."""
        guest = seen.guest
        if not seen.devices:
            devices = devices_of(obj.spec, {})
            seen = replace(
                seen, devices=devices, addresses=self._pools.look(obj, devices, seen.zone)
            )
        if seen.addresses.wants or guest is None or not (seen.bootstrapped and guest.seen.running):
            return seen
        return replace(seen, inside=await self._peer.addresses(obj, region, guest.seen))

    # ---- the end

    async def _see_end(self, obj: ProxmoxMachine, seen: Seen) -> Seen:
        seen = replace(seen, stuck=None)
        vmid, claim = obj.spec.virtual_machine_id, obj.spec.claim
        if vmid is None or not obj.spec.region:
            return replace(seen, gone=True, iso_there=False)
        region, seen = self._see_region(obj, seen)
        if region is None:
            return seen
        seen = self._see_work(obj, region, seen)
        guest = await self._peer.find(obj, region)
        seen = replace(seen, guest=guest)
        if claim is not None:
            seen = await self._see_carcasses(obj, region, _located(seen, claim, region))
        if guest is not None and (guest.ours or guest.arriving or seen.dead):
            return seen
        gone = guest is not None or await region.inventory.is_gone(vmid)
        if not gone:
            region.inventory.work_is_under_way()
        return replace(seen, gone=gone, iso_there=await self._left_iso(obj, region, seen))

    async def _left_iso(self, obj: ProxmoxMachine, region: Region, seen: Seen) -> bool:
        claim = obj.spec.claim
        if claim is None or not claim.iso_storage or not seen.claim_host_known:
            return False
        if not seen.claim_host_online:
            return True
        try:
            return await self._peer.iso_there(obj, region, claim)
        except MoxwellError as error:
            if isinstance(error, Retryable):
                raise
            return False  # the storage itself is gone

    # ---- the region

    def _see_region(self, obj: ProxmoxMachine, seen: Seen) -> tuple[Region | None, Seen]:
        name, around = obj.spec.region or "", seen.around
        region = self._grounds.find(around.ground, name) if around else self._regions.find(name)
        if region is None:
            known = ", ".join(sorted(self._regions)) or "none"
            said = f"region {name!r} is not configured here (known: {known}); nothing is assumed"
            return None, replace(seen, stuck=Wait("RegionUnknown", said), region_down=said)
        health = region.inventory.health
        if not health.reachable:
            said = f"region {name} does not answer: {health.error}"
            return None, replace(seen, stuck=Wait("RegionUnreachable", said), region_down=said)
        return region, seen

    def _see_work(self, obj: ProxmoxMachine, region: Region, seen: Seen) -> Seen:
        key = Key(obj.namespace, obj.name)
        types = [upid.type for upid in region.tasks.of(key)]
        return replace(
            seen,
            task=any(type_ != "imgcopy" for type_ in types),
            uploading="imgcopy" in types,
            setback=self._setbacks.find(key),
            pause_seconds=self._setbacks.seconds_left(key),
        )


def _stuck(obj: ProxmoxMachine, around: Around) -> Wait | None:
    """What others must do first; a machine that is claimed waits for nobody."""
    if obj.spec.provider_id or obj.spec.virtual_machine_id:
        return None
    if not (
        around.cluster.status.initialization.infrastructure_provisioned
        or around.ground.status.initialization.provisioned
    ):
        said = f"{around.ground.name} is not provisioned yet"
        return Wait("WaitingForClusterInfrastructure", said)
    bootstrap = around.machine.spec.bootstrap
    if bootstrap.data_secret_name is None and bootstrap.config_ref is not None:
        return Wait("WaitingForBootstrapData", f"{bootstrap.config_ref.name} has no data yet")
    return None


def _elsewhere(region: Region, claim: Claim, seen: Seen) -> frozenset[HostKey] | None:
    """The hosts to avoid in a new choice, where the first one came to nothing; None: it stands."""
    guest, here = seen.guest, frozenset({HostKey(region.name, claim.host)})
    if seen.dead:
        return frozenset() if seen.claim_host_online else here
    if guest is not None:
        stranger = not guest.ours and not guest.arriving
        return frozenset() if stranger else None
    if not seen.claim_host_online:
        return here
    back = seen.setback
    hopeless = back is not None and back.count >= 2 and isinstance(back.error, GIVE_UP_HOST)
    return here if hopeless and not seen.task else None


def _with_left(obj: ProxmoxMachine, claim: Claim, seen: Seen) -> Seen:
    """A new choice remembers the old id, unless that is a stranger's: something may lie there."""
    if seen.choice is None:
        return seen
    stranger = seen.guest is not None and not seen.dead
    new = () if stranger else (f"{obj.spec.region}/{obj.spec.virtual_machine_id}",)
    kept = structs.replace(seen.choice.claim, left=tuple(dict.fromkeys([*claim.left, *new])))
    return replace(seen, choice=replace(seen.choice, claim=kept))


def _located(seen: Seen, claim: Claim, region: Region) -> Seen:
    """Where it is, and whether the host it was promised is alive."""
    host = region.inventory.hosts.get(claim.host)
    at = seen.guest.seen.host if seen.guest else claim.host
    location = claim.zone
    if claim.zone and seen.around and at != claim.host:
        zones = [z for z in seen.around.ground.spec.zone_config if at in z.nodes]
        location = zones[0].zone if zones else claim.zone
    return replace(
        seen,
        claim_host_online=bool(host and host.online),
        claim_host_known=host is not None,
        location=location or region.zone_of(at),
    )
