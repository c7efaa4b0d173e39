"""
What a hosted control plane offers to nodes that want to join: kubeadm's bootstrap objects.

The same that ``kubeadm init`` and Kamaji leave behind, with the configuration of a tenant.
"""

from typing import Any

import yaml

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Wish
from moxwell.kube.client import Kube
from moxwell.lab.guests import kubeadm

Json = dict[str, Any]


async def prepare(kube: Kube, url: str, ca: str, wish: Wish) -> None:
    """Make or update the bootstrap objects; harmless to repeat."""
    for obj in objects(url, ca, wish):
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], manager="kubeadm", force=True)


def objects(url: str, ca: str, wish: Wish) -> tuple[Json, ...]:
    """Everything a joining node reads or needs."""
    return kubeadm.bootstrap_objects(url, ca, _cluster(url, wish))


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
