"""
Security groups of a machine: ``web`` is for all of its devices, ``web@net1`` for one. Pure.

Proxmox allows no ``@`` in the name of a security group.
"""

from collections.abc import Iterable

from moxwell.pve.endpoints.firewall import FirewallRule

_AT = "@"


def for_device(group: str, device: str) -> str:
    """A security group that is for one device."""
    return f"{group}{_AT}{device}"


def names(groups: Iterable[str]) -> frozenset[str]:
    """The names of the security groups, without devices."""
    return frozenset(group.partition(_AT)[0] for group in groups)


def as_rule(group: str) -> FirewallRule:
    """The rule of a guest that applies a security group."""
    name, _, device = group.partition(_AT)
    return FirewallRule(type="group", action=name, enable=True, iface=device)


def of_rules(rules: Iterable[FirewallRule]) -> frozenset[str]:
    """The security groups that rules of a guest apply."""
    return frozenset(
        for_device(rule.action, rule.iface) if rule.iface else rule.action
        for rule in rules
        if rule.type == "group"
    )
