"""
A look at the guest itself: whose it is, whether its seed lies ready, what its agent says.

In flows a machine with a claim, out flow facts. Every method is at most one request to Proxmox, and
none where the shared inventory knows. The agent is asked ever more seldom while a guest boots.
"""

from dataclasses import dataclass, replace

from moxwell.api.capi.core import Machine
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.bootstrap_data import SCHEME, Bootstrap
from moxwell.clock import Clock
from moxwell.controllers.infra.iso_cache import Shelves
from moxwell.controllers.infra.machine.observed import BOOTING, Care, GuestFound
from moxwell.controllers.infra.templates import Mould, Moulds
from moxwell.errors import Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.pve import errors, ownership
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import CLONING
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Region
from moxwell.pve.steps import Shelf, iso_name
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_hardware import meaning
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.last_applied import surplus

SENTINEL = "/run/cluster-api/bootstrap-success.complete"
BOOT_SECONDS = 3.0  # no guest has finished its bootstrap before that
LEAST_PAUSE, MOST_PAUSE, LATE = 2.0, 30.0, 0.1  # asked again after a tenth of the time it took


@dataclass(slots=True)
class _Asked:
    since: float
    after: float
    done: bool = False
    says: str = "the guest boots"


def mark_of(obj: ProxmoxMachine) -> Mark:
    """The mark of a machine's guest: by its claim, which outlives the object's own UID."""
    claim = obj.spec.claim
    if claim is not None:
        return Mark(claim.uuid)
    known = obj.spec.provider_id.removeprefix(SCHEME)
    return Mark(known if known and "/" not in known else obj.uid)


def shelf_of(region: str, claim: Claim) -> Shelf:
    """Where the seed disk lies."""
    return Shelf(region, claim.host, claim.iso_storage)


def seed_name(obj: ProxmoxMachine, claim: Claim) -> str:
    """The file name of the seed disk; another id is another guest, so it has another seed."""
    return iso_name(Mark(claim.uuid), f"seed-{obj.spec.virtual_machine_id}")


def iso_of(obj: ProxmoxMachine, claim: Claim) -> str:
    """The volume id of the seed disk."""
    return f"{claim.iso_storage}:iso/{seed_name(obj, claim)}"


