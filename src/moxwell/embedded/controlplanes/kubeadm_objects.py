"""Applies kubeadm's bootstrap objects, with a tenant's settings, to its control plane."""

from typing import Any

import yaml

from moxwell.bootstrap import kubeadm
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.kube.client import Kube

Json = dict[str, Any]


async def apply(kube: Kube, url: str, ca: str, spec: HostedControlPlaneSpec) -> None:
    """Create or update the objects; idempotent."""
    for obj in objects(url, ca, spec):
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], manager="kubeadm", force=True)


def objects(url: str, ca: str, spec: HostedControlPlaneSpec) -> tuple[Json, ...]:
    """The objects that a joining node reads or needs."""
    url = f"https://{spec.external}" if spec.external else url
    kubelet = kubeadm.kubelet_configuration(spec.service_cidr, spec.cluster_domain)
    return kubeadm.bootstrap_objects(url, ca, _cluster_configuration(url, spec), kubelet)


def _cluster_configuration(url: str, spec: HostedControlPlaneSpec) -> str:
    config = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "controlPlaneEndpoint": url.removeprefix("https://"),
        "kubernetesVersion": spec.version,
        "networking": {
            "dnsDomain": spec.cluster_domain,
            "podSubnet": spec.pod_cidr,
            "serviceSubnet": spec.service_cidr,
        },
    }
    return yaml.safe_dump(config)
