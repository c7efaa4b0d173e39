"""
The Proxmox security group that protects the nodes of a tenant: name, owner comment, rules. Pure.

The comment of a group names the namespace of its tenant; a group with another comment belongs to
somebody else and is never changed.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable

from moxwell.api.cozystack import Tenant, TenantFirewallRule
from moxwell.errors import Invalid
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup

PROTOCOLS = ("tcp", "udp", "icmp")
MADE_GROUP = "group"  # in the annotation of what exists in Proxmox
MAX_NAME_LENGTH = 18  # of a security group
_OWNER = re.compile(r"moxwell-tenant=(\S+)")


def group_name(namespace: str) -> str:
    """``mox-NAME``, or a hash if that is too long."""
    name = f"mox-{namespace.removeprefix('tenant-')}"
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"mox-{hashlib.sha256(namespace.encode()).hexdigest()[:12]}"


def allowed_networks(tenant: Tenant) -> tuple[str, ...]:
    """The networks of ``spec.network.allowFrom``, sorted; none: the tenant has no firewall."""
    return _networks("spec.network.allowFrom", tenant.spec.network.allow_from)


def _networks(where: str, texts: Iterable[str]) -> tuple[str, ...]:
    found = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError as error:
            raise Invalid(f"{where}: {text!r} is not a network like 10.0.0.0/8") from error
    return tuple(sorted(set(found)))


def owner_comment(namespace: str) -> str:
    """The comment that marks a security group as the tenant's."""
    return f"moxwell-tenant={namespace}"


def is_owned(group: SecurityGroup, namespace: str) -> bool:
    """Whether the comment of a security group names the tenant."""
    found = _OWNER.search(group.comment)
    return found is not None and found[1] == namespace


def has_firewall(tenant: Tenant) -> bool:
    return bool(tenant.spec.network.allow_from or tenant.spec.network.firewall_rules)


def rules_for(tenant: Tenant) -> tuple[FirewallRule, ...]:
    """Rules that accept: everything from ``allowFrom``, ports of ``rules``; the rest is dropped."""
    open_networks = [
        FirewallRule(type="in", action="ACCEPT", enable=1, source=network)
        for network in allowed_networks(tenant)
    ]
    by_port = [
        FirewallRule(
            type="in", action="ACCEPT", enable=1,
            source=",".join(_networks("spec.network.rules", rule.sources)),
            proto=_protocol(rule), dport=_ports(rule),
        )
        for rule in tenant.spec.network.firewall_rules
    ]  # fmt: skip
    return (*open_networks, *by_port)


def _protocol(rule: TenantFirewallRule) -> str:
    if rule.protocol not in PROTOCOLS:
        raise Invalid(f"spec.network.rules: protocol is one of {', '.join(PROTOCOLS)}")
    return rule.protocol


def _ports(rule: TenantFirewallRule) -> str:
    """The ports of a rule as Proxmox writes them: ``80,443,30000:32767``."""
    if rule.ports and rule.protocol == "icmp":
        raise Invalid("spec.network.rules: icmp has no ports")
    for part in rule.ports.split(",") if rule.ports else ():
        ends = part.strip().split(":")
        if not all(e.isdecimal() and 0 < int(e) < 65536 for e in ends) or len(ends) > 2:
            raise Invalid(
                f"spec.network.rules: {part!r} is not a port or a range such as 30000:32767"
            )
    return rule.ports.replace(" ", "")
