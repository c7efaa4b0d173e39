"""
The objects of a ``Tenant`` and the writes and firewall steps that are due. Pure.

A security group exists before the namespace names it, so that no node refers to a missing group.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.cozystack import Tenant, TenantStatus
from moxwell.api.ipam import InClusterIPPool
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.annotations import (
    BRIDGE,
    FIREWALL_GROUP,
    IP_POOL,
    ISOLATED,
    MADE,
    POOL,
    TENANT_LABEL,
    VLAN,
)
from moxwell.controllers.tenancy.apply_prediction import needs_apply
from moxwell.controllers.tenancy.tenant import firewall, isolation
from moxwell.controllers.tenancy.tenant.isolation import IsolationStep, ObservedIsolation
from moxwell.errors import Invalid
from moxwell.pve.endpoints.firewall import FirewallRule, SecurityGroup
from moxwell.pve.steps import DeleteSecurityGroup, EnsureSecurityGroup, TenantToken
from moxwell.pve.steps.security_groups import rule_changes
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Apply, Delete, Write
from moxwell.scheduling import quota

Json = dict[str, Any]
MANAGER = "moxwell-tenancy"
POLL_SECONDS = 5.0
APPLY_SECONDS = 1.0
RESYNC_SECONDS = 60.0
_NAME = re.compile(r"^[a-z][a-z0-9]*$")
ROLES = ("view", "use", "admin", "super-admin")
APPS = {"apiGroups": ["apps.cozystack.io"], "resources": ["kuberneteses", "tenants"]}
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "Namespace": Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    "ResourceQuota": Resource("", "v1", "resourcequotas", "ResourceQuota"),
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
    "InClusterIPPool": InClusterIPPool.resource,
}
TenantStep = EnsureSecurityGroup | DeleteSecurityGroup | IsolationStep
NODES_POOL = "nodes"  # the InClusterIPPool of a tenant


class TenantReason(StrEnum):
    """Reasons of a tenant's Ready condition."""

    READY = "Ready"
    REGION_UNREACHABLE = "RegionUnreachable"
    DELETING = "Deleting"
    POOL_NOT_EMPTY = "PoolNotEmpty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedFirewall:
    """The security group of a tenant in one region; ``error`` if the region did not answer."""

    region: str
    group: SecurityGroup | None = None
    rules: tuple[FirewallRule, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTenantNamespace:
    """The namespace of a tenant and what exists in it; ``firewalls`` None: no regions known."""

    namespace: Json | None = None
    clusters: tuple[str, ...] = ()
    objects: tuple[Json, ...] = ()  # with managed fields
    firewalls: tuple[ObservedFirewall, ...] | None = ()
    isolations: tuple[ObservedIsolation, ...] | None = ()
    group_used: bool = False  # a machine still refers to the security group

    @property
    def unreachable(self) -> tuple[str, ...]:
        """The regions that did not answer, with their errors."""
        found = [(f.region, f.error) for f in self.firewalls or ()]
        found += [(i.region, i.error) for i in self.isolations or ()]
        return tuple(dict.fromkeys(f"region {name}: {text}" for name, text in found if text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantChanges:
    """Steps in Proxmox, new tokens, then Kubernetes writes."""

    steps: tuple[TenantStep, ...] = ()
    tokens: tuple[TenantToken, ...] = ()
    writes: tuple[Write, ...] = ()
    requeue_after: float = POLL_SECONDS


TenantMove = TenantChanges | Wait | Done


def plan_tenant(tenant: Tenant, seen: ObservedTenantNamespace) -> TenantMove:
    """The next move; raises ``Invalid`` if the namespace or a group belongs to somebody else."""
    name = namespace_of(tenant)
    labels = ((seen.namespace or {}).get("metadata") or {}).get("labels") or {}
    if seen.namespace is not None and labels.get(TENANT_LABEL) != tenant.name:
        raise Invalid(f"namespace {name} exists already and does not belong to this tenant")
    if tenant.deleting:
        return _plan_deletion(tenant, name, seen)
    steps: tuple[TenantStep, ...] = _firewall_steps(tenant, name, seen)
    steps += _isolation_steps(tenant, name, isolation.wanted(tenant), seen)
    if not firewall.has_firewall(tenant) and not seen.group_used and not _names_group(seen):
        steps += _group_deletions(name, seen)
    if any(not isinstance(step, EnsureSecurityGroup) for step in steps):
        return TenantChanges(steps=steps, requeue_after=APPLY_SECONDS)
    writes = _writes(tenant, seen)
    tokens = _tokens(tenant, name, seen) if not writes else ()  # its Secret needs the namespace
    if steps or tokens or writes:
        return TenantChanges(steps=steps, tokens=tokens, writes=writes)
    if seen.unreachable:
        return Wait(TenantReason.REGION_UNREACHABLE, "; ".join(seen.unreachable), POLL_SECONDS)
    return Done(requeue_after=RESYNC_SECONDS)


def _plan_deletion(tenant: Tenant, name: str, seen: ObservedTenantNamespace) -> TenantMove:
    """Delete the namespace with its clusters and their machines, then the security groups."""
    if seen.namespace is not None:
        if "deletionTimestamp" in seen.namespace["metadata"]:
            return Wait(TenantReason.DELETING, f"namespace {name} is being deleted", POLL_SECONDS)
        return TenantChanges(writes=(Delete(RESOURCES["Namespace"], name),))
    steps: tuple[TenantStep, ...] = _group_deletions(name, seen)
    steps += _isolation_steps(tenant, name, frozenset(), seen)
    if steps:
        return TenantChanges(steps=steps, requeue_after=APPLY_SECONDS)
    if seen.unreachable:
        return Wait(TenantReason.REGION_UNREACHABLE, "; ".join(seen.unreachable), POLL_SECONDS)
    for found in seen.isolations or ():
        if isolation.POOL in found.exists(name):
            pool = isolation.pool_name(name, found.parent)
            text = f"pool {pool} in region {found.region} has {found.members} members"
            return Wait(TenantReason.POOL_NOT_EMPTY, text, RESYNC_SECONDS)
    return Done()


def _group_deletions(name: str, seen: ObservedTenantNamespace) -> tuple[TenantStep, ...]:
    return tuple(
        DeleteSecurityGroup(
            region_name=f.region, group=f.group.group, comment=firewall.owner_comment(name)
        )
        for f in seen.firewalls or ()
        if f.group is not None and firewall.is_owned(f.group, name)
    )


def _names_group(seen: ObservedTenantNamespace) -> bool:
    """Whether the namespace still gives its clusters the security group."""
    meta = (seen.namespace or {}).get("metadata") or {}
    return FIREWALL_GROUP in (meta.get("annotations") or {})


def _isolation_steps(
    tenant: Tenant, name: str, want: frozenset[str], seen: ObservedTenantNamespace
) -> tuple[TenantStep, ...]:
    if seen.isolations is None:
        if want:
            raise Invalid("spec.proxmox and spec.network.vnet need Proxmox regions; none are there")
        return ()
    return tuple(
        step for found in seen.isolations for step in isolation.steps_of(tenant, name, want, found)
    )


def _tokens(tenant: Tenant, name: str, seen: ObservedTenantNamespace) -> tuple[TenantToken, ...]:
    """The tokens that do not exist, lack their right, or whose secret is not stored."""
    if isolation.TOKEN not in isolation.wanted(tenant):
        return ()
    found = [each for each in seen.isolations or () if not each.error]
    return tuple(isolation.token_of(name, each) for each in found if not each.token_granted)


def _firewall_steps(
    tenant: Tenant, name: str, seen: ObservedTenantNamespace
) -> tuple[EnsureSecurityGroup, ...]:
    if not firewall.has_firewall(tenant):
        return ()
    if seen.firewalls is None:
        raise Invalid("spec.network.allowFrom needs Proxmox regions, and none are configured")
    rules, group = firewall.rules_for(tenant), firewall.group_name(name)
    for found in seen.firewalls:
        if found.group is not None and not firewall.is_owned(found.group, name):
            raise Invalid(
                f"security group {group} in region {found.region} exists already "
                "and does not belong to this tenant"
            )
    return tuple(
        EnsureSecurityGroup(
            region_name=f.region, group=group, comment=firewall.owner_comment(name), rules=rules
        )
        for f in seen.firewalls
        if not f.error and (f.group is None or any(rule_changes(rules, f.rules)))
    )


def _writes(tenant: Tenant, seen: ObservedTenantNamespace) -> tuple[Write, ...]:
    found = {(o["kind"], o["metadata"]["name"]): o for o in seen.objects}
    return tuple(
        Apply(obj, RESOURCES[obj["kind"]], MANAGER, force=True)
        for obj in desired_objects(tenant, seen.clusters, seen)
        if needs_apply(found.get((obj["kind"], obj["metadata"]["name"])), obj, MANAGER)
    )


def describe_tenant(tenant: Tenant, seen: ObservedTenantNamespace) -> TenantStatus:
    """The status of a Tenant, computed from what was observed."""
    ready = Condition(type="Ready", status="True", reason=TenantReason.READY)
    if seen.unreachable:
        message = f"Proxmox is not up to date: {'; '.join(seen.unreachable)}"
        ready = Condition(
            type="Ready", status="False", reason=TenantReason.REGION_UNREACHABLE, message=message
        )
    return TenantStatus(
        conditions=(ready,),
        namespace=namespace_of(tenant),
        observed_generation=tenant.metadata.generation,
    )


# Desired objects


def namespace_of(tenant: Tenant) -> str:
    """``tenant-NAME``; a nested tenant has the name of its parent in between."""
    if not _NAME.match(tenant.name):
        raise Invalid(
            f"the name of a tenant has lower-case letters and digits only, not {tenant.name!r}"
        )
    parent = tenant.namespace.removeprefix("tenant-")
    nested = tenant.namespace.startswith("tenant-") and parent != "root"
    return f"tenant-{parent}-{tenant.name}" if nested else f"tenant-{tenant.name}"


def desired_objects(
    tenant: Tenant, clusters: Iterable[str], seen: ObservedTenantNamespace | None = None
) -> tuple[Json, ...]:
    """Namespace, quota, address pool, roles and bindings, in the order of creation."""
    namespace = namespace_of(tenant)
    labels = {TENANT_LABEL: tenant.name, "tenant.cozystack.io/name": tenant.name}
    meta: Json = {"name": namespace, "labels": labels}
    annotations = (
        _network_annotations(tenant, namespace)
        | _quota_annotation(tenant)
        | _isolation(tenant, namespace, seen)
    )
    meta |= {"annotations": annotations} if annotations else {}
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    secrets = [isolation.secret_name(each.region) for each in (seen and seen.isolations) or ()]
    tokens = sorted(secrets) if tenant.spec.proxmox.token else []
    rows = [obj, *_quotas(tenant, namespace), *_address_pools(tenant, namespace)]
    return (*rows, *_roles(namespace, sorted(clusters), tokens))


def _isolation(tenant: Tenant, namespace: str, seen: ObservedTenantNamespace | None) -> Json:
    """What exists or is to exist in Proxmox; it is read until it does not exist any more."""
    found = [each.exists(namespace) for each in (seen and seen.isolations) or ()]
    made = isolation.wanted(tenant).union(*found)
    owned = any(f.error or f.group is not None for f in (seen and seen.firewalls) or ())
    if firewall.has_firewall(tenant) or owned:
        made |= {firewall.MADE_GROUP}
    return {MADE: ",".join(sorted(made))} if made else {}


def _address_pools(tenant: Tenant, namespace: str) -> list[Json]:
    """The addresses of the tenant's nodes, unless Proxmox assigns them by DHCP."""
    network, vnet = tenant.spec.network, tenant.spec.network.vnet
    if not network.ranges or (vnet is not None and vnet.dhcp):
        return []
    subnet = isolation.subnet_of(tenant)
    prefix = network.prefix or (int(subnet.cidr.partition("/")[2]) if subnet else 24)
    spec = {"addresses": list(network.ranges), "prefix": prefix}
    gateway = network.gateway or (subnet.gateway if subnet else "")
    spec |= {"gateway": gateway} if gateway else {}
    version = InClusterIPPool.resource.api_version
    return [_object(version, "InClusterIPPool", NODES_POOL, namespace, {"spec": spec})]


def _network_annotations(tenant: Tenant, namespace: str) -> Json:
    """Firewall group and bridge for the clusters in the namespace."""
    annotations = {}
    network, want = tenant.spec.network, isolation.wanted(tenant)
    if firewall.has_firewall(tenant):
        annotations[FIREWALL_GROUP] = firewall.group_name(namespace)
    isolation.check_bridge(tenant)
    if bridge := isolation.vnet_name(namespace) if network.vnet is not None else network.bridge:
        annotations[BRIDGE] = bridge
    if network.vlan is not None:
        annotations[VLAN] = str(network.vlan)
    if isolation.POOL in want:
        annotations[POOL] = firewall.group_name(namespace)
    if _address_pools(tenant, namespace):
        annotations[IP_POOL] = NODES_POOL
    if isolation.is_isolated(tenant):
        annotations[ISOLATED] = "true"
    return annotations


def _quota_annotation(tenant: Tenant) -> Json:
    """The limits that count machines; no ResourceQuota can, because machines are no pods."""
    limits = quota.limits_of(tenant.spec.resource_quotas)
    return {quota.QUOTA: quota.as_annotation(limits)} if limits else {}


def _quotas(tenant: Tenant, namespace: str) -> list[Json]:
    given = tenant.spec.resource_quotas
    own = ("nodes", "clusters")  # no ResourceQuota has these
    hard = {_quota_name(name): str(value) for name, value in given.items() if name not in own}
    if not hard:
        return []
    return [
        _object("v1", "ResourceQuota", "tenant-quota", namespace, {"spec": {"hard": hard}}),
    ]


def _quota_name(name: str) -> str:
    """The quota name of a resource; ``cpu`` limits the requests of pods."""
    return f"requests.{name}" if name in {"cpu", "memory", "storage"} else name


def _roles(namespace: str, clusters: list[str], tokens: list[str]) -> list[Json]:
    read, write = ["get", "list", "watch"], ["create", "update", "patch", "delete"]
    configs: Json = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [f"{name}-kubeconfig" for name in clusters] or ["none"],
        "verbs": ["get"],
    }
    own = {**configs, "resourceNames": [*configs["resourceNames"], *tokens]}
    events = {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": read}
    rules = {
        "view": [{**APPS, "verbs": read}, events],
        "use": [{**APPS, "verbs": read}, events, configs],
        "admin": [{**APPS, "verbs": [*read, *write]}, events, own],
        "super-admin": [{**APPS, "verbs": [*read, *write]}, events, own],
    }
    rows = []
    for role in ROLES:
        name = f"{namespace}-{role}"
        rows.append(
            _object("rbac.authorization.k8s.io/v1", "Role", name, namespace, {"rules": rules[role]})
        )
        rows.append(_binding(name, namespace))
    return rows


def _binding(name: str, namespace: str) -> Json:
    group = "rbac.authorization.k8s.io"
    body = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": name}],
    }
    return _object(f"{group}/v1", "RoleBinding", name, namespace, body)


def _object(version: str, kind: str, name: str, namespace: str, body: Json) -> Json:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
    } | body
