"""
Reads the guest of a node: inventory, configuration, guest agent, HA groups, attached volumes.

An initialized node costs no request to Proxmox, unless its addresses come from the guest agent.
"""

import asyncio
from datetime import timedelta
from typing import Any

from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import GuestFound, GuestLookup, GuestUnknown
from moxwell.controllers.cloud.identity import ZONE, GuestIdentity
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.node.agent_cache import AgentAddressCache, InterfaceAddresses
from moxwell.controllers.cloud.node.plan import ObservedCloudNode
from moxwell.errors import Denied, MoxwellError, Terminal
from moxwell.kube.reader import Reader
from moxwell.pve import errors
from moxwell.pve.regions import Region

CACHE_TIME = timedelta(minutes=5)
YOUNG = timedelta(minutes=10)
STORAGE = "storage.k8s.io"
ATTACHMENTS = Resource(STORAGE, "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
HaGroups = dict[str, tuple[str, ...]]


class CloudNodeObserver:
    """Reads guests of nodes; what is the same for a region or a host is cached."""

    def __init__(self, lookup: GuestLookup, features: Features, clock: Clock) -> None:
        self._lookup, self._features, self._clock = lookup, features, clock
        self._models: dict[tuple[str, str], str] = {}
        self._groups: dict[str, tuple[float, HaGroups]] = {}
        self._group_locks: dict[str, asyncio.Lock] = {}  # nodes that join together read once
        self._agents = AgentAddressCache(clock)

    async def see(self, node: Node, reader: Reader) -> ObservedCloudNode:
        """The guest of a node, and whether its volumes tie it to a zone."""
        result, new, young = await self._lookup.find(node), plan.is_new(node), self._is_young(node)
        if not isinstance(result, GuestFound):
            if new and young:
                self._lookup.expect()
            return ObservedCloudNode(result=result, young=young)
        try:
            guest = await self._identity(result, new)
        except MoxwellError as error:
            return ObservedCloudNode(result=GuestUnknown(str(error)), young=young)
        moved = not new and plan.has_moved(node, guest, self._features)
        pinned = moved and await _is_pinned(node, reader)
        return ObservedCloudNode(result=result, guest=guest, pinned=pinned, young=young)

    def _is_young(self, node: Node) -> bool:
        created = node.metadata.creation_timestamp
        return created is not None and self._clock.now() - created < YOUNG

    async def _identity(self, found: GuestFound, new: bool) -> GuestIdentity:
        region, guest, facts = found.region, found.guest, found.facts
        addresses, running = await self._agent_addresses(found, fresh=new)
        groups = await self._ha_groups(region) if new or self._features.force_update_labels else {}
        return GuestIdentity(
            region=region.name,
            vmid=guest.vmid,
            host=guest.host,
            zone=region.zone_of(guest.host),
            uuid=facts.uuid,
            cores=facts.cores,
            memory_mib=facts.memory_mib,
            sku=facts.sku,
            ha_groups=groups.get(f"vm:{guest.vmid}", ()),
            cpu_model=await self._model(region, guest.host) if new else "",
            dedicated=facts.dedicated,
            agent_addresses=addresses,
            agent_running=running,
        )

    async def _agent_addresses(
        self, found: GuestFound, *, fresh: bool
    ) -> tuple[InterfaceAddresses, bool]:
        """The addresses that the agent reports, and whether it runs."""
        if self._features.mode == "default":
            return (), True
        region, guest = found.region, found.guest

        async def ask() -> InterfaceAddresses | None:
            try:
                interfaces = await region.reader.agent.interfaces(guest.host, guest.vmid)
            except (errors.AgentNotRunning, errors.WrongState, Terminal):
                return None
            return tuple((i.name, a.ip) for i in interfaces for a in i.addresses)

        answer = await self._agents.addresses(region.name, guest, ask, fresh=fresh)
        return answer or (), answer is not None

    async def _model(self, region: Region, host: str) -> str:
        """The CPU model of a host, read once."""
        key = (region.name, host)
        if key not in self._models:
            try:
                self._models[key] = (await region.reader.nodes.status(host)).cpuinfo.model
            except MoxwellError:
                return ""  # the node is initialized without this label
        return self._models[key]

    async def _ha_groups(self, region: Region) -> HaGroups:
        """HA groups (Proxmox VE 8) or node affinity rules (9) by resource, cached for minutes."""
        async with self._group_locks.setdefault(region.name, asyncio.Lock()):
            return await self._cached_groups(region)

    async def _cached_groups(self, region: Region) -> HaGroups:
        now = self._clock.monotonic()
        cached = self._groups.get(region.name)
        if cached is None or now - cached[0] > CACHE_TIME.total_seconds():
            try:
                cached = (now, await _read_groups(region))
            except MoxwellError as error:
                # An HA group may be the zone of the node; else it is only a label.
                if self._features.ha_group or self._features.force_update_labels:
                    raise
                cached = (
                    (now, {})
                    if isinstance(error, Denied)
                    else (now - CACHE_TIME.total_seconds(), {})
                )
            self._groups[region.name] = cached
        return cached[1]


async def _read_groups(region: Region) -> HaGroups:
    if await region.reader.has_ha_rules():
        rules = await region.reader.ha.rules(type="node-affinity")
        return _by_resource([(r.rule, sid) for r in rules for sid in r.sids])
    resources = await region.reader.ha.resources()
    return _by_resource([(r.group, r.sid) for r in resources if r.group])


def _by_resource(pairs: list[tuple[str, str]]) -> HaGroups:
    found: HaGroups = {}
    for group, sid in sorted(pairs):
        found[sid] = (*found.get(sid, ()), group)
    return found


async def _is_pinned(node: Node, reader: Reader) -> bool:
    """Whether an attached volume exists only in the zone of the node's label."""
    zone = node.metadata.labels.get(ZONE, "")
    attached = (await reader.list(ATTACHMENTS)).items
    names = {
        a["spec"].get("source", {}).get("persistentVolumeName")
        for a in attached
        if a["spec"].get("nodeName") == node.name
    }
    if not names:
        return False
    volumes = (await reader.list(VOLUMES)).items
    return any(v["metadata"]["name"] in names and _is_only_in(v, zone) for v in volumes)


def _is_only_in(volume: dict[str, Any], zone: str) -> bool:
    affinity = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    return any(
        expression.get("key") == ZONE and zone in (expression.get("values") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    )
