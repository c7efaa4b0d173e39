"""
The default ClusterRoles and ClusterRoleBindings of every cluster.

``admin``, ``edit`` and ``view`` are aggregated from labelled roles, so that charts can extend them.
"""

from collections.abc import Sequence
from typing import Any

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}"
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_CORE = (
    "configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods",
    "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services",
    "services/status", "replicationcontrollers/status", "pods/status",
)  # fmt: skip
_APPS = (
    "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale",
    "deployments/status", "replicasets", "replicasets/scale", "replicasets/status", "statefulsets",
    "statefulsets/scale", "statefulsets/status",
)  # fmt: skip


def rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _everything(verbs: Sequence[str]) -> list[Object]:
    return [
        rule([""], _CORE, verbs),
        rule(["apps"], _APPS, verbs),
        rule(["autoscaling"], ["horizontalpodautoscalers"], verbs),
        rule(["batch"], ["cronjobs", "cronjobs/status", "jobs", "jobs/status"], verbs),
        rule(["policy"], ["poddisruptionbudgets", "poddisruptionbudgets/status"], verbs),
        rule(["networking.k8s.io"], ["ingresses", "ingresses/status", "networkpolicies"], verbs),
        rule(["discovery.k8s.io"], ["endpointslices"], verbs if verbs == READ else READ),
    ]


def _path(paths: Sequence[str]) -> Object:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


def _node() -> list[Object]:
    """The rules of a kubelet."""
    return [
        rule([""], ["nodes"], ["create", *READ, "patch", "update", "delete"]),
        rule([""], ["nodes/status", "pods/status"], ["patch", "update"]),
        rule([""], ["pods"], [*READ, "create", "delete"]),
        rule([""], ["pods/eviction"], ["create"]),
        rule([""], ["services", "configmaps", "secrets", "persistentvolumes"], READ),
        rule([""], ["persistentvolumeclaims"], READ),
        rule([""], ["persistentvolumeclaims/status"], ["get", "patch", "update"]),
        rule([""], ["serviceaccounts/token"], ["create"]),
        rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
        rule(["coordination.k8s.io"], ["leases"], ["create", "delete", *READ, "patch", "update"]),
        rule(["storage.k8s.io"], ["csidrivers", "volumeattachments"], READ),
        rule(["storage.k8s.io"], ["csinodes"], ["create", "delete", *READ, "patch", "update"]),
        rule(["node.k8s.io"], ["runtimeclasses"], READ),
        rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
        rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
    ]


def _roles() -> dict[str, list[Object]]:
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
    ]
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    return {
        "cluster-admin": [every, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
        "system:basic-user": [
            rule(["authorization.k8s.io"], reviews, ["create"]),
            rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
        ],
        "system:discovery": [_path([*discovery, "/readyz", "/version", "/version/"])],
        "system:public-info-viewer": [_path(public)],
        "system:node": _node(),
        "system:aggregate-to-view": [
            *_everything(READ),
            rule([""], ["events", "limitranges", "namespaces", "resourcequotas", "bindings"], READ),
            rule([""], ["namespaces/status", "pods/log", "resourcequotas/status"], READ),
        ],
        "system:aggregate-to-edit": [
            *_everything(WRITE),
            rule([""], ["secrets"], [*READ, *WRITE]),
            rule([""], ["pods/eviction", "serviceaccounts/token"], ["create"]),
            rule(["coordination.k8s.io"], ["leases"], [*READ, *WRITE]),
            rule(["", "events.k8s.io"], ["events"], ["create", "patch", "update"]),
        ],
        "system:aggregate-to-admin": [
            rule(["authorization.k8s.io"], ["localsubjectaccessreviews"], ["create"]),
            rule([GROUP], ["rolebindings", "roles"], [*READ, *WRITE]),
        ],
    }


def _aggregate(name: str, below: Sequence[str]) -> Object:
    chosen = [{"matchLabels": {f"{GROUP}/aggregate-to-{b}": "true"}} for b in below]
    return {
        "metadata": {"name": name, "labels": dict(_LABELS)},
        "aggregationRule": {"clusterRoleSelectors": chosen},
    }


def _binding(role: str, groups: Sequence[str]) -> Object:
    return {
        "metadata": {"name": role, "labels": dict(_LABELS)},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": name} for name in groups],
    }


def objects() -> list[tuple[str, Object]]:
    """Yield the group resource and the object of every default role and binding."""
    found: list[tuple[str, Object]] = []
    for name, rules in _roles().items():
        labels = dict(_LABELS)
        if name.startswith("system:aggregate-to-"):
            labels[f"{GROUP}/{name.removeprefix('system:')}"] = "true"
        found.append((ROLES, {"metadata": {"name": name, "labels": labels}, "rules": rules}))
    found += [
        (ROLES, _aggregate(n, [n, *b]))
        for n, b in (("admin", ["edit", "view"]), ("edit", ["view"]), ("view", []))
    ]
    known = "system:authenticated"
    for role, groups in (
        ("cluster-admin", ["system:masters"]),
        ("system:basic-user", [known]),
        ("system:discovery", [known]),
        ("system:public-info-viewer", [known, "system:unauthenticated"]),
        ("system:node", ["system:nodes"]),
    ):
        found.append((BINDINGS, _binding(role, groups)))
    return found
