"""The objects a ``Tenant`` stands for: pure."""

import re
from collections.abc import Iterable
from typing import Any

from moxwell.api.cozystack import Tenant
from moxwell.controllers.tenancy.annotations import BRIDGE, FIREWALL_GROUP, TENANT_LABEL
from moxwell.controllers.tenancy.tenant import firewall
from moxwell.errors import Invalid

Json = dict[str, Any]
_NAME = re.compile(r"^[a-z][a-z0-9]*$")
ROLES = ("view", "use", "admin", "super-admin")
APPS = {"apiGroups": ["apps.cozystack.io"], "resources": ["kuberneteses", "tenants"]}


def namespace_of(tenant: Tenant) -> str:
    """``tenant-NAME``; below another tenant its namespace comes first."""
    if not _NAME.match(tenant.name):
        raise Invalid(
            f"a tenant's name is letters and digits, a letter first; {tenant.name!r} is not"
        )
    parent = tenant.namespace.removeprefix("tenant-")
    nested = tenant.namespace.startswith("tenant-") and parent != "root"
    return f"tenant-{parent}-{tenant.name}" if nested else f"tenant-{tenant.name}"


def desired_objects(tenant: Tenant, clusters: Iterable[str]) -> tuple[Json, ...]:
    """Everything that should be there, the namespace first."""
    space = namespace_of(tenant)
    labels = {TENANT_LABEL: tenant.name, "tenant.cozystack.io/name": tenant.name}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": space, "labels": labels, "annotations": _connections(tenant, space)},
    }
    rows = [namespace, *_limits(tenant, space), *_rights(space, sorted(clusters))]
    return tuple(rows)


def _connections(tenant: Tenant, space: str) -> Json:
    """What clusters of the namespace do about networks, read by ``tenancy.cluster``."""
    notes = {}
    if firewall.networks(tenant):
        notes[FIREWALL_GROUP] = firewall.group_name(space)
    if tenant.spec.network.bridge:
        notes[BRIDGE] = tenant.spec.network.bridge
    return notes


def _limits(tenant: Tenant, space: str) -> list[Json]:
    if not tenant.spec.resource_quotas:
        return []
    hard = {_quota(name): str(value) for name, value in tenant.spec.resource_quotas.items()}
    return [
        _make("v1", "ResourceQuota", "tenant-quota", space, {"spec": {"hard": hard}}),
    ]


def _quota(name: str) -> str:
    """``cpu`` of a tenant is what its pods may ask for; counts keep their names."""
    return f"requests.{name}" if name in {"cpu", "memory", "storage"} else name


def _rights(space: str, clusters: list[str]) -> list[Json]:
    read, write = ["get", "list", "watch"], ["create", "update", "patch", "delete"]
    configs = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [f"{name}-kubeconfig" for name in clusters] or ["none"],
        "verbs": ["get"],
    }
    events = {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": read}
    rules = {
        "view": [{**APPS, "verbs": read}, events],
        "use": [{**APPS, "verbs": read}, events, configs],
        "admin": [{**APPS, "verbs": [*read, *write]}, events, configs],
        "super-admin": [{**APPS, "verbs": [*read, *write]}, events, configs],
    }
    rows = []
    for role in ROLES:
        name = f"{space}-{role}"
        rows.append(
            _make("rbac.authorization.k8s.io/v1", "Role", name, space, {"rules": rules[role]})
        )
        rows.append(_binding(name, space))
    return rows


def _binding(name: str, space: str) -> Json:
    group = "rbac.authorization.k8s.io"
    body = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": name}],
    }
    return _make(f"{group}/v1", "RoleBinding", name, space, body)


def _make(version: str, kind: str, name: str, space: str, body: Json) -> Json:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": space},
    } | body
