"""
What the node classes of a cluster may use. Pure.

A user of a tenant cluster writes node classes, but the operator decides which resource pools,
security groups, storages and templates the tenant may use: those of the tenant's ProxmoxCluster,
and those that annotations of the ProxmoxCluster list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.scheduling.inventory_model import Template
from moxwell.scheduling.templates import versions_of

POOLS = "moxwell.dev/node-class-pools"
SECURITY_GROUPS = "moxwell.dev/node-class-security-groups"
STORAGES = "moxwell.dev/node-class-storages"
TEMPLATES = "moxwell.dev/node-class-templates"
ANY = "*"
Names = frozenset[str] | None  # None: every name


@dataclass(frozen=True, slots=True)
class MachineDefaults:
    """What the operator sets for all machines of a cluster: fields of ProxmoxMachine.spec."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""  # of Kubernetes

    @property
    def firewall_groups(self) -> tuple[str, ...]:
        return tuple(self.spec.get("firewallGroups") or ())


@dataclass(frozen=True, slots=True)
class NodeClassScope:
    """The names that node classes of a cluster may use."""

    pools: Names = None
    security_groups: Names = None
    storages: Names = None
    templates: Names = None

    def allows_pool(self, name: str) -> bool:
        """A pool may be used, and so may the pools below it."""
        return self.pools is None or any(
            name == pool or name.startswith(f"{pool}/") for pool in self.pools
        )

    def allows_group(self, name: str) -> bool:
        return self.security_groups is None or name in self.security_groups

    def allows_storage(self, name: str) -> bool:
        return self.storages is None or name in self.storages

    def allows_template(self, template: Template) -> bool:
        """Templates that the operator tagged with a Kubernetes version are for every cluster."""
        if self.templates is None or template.name in self.templates:
            return True
        return bool(versions_of(template))


def scope_of(
    cluster: ProxmoxCluster, defaults: MachineDefaults, *, trusted: bool
) -> NodeClassScope:
    """The scope of a cluster; ``trusted``: the users of the scaled cluster are operators."""
    if trusted:
        return NodeClassScope()
    spec = cluster.spec
    storages = {zone.storage or "" for zone in spec.zone_config} | {defaults.spec.get("storage")}
    pools = {spec.pool, defaults.spec.get("pool")}
    return NodeClassScope(
        _allowed(cluster, POOLS, pools),
        _allowed(cluster, SECURITY_GROUPS, set(defaults.firewall_groups)),
        _allowed(cluster, STORAGES, storages),
        _allowed(cluster, TEMPLATES, set()),
    )


def _allowed(cluster: ProxmoxCluster, annotation: str, own: set[Any]) -> Names:
    listed = cluster.metadata.annotations.get(annotation, "").split(",")
    names = frozenset(filter(None, (name.strip() for name in listed)))
    return None if ANY in names else names | frozenset(filter(None, own))
