"""
The virtual IP of the API server: kube-vip as a static pod on every control plane machine. Pure.

The leader among the machines answers ARP requests for the address. During ``kubeadm init`` only
``super-admin.conf`` has its privileges yet, so the first machine mounts that file.
"""

from typing import Any

import yaml

from moxwell.management.spec import NO_VIRTUAL_IP, ManagementSpec

Json = dict[str, Any]
PATH = "/etc/kubernetes/manifests/kube-vip.yaml"
ADMIN, SUPER_ADMIN = "/etc/kubernetes/admin.conf", "/etc/kubernetes/super-admin.conf"
FIRST_MACHINE = "/run/kubeadm/kubeadm.yaml"  # exists where `kubeadm init` runs


def virtual_ip_files(spec: ManagementSpec) -> list[Json]:
    """The files that a machine gets; none if there is no virtual IP."""
    if spec.virtual_ip == NO_VIRTUAL_IP:
        return []
    text = yaml.safe_dump(_pod(spec), sort_keys=False)
    return [{"path": PATH, "owner": "root:root", "permissions": "0600", "content": text}]


def virtual_ip_commands(spec: ManagementSpec) -> list[str]:
    """What runs before kubeadm."""
    if spec.virtual_ip == NO_VIRTUAL_IP:
        return []
    return [
        f"if [ -f {FIRST_MACHINE} ]; then sed -i 's#path: {ADMIN}#path: {SUPER_ADMIN}#' {PATH}; fi"
    ]


def _pod(spec: ManagementSpec) -> Json:
    environment = {
        "vip_arp": "true",
        "port": str(spec.port),
        "vip_interface": spec.virtual_ip_interface,
        "vip_subnet": "32",
        "cp_enable": "true",
        "cp_namespace": "kube-system",
        "vip_leaderelection": "true",
        "vip_leasename": "plndr-cp-lock",
        "vip_leaseduration": "15",
        "vip_renewdeadline": "10",
        "vip_retryperiod": "2",
        "address": spec.endpoint,
    }
    container = {
        "name": "kube-vip",
        "image": spec.virtual_ip,
        "imagePullPolicy": "IfNotPresent",
        "args": ["manager"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}},
        "volumeMounts": [{"name": "kubeconfig", "mountPath": ADMIN}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-vip", "namespace": "kube-system"},
        "spec": {
            "hostNetwork": True,
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["kubernetes"]}],
            "containers": [container],
            "volumes": [
                {"name": "kubeconfig", "hostPath": {"path": ADMIN, "type": "FileOrCreate"}}
            ],
        },
    }
