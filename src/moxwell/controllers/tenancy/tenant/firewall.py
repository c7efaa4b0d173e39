"""
The wall around a tenant: one Proxmox security group in every region, kept as the tenant says.

In flow a tenant's namespace and the networks that may come in; out flow regions that did not
answer. The group's comment is its mark: one without it is somebody else's and left alone. New rules
are added before old ones go, so nothing that stays allowed is cut off in between.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable

from moxwell.api.cozystack import Tenant
from moxwell.errors import Invalid, Retryable
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup
from moxwell.pve.regions import Region, Regions

LONGEST = 18  # of a security group's name
_MARK = re.compile(r"moxwell-tenant=(\S+)")


def group_name(space: str) -> str:
    """``mox-NAME``, or a hash where that is too long."""
    name = f"mox-{space.removeprefix('tenant-')}"
    if len(name) <= LONGEST:
        return name
    return f"mox-{hashlib.sha256(space.encode()).hexdigest()[:12]}"


def networks(tenant: Tenant) -> tuple[str, ...]:
    """Who may come in, each once and in order; none: there is no wall."""
    found = []
    for text in tenant.spec.network.allow_from:
        try:
            found.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError as error:
            raise Invalid(
                f"spec.network.allowFrom: {text!r} is not a network like 10.0.0.0/8"
            ) from error
    return tuple(sorted(set(found)))


def mark(space: str) -> str:
    """The comment that says whose a group is."""
    return f"moxwell-tenant={space}"


def is_ours(group: SecurityGroup, space: str) -> bool:
    found = _MARK.search(group.comment)
    return found is not None and found[1] == space


def changes(
    wanted: Iterable[str], rules: Iterable[FirewallRule]
) -> tuple[tuple[FirewallRule, ...], tuple[int, ...]]:
    """Rules to add, and positions to remove, the last first."""
    kept: set[str] = set()
    extra = []
    wanted = tuple(wanted)
    for number, rule in enumerate(rules):
        right = (rule.type, rule.action, bool(rule.enable)) == ("in", "ACCEPT", True)
        plain = not (rule.proto or rule.dport or rule.dest or rule.macro or rule.iface)
        if right and plain and rule.source in wanted and rule.source not in kept:
            kept.add(rule.source)
        else:
            extra.append(rule.pos if rule.pos is not None else number)
    missing = [
        FirewallRule(type="in", action="ACCEPT", enable=1, source=n)
        for n in wanted
        if n not in kept
    ]
    return tuple(missing), tuple(sorted(extra, reverse=True))


class Walls:
    """Keeps the security groups of tenants."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def keep(self, space: str, allowed: tuple[str, ...]) -> list[str]:
        """Make it so in every region; answers what stands in the way."""
        return [
            said for r in self._regions.values() if (said := await self._try(r, space, allowed))
        ]

    async def remove(self, space: str) -> None:
        """The tenant is gone: its groups too. A region that does not answer is asked again."""
        for region in self._regions.values():
            if await self._find(region, space) is not None:
                for rule in reversed(await region.reader.firewall.group_rules(group_name(space))):
                    await region.pve.firewall.delete_group_rule(group_name(space), rule.pos or 0)
                await region.pve.firewall.delete_group(group_name(space))

    async def _try(self, region: Region, space: str, allowed: tuple[str, ...]) -> str:
        try:
            await self._keep(region, space, allowed)
        except Retryable as error:
            return f"region {region.name}: {error}"
        return ""

    async def _keep(self, region: Region, space: str, allowed: tuple[str, ...]) -> None:
        name, firewall = group_name(space), region.pve.firewall
        if await self._find(region, space) is None:
            await firewall.create_group(name, comment=mark(space))
        add, drop = changes(allowed, await firewall.group_rules(name))
        for rule in add:
            await firewall.add_group_rule(name, rule)
        for pos in drop:  # new rules went in above them
            await firewall.delete_group_rule(name, pos + len(add))

    async def _find(self, region: Region, space: str) -> SecurityGroup | None:
        name = group_name(space)
        found = next((g for g in await region.reader.firewall.groups() if g.group == name), None)
        if found is not None and not is_ours(found, space):
            raise Invalid(
                f"security group {name} in {region.name} is there already and is not of this tenant"
            )
        return found
