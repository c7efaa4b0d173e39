"""What is known of a node's guest: the inventory, one configuration, the agent if asked for."""

from datetime import timedelta

from moxwell.api.core.nodes import Node
from moxwell.clock import Clock
from moxwell.controllers.cloud.identity import Place, read_sku
from moxwell.controllers.cloud.lookup import Answer, Found, Lookup
from moxwell.controllers.cloud.settings import Features
from moxwell.errors import MoxwellError, Terminal
from moxwell.pve import errors
from moxwell.pve.regions import Region

KEEP = timedelta(minutes=5)


class Eyes:
    """Looks; what is the same for a whole region or host is asked once in a while."""

    def __init__(self, lookup: Lookup, features: Features, clock: Clock) -> None:
        self._lookup, self._features, self._clock = lookup, features, clock
        self._models: dict[tuple[str, str], str] = {}
        self._groups: dict[str, tuple[float, dict[str, tuple[str, ...]]]] = {}

    async def see(self, node: Node) -> tuple[Answer, Place | None]:
        """Whose guest it is, and where."""
        answer = await self._lookup.find(node)
        if not isinstance(answer, Found):
            return answer, None
        return answer, await self._place(answer)

    async def _place(self, found: Found) -> Place:
        region, guest, config = found.region, found.guest, found.config
        inside, silent = await self._inside(found)
        groups = await self._ha_groups(region)
        return Place(
            region=region.name,
            vmid=guest.vmid,
            host=guest.host,
            zone=region.zone_of(guest.host),
            uuid=config.uuid,
            cores=config.cores * config.sockets,
            memory_mib=config.memory_mib,
            sku=read_sku(config.smbios),
            ha_groups=groups.get(f"vm:{guest.vmid}", ()),
            cpu_model=await self._model(region, guest.host),
            dedicated=bool(config.get("affinity")),
            inside=inside,
            agent_silent=silent,
        )

    async def _inside(self, found: Found) -> tuple[tuple[tuple[str, str], ...], bool]:
        if self._features.mode == "default":
            return (), False
        try:
            cards = await found.region.pve.agent.interfaces(found.guest.host, found.guest.vmid)
        except (errors.AgentSilent, Terminal):
            return (), True
        return tuple((c.name, a.ip) for c in cards for a in c.addresses), False

    async def _model(self, region: Region, host: str) -> str:
        """The processor of a host; asked once, it does not change under a running guest."""
        key = (region.name, host)
        if key not in self._models:
            try:
                self._models[key] = (await region.pve.nodes.status(host)).cpuinfo.model
            except MoxwellError:
                return ""  # a label less is no reason to keep a node out
        return self._models[key]

    async def _ha_groups(self, region: Region) -> dict[str, tuple[str, ...]]:
        """Groups (Proxmox VE 8) or node affinity rules (9) by resource; asked every few minutes."""
        now = self._clock.monotonic()
        kept = self._groups.get(region.name)
        if kept is None or now - kept[0] > KEEP.total_seconds():
            kept = (now, await _read_groups(region))
            self._groups[region.name] = kept
        return kept[1]


async def _read_groups(region: Region) -> dict[str, tuple[str, ...]]:
    try:
        rules = await region.pve.ha.rules(type="node-affinity")
        return _by_resource([(r.rule, sid) for r in rules for sid in r.sids])
    except MoxwellError:
        pass  # Proxmox VE 8 has groups, or the token may not see them
    try:
        resources = await region.pve.ha.resources()
        return _by_resource([(r.group, r.sid) for r in resources if r.group])
    except MoxwellError:
        return {}


def _by_resource(pairs: list[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for group, sid in sorted(pairs):
        found[sid] = (*found.get(sid, ()), group)
    return found