class Peer:
    """Looks at guests."""

    def __init__(self, kube: Kube, clock: Clock, moulds: Moulds, shelves: Shelves) -> None:
        self._kube, self._clock, self._moulds, self._shelves = kube, clock, moulds, shelves
        self._asked: dict[str, _Asked] = {}

    async def find(
        self, obj: ProxmoxMachine, region: Region, *, ask: bool = True
    ) -> GuestFound | None:
        """The guest at the claimed id, and whose it is; ``ask`` it if its tags do not tell."""
        vmid, mark = obj.spec.virtual_machine_id, mark_of(obj)
        guest = region.inventory.find(vmid) if vmid is not None else None
        if guest is None:
            return None
        host = region.inventory.hosts.get(guest.host)
        up = bool(host and host.online)
        if mark.key in guest.owner_keys and not guest.template:
            found = GuestFound(guest, True, marked=True, host_online=up)
            look = obj.spec.changes == "InPlace" and up and differs(obj, guest)
            return await self._look_closely(obj, region, found) if look else found
        if not ask or guest.lock == CLONING or _is_worked_on(obj, region):
            return GuestFound(guest, False, arriving=True, host_online=up)
        if not up:
            return GuestFound(guest, False, arriving=True, host_online=False)
        return await self._ask_whose(obj, region, guest)

    async def _look_closely(
        self, obj: ProxmoxMachine, region: Region, found: GuestFound
    ) -> GuestFound:
        """All that may be changed in place, of a guest that seems to differ."""
        guest = found.seen
        cared = obj.spec.high_availability is not None or guest.hastate
        groups = await self._firewall_groups(obj, region, guest)
        return replace(
            found,
            config=await region.pve.qemu.config(guest.host, guest.vmid),
            firewall_groups=groups,
            lacking_groups=await _lacking(region, set(obj.spec.firewall_groups) - groups),
            ha=await _ha(region, guest.vmid) if cared else None,
            care=await self.ha_care(obj, region, again=True),
            old_rule=await _old_rule(obj, region),
        )

    async def _ask_whose(
        self, obj: ProxmoxMachine, region: Region, guest: GuestSeen
    ) -> GuestFound | None:
        mark = mark_of(obj)
        try:
            config = await region.pve.qemu.config(guest.host, guest.vmid)
        except errors.GuestMissing:
            region.inventory.work_is_under_way()  # it has gone or moved: look again soon
            return GuestFound(guest, False, arriving=True)
        if config.lock == CLONING:
            return GuestFound(guest, False, arriving=True, config=config)
        owner = ownership.owner_key(config)
        ours = owner == mark.key or (owner is None and _is_adoptable(obj, config.uuid))
        if not ours or config.template:
            return GuestFound(guest, False, config=config)
        groups = await self._firewall_groups(obj, region, guest)
        return GuestFound(guest, True, config=config, firewall_groups=groups)

    async def _firewall_groups(
        self, obj: ProxmoxMachine, region: Region, guest: GuestSeen
    ) -> frozenset[str]:
        if not obj.spec.firewall_groups and not obj.status.applied.firewall_groups:
            return frozenset()
        rules = await region.pve.firewall.rules(guest.host, guest.vmid)
        return frozenset(rule.action for rule in rules if rule.type == "group")

    async def ha_care(self, obj: ProxmoxMachine, region: Region, *, again: bool = False) -> Care:
        """Whether HA there knows groups or rules; asked only for a machine that names one."""
        asked = obj.spec.high_availability
        if asked is None or not asked.group or (obj.spec.provider_id and not again):
            return "group"
        try:
            rule = await region.pve.ha.rule(asked.group)
        except errors.CannotHere:
            return "group"
        except Missing:
            return "missing"
        return "joined" if f"vm:{obj.spec.virtual_machine_id}" in rule.sids else "rule"

    async def mould(self, region: Region, claim: Claim) -> Mould | None:
        """The template it is cloned from, while that exists."""
        seen = region.inventory.find(claim.template)
        return await self._moulds.get(region, seen) if seen and seen.template else None

    async def bootstrap(self, machine: Machine) -> Bootstrap | None:
        """The bootstrap data; None while the Secret is not there."""
        name = machine.spec.bootstrap.data_secret_name
        if name is None:
            return Bootstrap() if machine.spec.bootstrap.config_ref is None else None
        secret = await self._kube.find(Secret, name, machine.namespace)
        value = secret.read("value") if secret else None
        if secret is None or value is None:
            return None
        return Bootstrap(value.encode(), secret.read("format") or "cloud-config")

    async def iso_there(self, obj: ProxmoxMachine, region: Region, claim: Claim) -> bool:
        """Does the seed disk lie on its storage?"""
        return await self._shelves.holds(shelf_of(region.name, claim), iso_of(obj, claim))

    async def sentinel(
        self, obj: ProxmoxMachine, region: Region, guest: GuestSeen, machine: Machine
    ) -> tuple[bool, str, float]:
        """Is the bootstrap done; what the agent says; how long until it is asked again."""
        if _needs_no_sentinel(obj, machine):
            return True, "", 0.0
        if obj.uid not in self._asked:  # no guest is up at once
            now = self._clock.monotonic()
            self._asked[obj.uid] = _Asked(now, now + BOOT_SECONDS)
        asked = self._asked[obj.uid]
        left = asked.after - self._clock.monotonic()
        if not asked.done and left <= 0:
            asked.done, asked.says = await self._ask_agent(region, guest)
            now = self._clock.monotonic()
            left = min(max(LEAST_PAUSE, LATE * (now - asked.since)), MOST_PAUSE)
            asked.after = now + left
        return asked.done, asked.says, max(left, 0.5)

    async def _ask_agent(self, region: Region, guest: GuestSeen) -> tuple[bool, str]:
        try:
            await region.pve.agent.read_file(guest.host, guest.vmid, SENTINEL)
        except errors.AgentSilent:
            return False, "the guest agent does not answer yet"
        except errors.CannotHere:
            return True, "the guest has no agent; nothing to wait for"
        except (errors.BadRequest, errors.Unexplained):
            return False, "the bootstrap has not finished yet"
        except Missing:
            return False, "the guest is not where it was"
        return True, ""

    async def addresses(
        self, obj: ProxmoxMachine, region: Region, guest: GuestSeen
    ) -> dict[str, tuple[str, ...]]:
        """Addresses by device name, as the guest tells them; empty where it does not."""
        if obj.spec.checks and obj.spec.checks.skip_qemu_guest_agent:
            return {}
        try:
            found = await region.pve.agent.interfaces(guest.host, guest.vmid)
        except MoxwellError:
            return {}
        return {
            card.name: tuple(a.ip for a in card.addresses if not _is_link_local(a.ip))
            for card in found
            if card.name != "lo"
        }

    def forget(self, obj: ProxmoxMachine) -> None:
        """The machine is gone."""
        self._asked.pop(obj.uid, None)


