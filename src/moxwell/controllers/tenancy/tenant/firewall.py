"""
The Proxmox security group that protects the nodes of a tenant: name, owner comment, rules. Pure.

The comment of a group names the namespace of its tenant; a group with another comment belongs to
somebody else and is never changed.
"""

import hashlib
import ipaddress
import re

from moxwell.api.cozystack import Tenant
from moxwell.errors import Invalid
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup

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
    found = []
    for text in tenant.spec.network.allow_from:
        try:
            found.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError as error:
            raise Invalid(
                f"spec.network.allowFrom: {text!r} is not a network like 10.0.0.0/8"
            ) from error
    return tuple(sorted(set(found)))


def owner_comment(namespace: str) -> str:
    """The comment that marks a security group as the tenant's."""
    return f"moxwell-tenant={namespace}"


def is_owned(group: SecurityGroup, namespace: str) -> bool:
    """Whether the comment of a security group names the tenant."""
    found = _OWNER.search(group.comment)
    return found is not None and found[1] == namespace


def rules_for(networks: tuple[str, ...]) -> tuple[FirewallRule, ...]:
    """One rule per network that accepts everything from it; the rest is dropped."""
    return tuple(
        FirewallRule(type="in", action="ACCEPT", enable=1, source=network) for network in networks
    )
