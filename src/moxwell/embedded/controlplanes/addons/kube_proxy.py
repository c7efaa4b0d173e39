"""kube-proxy, with the objects of kubeadm's add-on phase. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.objects import (
    Json,
    account,
    binding,
    daemon,
    field_env,
    host_path,
    make_object,
)

NAME = "kube-proxy"
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"


def kube_proxy(
    repository: str, spec: HostedControlPlaneSpec, url: str, extra: Mapping[str, Any]
) -> tuple[Json, ...]:
    """All objects; ``extra`` is merged into the KubeProxyConfiguration."""
    return (
        account(NAME),
        binding("kubeadm:node-proxier", "system:node-proxier", NAME),
        make_object("v1", "ConfigMap", NAME, data=_files(spec, url, extra)),
        _daemon(f"{repository}/kube-proxy:{spec.version}"),
    )


def _daemon(image: str) -> Json:
    container = {
        "name": NAME,
        "image": image,
        "command": ["/usr/local/bin/kube-proxy"],
        "args": ["--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"],
        "env": [field_env("NODE_NAME", "spec.nodeName")],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "config", "mountPath": "/var/lib/kube-proxy"},
            {"name": "xtables", "mountPath": "/run/xtables.lock"},
            {"name": "modules", "mountPath": "/lib/modules", "readOnly": True},
        ],
    }
    volumes = [
        {"name": "config", "configMap": {"name": NAME}},
        host_path("xtables", "/run/xtables.lock", "FileOrCreate"),
        host_path("modules", "/lib/modules"),
    ]
    return daemon(NAME, container, volumes, hostNetwork=True)


def _files(spec: HostedControlPlaneSpec, url: str, extra: Mapping[str, Any]) -> dict[str, str]:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "clusterCIDR": spec.pod_cidr,
        **extra,
    }
    cluster = {"server": url, "certificate-authority": f"{SECRETS}/ca.crt"}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": {"tokenFile": f"{SECRETS}/token"}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
    }
    texts = {"config.conf": config, "kubeconfig.conf": kubeconfig}
    return {name: yaml.safe_dump(tree, sort_keys=False) for name, tree in texts.items()}
