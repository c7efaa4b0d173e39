"""Settings of konnectivity, and its objects in a tenant."""

import msgspec

from moxwell.api.kinds import Resource
from moxwell.embedded.controlplanes.binaries.konnectivity import (
    IMAGE,
    KonnectivityLayout,
    tenant_objects,
)
from moxwell.kube.client import Kube

RESOURCES = {
    "ServiceAccount": Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    "DaemonSet": Resource("apps", "v1", "daemonsets", "DaemonSet"),
    "ClusterRoleBinding": Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
    ),
}


class KonnectivitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The image of the agents, and the address they connect to; empty: the tenant's."""

    image: str = IMAGE
    address: str = ""


async def apply_konnectivity(kube: Kube, layout: KonnectivityLayout) -> None:
    """Create or update the objects of the agents; idempotent."""
    for obj in tenant_objects(layout):
        await kube.apply(obj, RESOURCES[obj["kind"]], manager="moxwell", force=True)
