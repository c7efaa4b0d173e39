"""
Talos machine configurations of workers. Pure.

A worker needs the endpoint and CA of its cluster and a bootstrap token for the kubelet. The CA
and token of ``machine`` are for the API of Talos: Talos control planes sign its certificates,
hosted ones do not, so ``talosctl`` does not reach such workers.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.bootstrap import talos_documents

Json = dict[str, Any]
KUBELET_IMAGE = "ghcr.io/siderolabs/kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class TalosCluster:
    """What the workers of a cluster share."""

    name: str
    endpoint: str  # https://host:port
    ca: bytes
    talos_ca: bytes  # of Talos' API
    talos_token: str = field(repr=False)
    pods: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    domain: str = ""


def worker_config(cluster: TalosCluster, version: str, token: str) -> Json:
    """The configuration of one worker; ``token`` is its bootstrap token."""
    network = {
        "dnsDomain": cluster.domain or "cluster.local",
        "podSubnets": list(cluster.pods),
        "serviceSubnets": list(cluster.services),
    }
    return {
        "version": "v1alpha1",
        "machine": {
            "type": "worker",
            "token": cluster.talos_token,
            "ca": _public(cluster.talos_ca),
            "kubelet": {
                "image": f"{KUBELET_IMAGE}:{version}",
                "extraArgs": {"cloud-provider": "external"},
                "defaultRuntimeSeccompProfileEnabled": True,
                "disableManifestsDirectory": True,
            },
            "features": {"rbac": True, "kubePrism": {"enabled": True, "port": 7445}},
        },
        "cluster": {
            "clusterName": cluster.name,
            "controlPlane": {"endpoint": cluster.endpoint},
            "network": {key: value for key, value in network.items() if value},
            "token": token,
            "ca": _public(cluster.ca),
            "discovery": {"enabled": False},
        },
    }


def _public(pem: bytes) -> Json:
    return {"crt": base64.b64encode(pem).decode(), "key": ""}


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
