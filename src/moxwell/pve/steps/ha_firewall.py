"""
Steps on the HA resource, HA rules, firewall, pool and snapshots of a guest.

Release 9 has HA rules instead of groups. Posting a firewall rule twice creates it twice, so the
existing rules are compared first.
"""

from collections.abc import Mapping
from typing import TypedDict

from moxwell.errors import Conflict, Missing
from moxwell.pve import errors, firewall_groups
from moxwell.pve.client import PveWriter
from moxwell.pve.endpoints.firewall import FirewallRule
from moxwell.pve.steps.contract import GuestStep, own_config
from moxwell.pve.values import Upid, as_field


class _HaParameters(TypedDict):
    """Parameters of an HA resource."""

    state: str
    group: str | None
    max_restart: int
    max_relocate: int


class RegisterHa(GuestStep, frozen=True, kw_only=True):
    """Add a guest to HA or update its HA resource; ``group`` only on release 8."""

    state: str = "started"
    group: str = ""
    max_restart: int = 1
    max_relocate: int = 1

    async def perform(self, pve: PveWriter) -> Upid | None:
        config = await own_config(pve, self.guest)
        sid = f"vm:{self.guest.vmid}"
        wanted: _HaParameters = {
            "state": self.state,
            "group": self.group or None,
            "max_restart": self.max_restart,
            "max_relocate": self.max_relocate,
        }
        try:
            current = await pve.ha.resource(sid)
        except Missing:
            comment = f"{config.name} {self.guest.mark.line}"
            await pve.ha.add_resource(sid, comment=comment, **wanted)
            return None
        have: _HaParameters = {
            "state": current.state,
            "group": current.group or None,
            "max_restart": 1 if current.max_restart is None else current.max_restart,
            "max_relocate": 1 if current.max_relocate is None else current.max_relocate,
        }
        if have != wanted:
            removed = ("group",) if current.group and not self.group else ()
            await pve.ha.update_resource(sid, digest=current.digest, delete=removed, **wanted)
        return None


class RemoveHa(GuestStep, frozen=True):
    """Remove a guest from HA; the guest may be destroyed already."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        try:
            await own_config(pve, self.guest)
        except errors.GuestMissing:
            await self._refuse_used_vmid(pve)
        try:
            await pve.ha.delete_resource(f"vm:{self.guest.vmid}")
        except Missing:
            return None
        return None

    async def _refuse_used_vmid(self, pve: PveWriter) -> None:
        """Raise if the VMID is in use: the guest is then on another host and not verified."""
        await pve.cluster.nextid(self.guest.vmid)  # raises Exists unless the VMID is free


class AddToHaRule(GuestStep, frozen=True, kw_only=True):
    """Add a guest to an HA rule of release 9; a node-affinity rule is created from ``nodes``."""

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
            current = await pve.ha.rule(self.rule)
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
        if sid not in current.sids:
            await pve.ha.update_rule(
                self.rule, current.type, resources=(*current.sids, sid), digest=current.digest
            )
        return None


class LastHaRuleResource(Conflict):
    """The last resource cannot leave an HA rule: Proxmox refuses an empty one."""

    reason = "HARuleKept"


class RemoveFromHaRule(GuestStep, frozen=True, kw_only=True):
    """Remove a guest from an HA rule of release 9."""

    rule: str

    @property
    def shared_names(self) -> tuple[str, ...]:
        return (self.rule,)

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        sid = f"vm:{self.guest.vmid}"
        try:
            current = await pve.ha.rule(self.rule)
        except Missing:
            return None
        if sid not in current.sids:
            return None
        others = tuple(other for other in current.sids if other != sid)
        if not others:
            raise LastHaRuleResource(f"{self.guest} is the last resource of HA rule {self.rule}")
        await pve.ha.update_rule(self.rule, current.type, resources=others, digest=current.digest)
        return None


class SetFirewall(GuestStep, frozen=True, kw_only=True):
    """Set options of a guest's firewall and add missing rules."""

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
        current = {_content(rule) for rule in await pve.firewall.rules(host, vmid)}
        # a new rule is inserted at the top, so the last one is added first
        for rule in reversed([rule for rule in self.rules if _content(rule) not in current]):
            await pve.firewall.add_rule(host, vmid, rule)
        return None


class RemoveFirewallGroup(GuestStep, frozen=True, kw_only=True):
    """
    Remove a security group from a guest's rules, one rule each time it is performed.

    ``group@net1`` is that of one device.

    With the last rule the firewall is disabled, because an enabled one without rules drops all
    incoming traffic; a firewall with its own ``policy_in`` stays enabled.
    """

    group: str

    async def perform(self, pve: PveWriter) -> Upid | None:
        await own_config(pve, self.guest)
        host, vmid = self.guest.host, self.guest.vmid
        rules = await pve.firewall.rules(host, vmid)
        found = [rule for rule in rules if self.group in firewall_groups.of_rules((rule,))]
        if not found:
            return None
        if len(rules) == 1:
            have = await pve.firewall.options(host, vmid)
            if as_field(have.get("enable", 0)) == "1" and "policy_in" not in have:
                await pve.firewall.set_options(host, vmid, {"enable": False})
        last = found[-1]
        await pve.firewall.delete_rule(host, vmid, last.pos or 0, digest=last.digest or None)
        return None


def _content(rule: FirewallRule) -> tuple[tuple[str, object], ...]:
    """Return a rule without its position."""
    return tuple(sorted((k, v) for k, v in rule.params().items() if k != "pos"))
