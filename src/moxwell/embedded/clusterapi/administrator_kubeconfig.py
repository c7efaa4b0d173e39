"""The Secret with the administrator's kubeconfig of a cluster whose CA key is in a Secret. Pure."""

import base64
from datetime import datetime
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.kinds import Object, owner_reference
from moxwell.embedded.clusterapi.kubeadm.certificates import pair_of
from moxwell.embedded.ports import https_url
from moxwell.kube import kubeconfig_writer
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig

Json = dict[str, Any]
ADMINISTRATOR = CertificateConfig(common_name="kubernetes-admin", organizations=("system:masters",))


def kubeconfig_name(cluster: str) -> str:
    return f"{cluster}-kubeconfig"


def is_due(secret: Json | None, cluster: Cluster, ca_secret: Json, now: datetime) -> bool:
    """Whether the kubeconfig is missing, has another endpoint, or expires soon."""
    text = base64.b64decode(((secret or {}).get("data") or {}).get("value", "")).decode()
    client = kubeconfig_writer.client_certificate(text)
    if client is None or kubeconfig_writer.server(text) != _url(cluster):
        return True
    return bool(certificates.renewal_reason(client, ADMINISTRATOR, pair_of(ca_secret), now))


def kubeconfig_secret(owner: Object, cluster: Cluster, ca_secret: Json, now: datetime) -> Json:
    """A new kubeconfig; ``owner`` is the control plane."""
    ca = pair_of(ca_secret)
    client = certificates.issue(ADMINISTRATOR, ca, now)
    text = kubeconfig_writer.render(_url(cluster), ca.certificate, client, cluster.name)
    meta: Json = {
        "name": kubeconfig_name(cluster.name),
        "namespace": cluster.namespace,
        "labels": {CLUSTER_NAME: cluster.name},
        "ownerReferences": [msgspec.to_builtins(owner_reference(owner))],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
    return head | {"data": {"value": base64.b64encode(text.encode()).decode()}}


def _url(cluster: Cluster) -> str:
    endpoint = cluster.spec.control_plane_endpoint
    return https_url(endpoint.host, endpoint.port)
