"""
Add-ons that a tenant on binaries has when it is ready: kube-proxy, CoreDNS and given manifests.

The objects are those of kubeadm's add-on phase. Other add-ons (CNI, CSI node plugin and
metrics-server) are manifests of the user. The cloud controllers and the CSI controller run in our
process.
"""

from ipaddress import ip_network
from typing import Any

import msgspec
import yaml

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.kube.client import Kube
from moxwell.kube.manifests import apply_listed

Json = dict[str, Any]
REPOSITORY, COREDNS_VERSION = "registry.k8s.io", "v1.12.1"
RBAC = "rbac.authorization.k8s.io"
SPACE = "kube-system"
COREFILE = """\
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes %s in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf
    cache 30
    loop
    reload
    loadbalance
}
"""


class AddonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which add-ons tenants get; ``manifests`` are the objects of the user's files."""

    kube_proxy: bool = False
    coredns: bool = False
    image_repository: str = REPOSITORY
    manifests: tuple[Json, ...] = ()


async def apply_addons(
    kube: Kube, settings: AddonSettings, spec: HostedControlPlaneSpec, url: str
) -> None:
    """Create or update the add-ons and delete those that are not configured any more."""
    objects = addon_objects(settings, spec, url)
    await apply_listed(kube, objects, "moxwell-addons", (SPACE, "moxwell-addons"))


def addon_objects(
    settings: AddonSettings, spec: HostedControlPlaneSpec, url: str
) -> tuple[Json, ...]:
    """All objects; ``url`` is the API server as nodes reach it."""
    proxy = _kube_proxy(settings, spec, url) if settings.kube_proxy else ()
    names = _coredns(settings, spec) if settings.coredns else ()
    return (*proxy, *names, *settings.manifests)


def _object(api: str, kind: str, name: str, *, space: str = SPACE, **rest: Any) -> Json:
    meta: Json = {"name": name} | ({"namespace": space} if space else {})
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def _binding(name: str, role: str, account: str) -> Json:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": SPACE}
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    kind = "ClusterRoleBinding"
    return _object(f"{RBAC}/v1", kind, name, space="", roleRef=ref, subjects=[subject])


def _workload(kind: str, name: str, label: str, pod: Json, **rest: Any) -> Json:
    labels = {"k8s-app": label}
    template = {"metadata": {"labels": labels}, "spec": pod}
    body = {"selector": {"matchLabels": labels}, "template": template, **rest}
    return _object("apps/v1", kind, name, spec=body)


def _kube_proxy(
    settings: AddonSettings, spec: HostedControlPlaneSpec, url: str
) -> tuple[Json, ...]:
    name, image = "kube-proxy", f"{settings.image_repository}/kube-proxy:{spec.version}"
    return (
        _object("v1", "ServiceAccount", name),
        _binding("kubeadm:node-proxier", "system:node-proxier", name),
        _object("v1", "ConfigMap", name, data=_proxy_files(spec, url)),
        _workload("DaemonSet", name, name, _proxy_pod(name, image)),
    )


def _proxy_pod(name: str, image: str) -> Json:
    mounts = [
        {"name": "config", "mountPath": "/var/lib/kube-proxy"},
        {"name": "xtables", "mountPath": "/run/xtables.lock"},
        {"name": "modules", "mountPath": "/lib/modules", "readOnly": True},
    ]
    lock = {"path": "/run/xtables.lock", "type": "FileOrCreate"}
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    host = "--hostname-override=$(NODE_NAME)"
    container = {
        "name": name,
        "image": image,
        "command": ["/usr/local/bin/kube-proxy"],
        "args": ["--config=/var/lib/kube-proxy/config.conf", host],
        "env": [{"name": "NODE_NAME", "valueFrom": field}],
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
    }
    return {
        "serviceAccountName": name,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            {"name": "xtables", "hostPath": lock},
            {"name": "modules", "hostPath": {"path": "/lib/modules"}},
        ],
    }


def _proxy_files(spec: HostedControlPlaneSpec, url: str) -> dict[str, str]:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "clusterCIDR": spec.pod_cidr,
    }
    cluster = {"server": url, "certificate-authority": f"{account}/ca.crt"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": {"tokenFile": f"{account}/token"}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
    }
    texts = {"config.conf": config, "kubeconfig.conf": kubeconfig}
    return {name: yaml.safe_dump(tree, sort_keys=False) for name, tree in texts.items()}


def _coredns(settings: AddonSettings, spec: HostedControlPlaneSpec) -> tuple[Json, ...]:
    name, role = "coredns", "system:coredns"
    rules = [
        {
            "apiGroups": [""],
            "resources": ["endpoints", "services", "pods", "namespaces"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]
    address = str(ip_network(spec.service_cidr.split(",")[0])[10])
    service = {"clusterIP": address, "selector": {"k8s-app": "kube-dns"}, "ports": ports}
    return (
        _object("v1", "ServiceAccount", name),
        _object(f"{RBAC}/v1", "ClusterRole", role, space="", rules=rules),
        _binding(role, role, name),
        _object("v1", "ConfigMap", name, data={"Corefile": COREFILE % spec.cluster_domain}),
        _workload("Deployment", name, "kube-dns", _dns_pod(settings), replicas=2),
        dns_service(service),
    )


def dns_service(spec: Json) -> Json:
    """The Service of CoreDNS; ``kubectl cluster-info`` finds it by its labels."""
    made = _object("v1", "Service", "kube-dns", spec=spec)
    made["metadata"]["labels"] = {
        "k8s-app": "kube-dns",
        "kubernetes.io/cluster-service": "true",
        "kubernetes.io/name": "CoreDNS",
    }
    return made


def _dns_pod(settings: AddonSettings) -> Json:
    file = {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]}
    allowed = {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}
    container = {
        "name": "coredns",
        "image": f"{settings.image_repository}/coredns/coredns:{COREDNS_VERSION}",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53},
        ],
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": allowed},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": file}],
    }
