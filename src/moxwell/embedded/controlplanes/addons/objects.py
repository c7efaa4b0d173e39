"""The shapes that the objects of several add-ons share. Pure."""

from typing import Any

Json = dict[str, Any]
SPACE = "kube-system"
RBAC = "rbac.authorization.k8s.io"
EVERYWHERE = [{"operator": "Exists"}]  # tolerates every taint


def make_object(api: str, kind: str, name: str, *, space: str = SPACE, **rest: Any) -> Json:
    """An object; without a namespace if ``space`` is empty."""
    meta: Json = {"name": name} | ({"namespace": space} if space else {})
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def account(name: str) -> Json:
    """A ServiceAccount."""
    return make_object("v1", "ServiceAccount", name)


def role(name: str, *rules: tuple[str, list[str], list[str]]) -> Json:
    """A ClusterRole; each rule is an API group, its resources and the verbs."""
    rows = [{"apiGroups": [g], "resources": r, "verbs": v} for g, r, v in rules]
    return make_object(f"{RBAC}/v1", "ClusterRole", name, space="", rules=rows)


def binding(name: str, role_name: str, account_name: str) -> Json:
    """A ClusterRoleBinding for a ServiceAccount."""
    subject = {"kind": "ServiceAccount", "name": account_name, "namespace": SPACE}
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role_name}
    kind = "ClusterRoleBinding"
    return make_object(f"{RBAC}/v1", kind, name, space="", roleRef=ref, subjects=[subject])


def workload(kind: str, name: str, label: str, pod: Json, **rest: Any) -> Json:
    """A DaemonSet or a Deployment."""
    labels = {"k8s-app": label}
    template = {"metadata": {"labels": labels}, "spec": pod}
    body = {"selector": {"matchLabels": labels}, "template": template, **rest}
    return make_object("apps/v1", kind, name, spec=body)


def daemon(name: str, container: Json, volumes: list[Json], **rest: Any) -> Json:
    """A DaemonSet of one container on every node, with its account and its own name as label."""
    pod = {
        "serviceAccountName": name,
        "priorityClassName": "system-node-critical",
        "tolerations": EVERYWHERE,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": volumes,
        **rest,
    }
    return workload("DaemonSet", name, name, pod)


def field_env(name: str, path: str) -> Json:
    """An environment variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def host_path(name: str, path: str, kind: str = "") -> Json:
    """A volume that is a path of the node."""
    return {"name": name, "hostPath": {"path": path} | ({"type": kind} if kind else {})}
