"""
Whether the quotas of a tenant leave room for a cluster. Pure.

A cluster needs its node groups, autoscaled ones with their minimum; a rolling update also needs one
more machine of the largest group that rolls, because groups roll one after the other with
``maxSurge: 1``. Other clusters count with what they need or what exists, whichever is more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.field_errors import FieldError
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.tenancy.cluster.defaults import Defaults, groups_of
from moxwell.controllers.tenancy.cluster.instance_types import NodeSize, size_of
from moxwell.controllers.tenancy.cluster.naming import GROUP_LABEL
from moxwell.controllers.tenancy.cluster.node_groups import kubeadm_spec, machine_spec
from moxwell.errors import Invalid
from moxwell.scheduling import quota
from moxwell.scheduling.quota import Amounts, Excess, Limits

ClusterName = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUsage:
    """What exists or was accepted: the limits, the clusters and their machines."""

    limits: Mapping[str, Limits]  # by namespace of a tenant
    clusters: Mapping[ClusterName, Amounts]  # what each accepted cluster needs
    machines: tuple[ProxmoxMachine, ...] = ()
    volumes: Mapping[ClusterName, int] = field(default_factory=dict)  # bytes


def needs(app: Kubernetes) -> Amounts:
    """What a cluster needs when nothing rolls."""
    groups = (_node(group) * _count(group) for group in groups_of(app))
    return quota.total(groups) + Amounts(clusters=1)


def accepted_needs(app: Kubernetes) -> Amounts:
    """The same for a cluster that was accepted before some rule; its machines count then."""
    try:
        return needs(app)
    except Invalid:
        return Amounts(clusters=1)


def _count(group: NodeGroup) -> int:
    return (group.min_replicas or 0) if group.autoscaled else (group.replicas or 0)


def _node(group: NodeGroup) -> Amounts:
    size: NodeSize = size_of(group)
    return quota.machine(size.cores, size.memory_mib, size.disk_gib)


def surge(app: Kubernetes, old: Kubernetes | None, defaults: Defaults) -> Amounts:
    """The machine that a rolling update needs for a time; nothing if no group rolls."""
    if old is None:
        return Amounts()
    before = {group.name: group for group in groups_of(old)}
    found = Amounts()
    for group in groups_of(app):
        was = before.get(group.name)
        if was is None or not _count(was) or not _count(group):
            continue
        if _template(app, group, defaults) != _template(old, was, defaults):
            found = found.at_least(_node(group))
    return found


def _template(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> tuple[Any, ...]:
    """What decides whether the machines of a group are replaced."""
    machine = machine_spec(app, group, size_of(group), defaults)
    return machine, kubeadm_spec(group), group.version or app.spec.version, group.zones


def quota_excess(
    app: Kubernetes, old: Kubernetes | None, defaults: Defaults, usage: TenantUsage
) -> tuple[Excess, ...]:
    """The limits of the tenant, and of those above it, that the cluster would exceed."""
    if not any(usage.limits.values()):
        return ()
    key = (app.namespace, app.name)
    asked = needs(app) + surge(app, old, defaults)
    before = needs(old) if old is not None else Amounts()
    found: list[Excess] = []
    for tenant in quota.tenant_namespaces(app.namespace):
        limits = usage.limits.get(tenant) or {}
        if limits:
            used = used_by_others(tenant, key, usage)
            found += quota.excesses(tenant, limits, asked=asked, used=used, before=before)
    return tuple(found)


def rollout_excess(
    app: Kubernetes, rolling: Iterable[str], usage: TenantUsage
) -> tuple[Excess, ...]:
    """The limits that leave no room for the surge of groups that roll for another reason."""
    key, names = (app.namespace, app.name), set(rolling)
    surging = Amounts()
    for group in groups_of(app):
        if f"{app.name}-{group.name}" in names:
            surging = surging.at_least(_node(group))
    found: list[Excess] = []
    for tenant, limits in usage.limits.items():
        used = used_by_others(tenant, key, usage) + needs(app)
        found += quota.excesses(tenant, limits, asked=surging, used=used)
    return tuple(found)


def quota_errors(found: Iterable[Excess]) -> tuple[FieldError, ...]:
    """The excess as one error."""
    text = quota.sentence(found)
    return (FieldError("", f"{text}: ask for less or raise spec.resourceQuotas"),) if text else ()


def used_by_others(tenant: str, key: ClusterName, usage: TenantUsage) -> Amounts:
    """
    What a tenant uses without the node groups of one cluster.

    Machines of that cluster which belong to no node group (of an autoscaler) count.
    """
    grouped: dict[ClusterName, Amounts] = {}
    found = Amounts()
    for machine in usage.machines:
        if not quota.belongs_to(machine.namespace, tenant):
            continue
        labels, amounts = machine.metadata.labels, quota.machine_amounts(machine.spec)
        owner = (machine.namespace, labels.get(CLUSTER_NAME, ""))
        if GROUP_LABEL in labels and owner in {*usage.clusters, key}:
            grouped[owner] = grouped.get(owner, Amounts()) + amounts
        else:
            found = found + amounts
    for name, amounts in usage.clusters.items():
        if name != key and quota.belongs_to(name[0], tenant):
            found = found + amounts.at_least(grouped.get(name, Amounts()))
    volumes = (b for (space, _), b in usage.volumes.items() if quota.belongs_to(space, tenant))
    return found + Amounts(storage=sum(volumes))
