"""Small objects for the cases."""

from typing import Any

CORE = "/api/v1/namespaces/$ns"
CM = f"{CORE}/configmaps"
SECRETS = f"{CORE}/secrets"
PODS = f"{CORE}/pods"
SERVICES = f"{CORE}/services"
ACCOUNTS = f"{CORE}/serviceaccounts"
APPS = "/apis/apps/v1/namespaces/$ns"
DEPLOYMENTS = f"{APPS}/deployments"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

Body = dict[str, Any]


def meta(name: str | None = None, **more: Any) -> Body:
    return {**({"name": name} if name else {}), **more}


def cm(name: str | None = None, data: Body | None = None, **more: Any) -> Body:
    """A ConfigMap; ``more`` extends its metadata."""
    body: Body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, **more)}
    return {**body, "data": data} if data is not None else body


def secret(name: str, **more: Any) -> Body:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **more}


def pod(name: str, **spec: Any) -> Body:
    """A Pod that needs little admission."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "registry.example/x:1"}],
            **spec,
        },
    }


def deployment(name: str, replicas: int | None = 1, **more: Any) -> Body:
    spec: Body = {
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/x:1"}]},
        },
        **more,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    return {**head, "spec": spec}


def lease(name: str, **spec: Any) -> Body:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    return {**head, "spec": spec}


WIDGET_SCHEMA: Body = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                "replicas": {"type": "integer", "default": 1},
                "colour": {"type": "string", "enum": ["red", "green"]},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {
                            "id": {"type": "string"},
                            "weight": {"type": "integer", "default": 5},
                        },
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "port": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}


def crd(plural: str = "widgets", kind: str = "Widget", **version: Any) -> Body:
    """A CRD in the case's own group; ``version`` overrides parts of its version."""
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        **version,
    }
    return crd_of(plural, kind, [{k: v for k, v in one.items() if v is not None}])


def crd_of(plural: str, kind: str, versions: list[Body], **spec: Any) -> Body:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.$u.example.com"},
        "spec": {
            "group": "$u.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": versions,
            **spec,
        },
    }


CRD = f"{CRDS}/widgets.$u.example.com"
WIDGETS = "/apis/$u.example.com/v1/namespaces/$ns/widgets"


def widget(name: str, spec: Body | None = None, version: str = "v1", **more: Any) -> Body:
    head = {"apiVersion": f"$u.example.com/{version}", "kind": "Widget"}
    return {**head, "metadata": meta(name), "spec": spec if spec is not None else {}, **more}
