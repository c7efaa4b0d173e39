"""
The objects that ``kubeadm init`` creates for nodes that join, as plain dictionaries.

``cluster-info``, the kubeadm and kubelet configuration, RBAC for bootstrap tokens and for the
administrators' group. The caller applies them.
"""

import base64
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import yaml

from moxwell.api.kinds import Resource
from moxwell.bootstrap import join_tokens

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap"),
    "Secret": Resource("", "v1", "secrets", "Secret"),
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
    "ClusterRole": Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(
        RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "DaemonSet": Resource("apps", "v1", "daemonsets", "DaemonSet"),
    "Deployment": Resource("apps", "v1", "deployments", "Deployment"),
}
TOKENS = "system:bootstrappers:kubeadm:default-node-token"
ADMINS = "kubeadm:cluster-admins"
GET_NODES = "kubeadm:get-nodes"  # kubeadm join checks that no Node has the name
REQUEST_CERTIFICATE: Mapping[str, Any] = {
    "apiGroups": ["certificates.k8s.io"],
    "resources": ["certificatesigningrequests"],
    "verbs": ["create", "get", "list", "watch"],
}


def bootstrap_objects(url: str, ca: str, cluster: str, kubelet: str = "") -> tuple[Json, ...]:
    """The objects that joining nodes need; ``cluster`` is a ClusterConfiguration in YAML."""
    read, signer = ["get"], "kubeadm:bootstrap-signer-clusterinfo"
    nodes, configuration = "kubeadm:nodes-kubeadm-config", kubelet or kubelet_configuration()
    return (
        _config_map("cluster-info", "kube-public", {"kubeconfig": _kubeconfig(url, ca)}),
        _role(signer, "kube-public", [_rule("", ["configmaps"], read, ["cluster-info"])]),
        _binding(signer, "kube-public", [("User", "system:anonymous")]),
        _config_map("kubeadm-config", "kube-system", {"ClusterConfiguration": cluster}),
        _config_map("kubelet-config", "kube-system", {"kubelet": configuration}),
        _role(
            nodes,
            "kube-system",
            [_rule("", ["configmaps"], read, ["kubeadm-config", "kubelet-config"])],
        ),
        _binding(
            nodes,
            "kube-system",
            [("Group", TOKENS), ("Group", join_tokens.GROUP), ("Group", "system:nodes")],
        ),
        node_bootstrapper(),
        cluster_binding(
            "kubeadm:kubelet-bootstrap", "system:node-bootstrapper", TOKENS, join_tokens.GROUP
        ),
        _cluster_role(GET_NODES, {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}),
        cluster_binding(GET_NODES, GET_NODES, TOKENS, join_tokens.GROUP),
        cluster_binding(ADMINS, "cluster-admin", ADMINS),
    )


def token_secret(token: Json) -> Json:
    """The Secret of a bootstrap token from an InitConfiguration."""
    identity, _, secret = str(token.get("token", "")).partition(".")
    groups = token.get("groups") or [TOKENS]
    data = {
        "token-id": identity,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": ",".join(groups),
        "description": str(token.get("description") or "made by kubeadm init"),
    }
    if token.get("expires"):
        data["expiration"] = str(token["expires"])
    meta = {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token"}
    return kind | {"metadata": meta, "stringData": data}


def _kubeconfig(url: str, ca: str) -> str:
    cluster = {
        "server": url,
        "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
    }
    head = {"apiVersion": "v1", "kind": "Config"}
    return yaml.safe_dump(head | {"clusters": [{"name": "", "cluster": cluster}]})


def kubelet_configuration(service_cidr: str = "", domain: str = "") -> str:
    """
    The KubeletConfiguration of all nodes, in YAML, with the values of ``kubeadm init``.

    Without the client CA a kubelet refuses the API server, so there would be no logs and no exec.
    """
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    client_ca = {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}
    body: Json = head | {
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": client_ca,
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "systemd",
        "rotateCertificates": True,
        "staticPodPath": "/etc/kubernetes/manifests",
    }
    if service_cidr:
        body["clusterDNS"] = [str(ip_network(service_cidr.split(",")[0])[10])]
    if domain:
        body["clusterDomain"] = domain
    return yaml.safe_dump(body)


def _config_map(name: str, space: str, data: dict[str, str]) -> Json:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    return head | {"metadata": {"name": name, "namespace": space}, "data": data}


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str]) -> Json:
    return {
        "apiGroups": [group],
        "resources": resources,
        "verbs": verbs,
        "resourceNames": names,
    }


def _role(name: str, space: str, rules: list[Json]) -> Json:
    meta = {"name": name, "namespace": space}
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules}


def _binding(name: str, space: str, who: list[tuple[str, str]]) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": space},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": kind, "name": each} for kind, each in who],
    }


def node_bootstrapper() -> Json:
    """The ClusterRole of nodes that request their first certificate."""
    return _cluster_role("system:node-bootstrapper", REQUEST_CERTIFICATE)


def _cluster_role(name: str, rule: Mapping[str, Any]) -> Json:
    head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    return head | {"rules": [dict(rule)]}


def cluster_binding(name: str, role: str, *groups: str) -> Json:
    """A ClusterRoleBinding for groups."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    }
