"""
Steps on the security groups of a region's firewall, one per tenant.

A group is owned by its comment; one with another comment raises ``Foreign``. New rules are added
before old ones are removed, so that traffic which stays allowed is never interrupted.
"""

from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup
from moxwell.pve.steps.contract import RegionStep, same_region, verify_words
from moxwell.pve.values import Upid

_IGNORED = frozenset({"pos", "comment", "log"})  # in the comparison of rules


class SecurityGroupStep(RegionStep, frozen=True, kw_only=True):
    """A step on the security group with this name and comment."""

    group: str
    comment: str

    @property
    def owned(self) -> Owned:
        return Owned(f"comment {self.comment}", names=(self.group,))

    async def find(self, pve: PveReader) -> SecurityGroup | None:
        """Return the group, None if there is none; raises ``Foreign`` if it is another owner's."""
        same_region(pve, self.region_name)
        groups = await pve.firewall.groups()
        found = next((group for group in groups if group.group == self.group), None)
        if found is not None:
            what = f"security group {self.group} in region {self.region}"
            verify_words(found.comment, self.comment, what)
        return found


class EnsureSecurityGroup(SecurityGroupStep, frozen=True, kw_only=True):
    """Create a security group and give it exactly these rules."""

    rules: tuple[FirewallRule, ...] = ()

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.find(pve) is None:
            await pve.firewall.create_group(self.group, comment=self.comment)
        missing, extra = rule_changes(self.rules, await pve.firewall.group_rules(self.group))
        for rule in missing:
            await pve.firewall.add_group_rule(self.group, rule)
        for position in extra:  # the new rules were inserted above them
            await pve.firewall.delete_group_rule(self.group, position + len(missing))
        return None


class DeleteSecurityGroup(SecurityGroupStep, frozen=True):
    """Delete a security group with its rules."""

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.find(pve) is None:
            return None
        rules = await pve.firewall.group_rules(self.group)
        for position in reversed(range(len(rules))):
            await pve.firewall.delete_group_rule(self.group, position)
        await pve.firewall.delete_group(self.group)
        return None


def rule_changes(
    wanted: tuple[FirewallRule, ...], actual: tuple[FirewallRule, ...]
) -> tuple[tuple[FirewallRule, ...], tuple[int, ...]]:
    """Return the rules to add and the positions to delete, the last first."""
    missing = {_content(rule): rule for rule in wanted}
    extra: list[int] = []
    for number, rule in enumerate(actual):
        if missing.pop(_content(rule), None) is None:
            extra.append(number if rule.pos is None else rule.pos)
    return tuple(missing.values()), tuple(sorted(extra, reverse=True))


def _content(rule: FirewallRule) -> tuple[tuple[str, object], ...]:
    return tuple(sorted((k, v) for k, v in rule.params().items() if k not in _IGNORED))