async def _ha(region: Region, vmid: int) -> HaResource | None:
    try:
        return await region.pve.ha.resource(f"vm:{vmid}")
    except Missing:
        return None


async def _lacking(region: Region, groups: set[str]) -> tuple[str, ...]:
    """Security groups that the region does not have; Proxmox would take them all the same."""
    known = {g.group for g in await region.pve.firewall.groups()} if groups else set()
    return tuple(sorted(groups - known))


async def _old_rule(obj: ProxmoxMachine, region: Region) -> HaRule | None:
    """The rule that was asked for before another one, or none, was; not where HA knows groups."""
    name = surplus(obj.status.applied, obj.spec).ha_group
    try:
        return await region.pve.ha.rule(name) if name else None
    except (Missing, errors.CannotHere):
        return None


def differs(obj: ProxmoxMachine, guest: GuestSeen) -> bool:
    """Is something else asked for than last time, or than the inventory shows?"""
    spec = obj.spec
    if BOOTING not in guest.tags and obj.status.hardware != meaning(spec):
        return True  # a CPU type, say, is in no list
    if surplus(obj.status.applied, spec).disks:
        return True  # kept, until somebody takes it away
    cpus = (spec.num_cores or 0) * (spec.num_sockets or 1)
    boot = spec.disks.boot_volume if spec.disks else None
    return bool(
        (cpus and guest.cpus and cpus != guest.cpus)
        or (spec.memory_mib and guest.memory_bytes and spec.memory_mib * MIB != guest.memory_bytes)
        or not {t.lower() for t in spec.tags} <= {t.lower() for t in guest.tags}
        or (boot and guest.disk_bytes and boot.size_gb * GIB > guest.disk_bytes)
    )


def _needs_no_sentinel(obj: ProxmoxMachine, machine: Machine) -> bool:
    checks = obj.spec.checks
    skipped = checks and (checks.skip_qemu_guest_agent or checks.skip_cloud_init_status)
    ref = machine.spec.bootstrap.config_ref
    bare = machine.spec.bootstrap.data_secret_name is None
    return bool(skipped) or bare or bool(ref and ref.kind.startswith("Talos"))


def _is_worked_on(obj: ProxmoxMachine, region: Region) -> bool:
    """Is a task of ours under way, other than an upload? Then its end brings another look."""
    running = region.tasks.of(Key(obj.namespace, obj.name))
    return any(upid.type != "imgcopy" for upid in running)


def _is_adoptable(obj: ProxmoxMachine, uuid: str) -> bool:
    """A guest of CAPMOX: no mark, but the UUID that the object's providerID names."""
    return bool(uuid) and obj.spec.provider_id.lower() == SCHEME + uuid


def _is_link_local(address: str) -> bool:
    return address.lower().startswith(("fe80:", "127.", "::1"))
