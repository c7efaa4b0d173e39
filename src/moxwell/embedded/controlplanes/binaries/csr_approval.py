"""
Who may have a certificate signed without a person: the bindings that kubeadm makes.

The genuine controller-manager approves a joining node's request only where RBAC says so; the roles
are the API server's own. Nodes that join with a bootstrap token, and nodes that renew their own.
"""

from typing import Any

from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube

GROUP = "rbac.authorization.k8s.io"
BINDINGS = Resource(GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
SIGNING = "system:certificates.k8s.io:certificatesigningrequests"
ROWS = (
    (
        "kubeadm:node-autoapprove-bootstrap",
        f"{SIGNING}:nodeclient",
        "system:bootstrappers:kubeadm:default-node-token",
    ),
    ("kubeadm:node-autoapprove-certificate-rotation", f"{SIGNING}:selfnodeclient", "system:nodes"),
)


def objects() -> tuple[dict[str, Any], ...]:
    """The bindings."""
    return tuple(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
        }
        for name, role, group in ROWS
    )


async def allow(kube: Kube) -> None:
    """Make them; harmless to repeat."""
    for obj in objects():
        await kube.apply(obj, BINDINGS, manager="kubeadm", force=True)
