"""
Talos machine configurations of workers and control planes. Pure.

A worker needs the endpoint and CA of its cluster and a bootstrap token for the kubelet. The CA
and token of ``machine`` are for the API of Talos: Talos control planes sign its certificates,
hosted ones do not, so ``talosctl`` does not reach workers of those. All control planes of a cluster
have the same configuration; ``talosctl bootstrap`` starts etcd on one of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from moxwell.bootstrap import talos_documents
from moxwell.bootstrap.talos_secrets import TalosSecrets, encoded, encoded_pair

Json = dict[str, Any]
KUBELET_IMAGE = "ghcr.io/siderolabs/kubelet"
IMAGES = {  # the programs of a control plane, by their sections
    "apiServer": "registry.k8s.io/kube-apiserver",
    "controllerManager": "registry.k8s.io/kube-controller-manager",
    "scheduler": "registry.k8s.io/kube-scheduler",
    "proxy": "registry.k8s.io/kube-proxy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TalosCluster:
    """What the nodes of a cluster share."""

    name: str
    endpoint: str  # https://host:port
    pods: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TalosJoin:
    """What a worker joins with."""

    ca: bytes
    token: str = field(repr=False)  # bootstrap token of the kubelet
    talos_ca: bytes  # of Talos' API
    talos_token: str = field(repr=False)


def worker_config(cluster: TalosCluster, join: TalosJoin, version: str) -> Json:
    """The configuration of a worker."""
    kubelet = _kubelet(version) | {"extraArgs": {"cloud-provider": "external"}}
    machine = {"type": "worker", "token": join.talos_token, "ca": _public(join.talos_ca)}
    return {
        "version": "v1alpha1",
        "machine": machine | {"kubelet": kubelet, "features": _features()},
        "cluster": _cluster(cluster) | {"token": join.token, "ca": _public(join.ca)},
    }


def control_plane_config(cluster: TalosCluster, secrets: TalosSecrets, version: str) -> Json:
    """The configuration of a control plane; etcd runs on it."""
    machine = {
        "type": "controlplane",
        "token": secrets.trustd_token,
        "ca": encoded_pair(secrets.talos),
        "kubelet": _kubelet(version),
        "features": _features(),
    }
    programs: Json = {section: {"image": f"{image}:{version}"} for section, image in IMAGES.items()}
    programs["apiServer"]["certSANs"] = [urlsplit(cluster.endpoint).hostname]
    own = {
        "id": secrets.cluster_id,
        "secret": secrets.cluster_secret,
        "token": secrets.bootstrap_token,
        "secretboxEncryptionSecret": secrets.secretbox,
        "ca": encoded_pair(secrets.kubernetes),
        "aggregatorCA": encoded_pair(secrets.aggregator),
        "serviceAccount": {"key": encoded(secrets.service_account)},
        "etcd": {"ca": encoded_pair(secrets.etcd)},
        **programs,
    }
    return {"version": "v1alpha1", "machine": machine, "cluster": _cluster(cluster) | own}


def _kubelet(version: str) -> Json:
    return {
        "image": f"{KUBELET_IMAGE}:{version}",
        "defaultRuntimeSeccompProfileEnabled": True,
        "disableManifestsDirectory": True,
    }


def _features() -> Json:
    return {"rbac": True, "kubePrism": {"enabled": True, "port": 7445}}


def _cluster(cluster: TalosCluster) -> Json:
    """Without Talos' discovery service, which is on the internet: nodes ask the API instead."""
    network = {
        "dnsDomain": cluster.domain or "cluster.local",
        "podSubnets": list(cluster.pods),
        "serviceSubnets": list(cluster.services),
    }
    return {
        "clusterName": cluster.name,
        "controlPlane": {"endpoint": cluster.endpoint},
        "network": {key: value for key, value in network.items() if value},
        "discovery": {"enabled": False},
    }


def _public(pem: bytes) -> Json:
    return {"crt": encoded(pem), "key": ""}


def patched(config: Json, patches: Iterable[str]) -> str:
    """The configuration in YAML after strategic patches: mappings are merged, others replaced."""
    documents: list[Json] = []
    for patch in patches:
        for document in talos_documents.parse(patch, "a strategic patch"):
            if "kind" in document:  # a document of its own, such as a HostnameConfig
                documents.append(document)
            else:
                config = _merged(config, document)
    return talos_documents.as_text([config, *documents])


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Json:
    result = dict(one)
    for key, value in other.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(old or {}, value) if both else value
    return result
