"""
What a new control plane offers to nodes that want to join: kubeadm's bootstrap objects.

``cluster-info`` for anybody, the configuration kubeadm reads, and the right of bootstrap tokens to
ask for a certificate. The same objects that ``kubeadm init`` and Kamaji leave behind.
"""

import base64
from typing import Any

import yaml

from moxwell.api.kinds import Resource
from moxwell.controllers.upstream.tenantplane.plan import Wish
from moxwell.kube.client import Kube

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap"),
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
    "ClusterRole": Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(
        RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
}
TOKENS = "system:bootstrappers:kubeadm:default-node-token"


async def prepare(kube: Kube, url: str, ca: str, wish: Wish) -> None:
    """Make or update the bootstrap objects; harmless to repeat."""
    for obj in objects(url, ca, wish):
        await kube.apply(obj, RESOURCES[obj["kind"]], manager="kubeadm", force=True)


def objects(url: str, ca: str, wish: Wish) -> tuple[Json, ...]:
    """Everything a joining node reads or needs."""
    read, signer = ["get"], "kubeadm:bootstrap-signer-clusterinfo"
    nodes = "kubeadm:nodes-kubeadm-config"
    return (
        _config_map("cluster-info", "kube-public", {"kubeconfig": _kubeconfig(url, ca)}),
        _role(signer, "kube-public", [_rule("", ["configmaps"], read, ["cluster-info"])]),
        _binding(signer, "kube-public", [("User", "system:anonymous")]),
        _config_map("kubeadm-config", "kube-system", {"ClusterConfiguration": _cluster(url, wish)}),
        _config_map("kubelet-config", "kube-system", {"kubelet": _kubelet()}),
        _role(
            nodes,
            "kube-system",
            [_rule("", ["configmaps"], read, ["kubeadm-config", "kubelet-config"])],
        ),
        _binding(nodes, "kube-system", [("Group", TOKENS), ("Group", "system:nodes")]),
        _cluster_role("system:node-bootstrapper"),
        _cluster_binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", TOKENS),
    )


def _kubeconfig(url: str, ca: str) -> str:
    cluster = {
        "server": url,
        "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
    }
    head = {"apiVersion": "v1", "kind": "Config"}
    return yaml.safe_dump(head | {"clusters": [{"name": "", "cluster": cluster}]})


def _cluster(url: str, wish: Wish) -> str:
    inside = {
        "dnsDomain": wish.domain,
        "podSubnet": wish.pod_cidr,
        "serviceSubnet": wish.service_cidr,
    }
    head = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration"}
    endpoint = url.removeprefix("https://")
    more = {"controlPlaneEndpoint": endpoint, "kubernetesVersion": wish.version}
    return yaml.safe_dump(head | more | {"networking": inside})


def _kubelet() -> str:
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    return yaml.safe_dump(head | {"cgroupDriver": "systemd", "rotateCertificates": True})


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


def _cluster_role(name: str) -> Json:
    rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"],
        "verbs": ["create", "get", "list", "watch"],
    }
    head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    return head | {"rules": [rule]}


def _cluster_binding(name: str, role: str, group: str) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
    }
