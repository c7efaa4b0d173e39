"""
RBAC that lets kube-controller-manager approve kubelets' certificate signing requests.

The same ClusterRoleBindings as kubeadm creates: for nodes that join with a bootstrap token and for
nodes that renew their certificate. The ClusterRoles exist in every API server.
"""

from typing import Any

from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube

GROUP = "rbac.authorization.k8s.io"
BINDINGS = Resource(GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
SIGNING = "system:certificates.k8s.io:certificatesigningrequests"
BINDING_ROWS = (
    (
        "kubeadm:node-autoapprove-bootstrap",
        f"{SIGNING}:nodeclient",
        "system:bootstrappers:kubeadm:default-node-token",
    ),
    ("kubeadm:node-autoapprove-certificate-rotation", f"{SIGNING}:selfnodeclient", "system:nodes"),
)


def objects() -> tuple[dict[str, Any], ...]:
    """The ClusterRoleBindings."""
    return tuple(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group}],
        }
        for name, role, group in BINDING_ROWS
    )


async def apply(kube: Kube) -> None:
    """Apply them; idempotent."""
    for obj in objects():
        await kube.apply(obj, BINDINGS, manager="kubeadm", force=True)
