"""
What surrounds a guest: HA, firewall, pool, snapshots.

The surprise: HA on 9 knows rules instead of groups; a firewall rule that is posted twice is there
twice, so what is there is compared first; a guest's rules go with the guest.
"""

from collections.abc import Mapping
from typing import TypedDict

from moxwell.errors import Conflict, Missing
from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.endpoints.firewall import FirewallRule
from moxwell.pve.steps.contract import GuestStep, own_config, own_free_config
from moxwell.pve.values import Upid, as_field


class _Care(TypedDict):
    """What HA is asked to do for a guest."""

    state: str
    group: str | None
    max_restart: int
    max_relocate: int


class RegisterHa(GuestStep, frozen=True, kw_only=True):
    """Let HA look after a guest; ``group`` only on 8."""

    state: str = "started"
    group: str = ""
    max_restart: int = 1
    max_relocate: int = 1

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_config(pve, self.guest)
        sid = f"vm:{self.guest.vmid}"
        wanted: _Care = {
            "state": self.state,
            "group": self.group or None,
            "max_restart": self.max_restart,
            "max_relocate": self.max_relocate,
        }
        try:
            there = await pve.ha.resource(sid)
        except Missing:
            comment = f"{config.name} {self.guest.mark.line}"
            await pve.ha.add_resource(sid, comment=comment, **wanted)
            return None
        have: _Care = {
            "state": there.state,
            "group": there.group or None,
            "max_restart": 1 if there.max_restart is None else there.max_restart,
            "max_relocate": 1 if there.max_relocate is None else there.max_relocate,
        }
        if have != wanted:
            gone = ("group",) if there.group and not self.group else ()
            await pve.ha.update_resource(sid, digest=there.digest, delete=gone, **wanted)
        return None


class RemoveHa(GuestStep, frozen=True):
    """Take a guest out of HA's care; the guest may be gone already."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        try:
            await own_config(pve, self.guest)
        except errors.GuestMissing:
            await self._refuse_stranger(pve)
        try:
            await pve.ha.delete_resource(f"vm:{self.guest.vmid}")
        except Missing:
            return None
        return None

    async def _refuse_stranger(self, pve: PveWriter) -> None:
        """A guest that lives on another host is not ours to unregister from here."""
        await pve.cluster.nextid(self.guest.vmid)  # raises Exists unless the id is free


class AddToHaRule(GuestStep, frozen=True, kw_only=True):
    """Add a guest to an HA rule of 9; a node-affinity rule is made if it has ``nodes``."""

    rule: str
    nodes: str = ""
    type: str = "node-affinity"
    affinity: str = ""
    strict: bool = False

    @property
    def shared_names(self) -> tuple[str, ...]:
        return (self.rule,)

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        sid = f"vm:{self.guest.vmid}"
        try:
            there = await pve.ha.rule(self.rule)
        except Missing:
            await pve.ha.create_rule(
                self.rule,
                self.type,
                (sid,),
                nodes=self.nodes or None,
                affinity=self.affinity or None,
                strict=self.strict or None,
            )
            return None
        if sid not in there.sids:
            await pve.ha.update_rule(
                self.rule, there.type, resources=(*there.sids, sid), digest=there.digest
            )
        return None


class LastHaRuleResource(Conflict):
    """A rule of HA cannot be left by its last resource: Proxmox keeps no empty ones."""

    reason = "HARuleKept"


class RemoveFromHaRule(GuestStep, frozen=True, kw_only=True):
    """Take a guest out of an HA rule of 9; the rule itself stays."""

    rule: str

    @property
    def shared_names(self) -> tuple[str, ...]:
        return (self.rule,)

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        sid = f"vm:{self.guest.vmid}"
        try:
            there = await pve.ha.rule(self.rule)
        except Missing:
            return None
        if sid not in there.sids:
            return None
        others = tuple(other for other in there.sids if other != sid)
        if not others:
            raise LastHaRuleResource(f"{self.guest} is the last resource of HA rule {self.rule}")
        await pve.ha.update_rule(self.rule, there.type, resources=others, digest=there.digest)
        return None


class SetFirewall(GuestStep, frozen=True, kw_only=True):
    """Options of a guest's firewall, and rules that must be among its rules."""

    options: Mapping[str, str | int | bool] = {}
    rules: tuple[FirewallRule, ...] = ()

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        host, vmid = self.guest.host, self.guest.vmid
        have = await pve.firewall.options(host, vmid)
        changes = {
            key: value
            for key, value in self.options.items()
            if key not in have or as_field(have[key]) != as_field(value)
        }
        if changes:
            await pve.firewall.set_options(host, vmid, changes)
        there = {_essence(rule) for rule in await pve.firewall.rules(host, vmid)}
        # A new rule goes in at the top, so the last one goes in first.
        for rule in reversed([rule for rule in self.rules if _essence(rule) not in there]):
            await pve.firewall.add_rule(host, vmid, rule)
        return None


class RemoveFirewallGroup(GuestStep, frozen=True, kw_only=True):
    """
    Take a security group off a guest, one of its rules in each take.

    With the last rule the firewall goes off, as an empty one that is on lets nothing in; one that
    has a policy of its own stays as it is.
    """

    group: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        host, vmid = self.guest.host, self.guest.vmid
        rules = await pve.firewall.rules(host, vmid)
        found = [r for r in rules if r.type == "group" and r.action == self.group]
        if not found:
            return None
        if len(rules) == 1:
            have = await pve.firewall.options(host, vmid)
            if as_field(have.get("enable", 0)) == "1" and "policy_in" not in have:
                await pve.firewall.set_options(host, vmid, {"enable": False})
        last = found[-1]
        await pve.firewall.delete_rule(host, vmid, last.pos or 0, digest=last.digest or None)
        return None


def _essence(rule: FirewallRule) -> tuple[tuple[str, object], ...]:
    """A rule without its position."""
    return tuple(sorted((k, v) for k, v in rule.params().items() if k != "pos"))


class AddToPool(GuestStep, frozen=True, kw_only=True):
    """Put a guest into a pool, out of any other."""

    pool: str

    @property
    def shared_names(self) -> tuple[str, ...]:
        return (self.pool,)

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        pool = await pve.pools.get(self.pool)
        if all(member.get("vmid") != self.guest.vmid for member in pool.members):
            await pve.pools.update(self.pool, vms=(self.guest.vmid,), allow_move=True)
        return None


class CreateSnapshot(GuestStep, frozen=True, kw_only=True):
    """Take a snapshot, unless one of that name is there."""

    name: str
    description: str = ""
    memory: bool = False

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_free_config(pve, self.guest)
        host, vmid = self.guest.host, self.guest.vmid
        if any(row.name == self.name for row in await pve.snapshots.list(host, vmid)):
            return None
        return await pve.snapshots.create(
            host,
            vmid,
            self.name,
            description=self.description or None,
            vmstate=self.memory or None,
        )


class DeleteSnapshot(GuestStep, frozen=True, kw_only=True):
    """Remove a snapshot, if it is there."""

    name: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_free_config(pve, self.guest)
        host, vmid = self.guest.host, self.guest.vmid
        if all(row.name != self.name for row in await pve.snapshots.list(host, vmid)):
            return None
        return await pve.snapshots.delete(host, vmid, self.name)
