"""
What is known of a node's guest: the inventory, one configuration, the agent if asked for.

A node that has its identity costs no request to be looked at again, unless its addresses come from
the guest agent, which alone knows them; :mod:`.sayings` bounds what that costs.
"""

from datetime import timedelta

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import Answer, Found, Lookup, Unknown
from moxwell.controllers.cloud.identity import Place
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.node.agent_cache import Addresses, Sayings
from moxwell.errors import Denied, MoxwellError, Terminal
from moxwell.pve import errors
from moxwell.pve.regions import Region

KEEP = timedelta(minutes=5)
YOUNG = timedelta(minutes=10)
Groups = dict[str, tuple[str, ...]]


class Eyes:
    """Looks; what is the same for a whole region or host is asked once in a while."""

    def __init__(self, lookup: Lookup, features: Features, clock: Clock) -> None:
        self._lookup, self._features, self._clock = lookup, features, clock
        self._models: dict[tuple[str, str], str] = {}
        self._groups: dict[str, tuple[float, Groups]] = {}
        self._sayings = Sayings(clock)

    def is_young(self, node: Node) -> bool:
        """Its guest may be too new for the inventory."""
        born = node.metadata.creation_timestamp
        return born is not None and self._clock.now() - born < YOUNG

    async def see(self, node: Node) -> tuple[Answer, Place | None]:
        """Whose guest it is, and where."""
        answer, new = await self._lookup.find(node), plan.is_new(node)
        if not isinstance(answer, Found):
            if new and self.is_young(node):
                self._lookup.expect()
            return answer, None
        try:
            return answer, await self._place(answer, new)
        except MoxwellError as error:
            return Unknown(str(error)), None

    async def _place(self, found: Found, new: bool) -> Place:
        region, guest, facts = found.region, found.guest, found.facts
        inside, silent = await self._inside(found, fresh=new)
        groups = await self._ha_groups(region) if new or self._features.force_update_labels else {}
        return Place(
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
            inside=inside,
            agent_silent=silent,
        )

    async def _inside(self, found: Found, *, fresh: bool) -> tuple[Addresses, bool]:
        """What the agent says, and whether it is silent."""
        if self._features.mode == "default":
            return (), False
        region, guest = found.region, found.guest

        async def ask() -> Addresses | None:
            try:
                cards = await region.pve.agent.interfaces(guest.host, guest.vmid)
            except (errors.AgentSilent, errors.WrongState, Terminal):
                return None
            return tuple((c.name, a.ip) for c in cards for a in c.addresses)

        said = await self._sayings.addresses(region.name, guest, ask, fresh=fresh)
        return said or (), said is None

    async def _model(self, region: Region, host: str) -> str:
        """The processor of a host; asked once, it does not change under a running guest."""
        key = (region.name, host)
        if key not in self._models:
            try:
                self._models[key] = (await region.pve.nodes.status(host)).cpuinfo.model
            except MoxwellError:
                return ""  # a label less is no reason to keep a node out
        return self._models[key]

    async def _ha_groups(self, region: Region) -> Groups:
        """Groups (Proxmox VE 8) or node affinity rules (9) by resource; asked every few minutes."""
        now = self._clock.monotonic()
        kept = self._groups.get(region.name)
        if kept is None or now - kept[0] > KEEP.total_seconds():
            try:
                kept = (now, await _read_groups(region))
            except MoxwellError as error:
                # Without its zone a node has no identity; without a mere label it has.
                if self._features.ha_group or self._features.force_update_labels:
                    raise
                kept = (now, {}) if isinstance(error, Denied) else (now - KEEP.total_seconds(), {})
            self._groups[region.name] = kept
        return kept[1]


async def _read_groups(region: Region) -> Groups:
    try:
        rules = await region.pve.ha.rules(type="node-affinity")
        return _by_resource([(r.rule, sid) for r in rules for sid in r.sids])
    except Denied:
        raise
    except Terminal:
        pass  # Proxmox VE 8 has groups
    resources = await region.pve.ha.resources()
    return _by_resource([(r.group, r.sid) for r in resources if r.group])


def _by_resource(pairs: list[tuple[str, str]]) -> Groups:
    found: Groups = {}
    for group, sid in sorted(pairs):
        found[sid] = (*found.get(sid, ()), group)
    return found
