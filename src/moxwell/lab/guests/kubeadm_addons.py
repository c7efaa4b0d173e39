"""The addons that ``kubeadm init`` installs: kube-proxy and CoreDNS, as plain dictionaries."""

from collections.abc import Iterable
from typing import Any

from moxwell.lab.guests.control_plane import KubeadmInit
from moxwell.lab.guests.userdata import CONTROL_PLANE

Json = dict[str, Any]
COREDNS_IMAGE = "registry.k8s.io/coredns/coredns:v1.12.1"
COREFILE = ".:53 {\n    errors\n    health\n    ready\n    forward . /etc/resolv.conf\n}\n"
TOLERATIONS = [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]


def addons(init: KubeadmInit) -> tuple[Json, ...]:
    """The objects of the addons that the InitConfiguration does not skip."""
    skipped = init.skipped
    proxy = () if skipped & {"addon", "addon/kube-proxy"} else _proxy(init.control_plane.version)
    names = () if skipped & {"addon", "addon/coredns"} else _coredns()
    return (*proxy, *names)


def _proxy(version: str) -> Iterable[Json]:
    image = f"registry.k8s.io/kube-proxy:{version}"
    pod = _pod("kube-proxy", image, tolerations=[{"operator": "Exists"}], hostNetwork=True)
    yield _config_map("kube-proxy", {"config.conf": "kind: KubeProxyConfiguration\n"})
    yield _workload("DaemonSet", "kube-proxy", pod)


def _coredns() -> Iterable[Json]:
    pod = _pod("coredns", COREDNS_IMAGE, tolerations=TOLERATIONS)
    yield _config_map("coredns", {"Corefile": COREFILE})
    yield _workload("Deployment", "coredns", pod, replicas=2)


def _pod(name: str, image: str, **spec: Any) -> Json:
    containers = [{"name": name, "image": image}]
    meta = {"labels": {"k8s-app": name}}
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


def _config_map(name: str, data: dict[str, str]) -> Json:
    meta = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _workload(kind: str, name: str, pod: Json, **spec: Any) -> Json:
    selector = {"matchLabels": {"k8s-app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": name}},
        "spec": {"selector": selector, "template": pod, **spec},
    }
