"""
The certificates of a cluster whose control plane runs on machines, as Secrets of Cluster API.

``<cluster>-ca``, ``-etcd``, ``-proxy`` and ``-sa`` have the keys ``tls.crt`` and ``tls.key``. Every
control plane machine gets them as files, so that kubeadm uses them instead of new ones.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.pki import certificates
from moxwell.pki.certificates import KeyPair

Json = dict[str, Any]
PKI = "/etc/kubernetes/pki"
FILES: Mapping[str, tuple[str, str]] = {  # suffix of the Secret -> certificate and key file
    "ca": ("ca.crt", "ca.key"),
    "etcd": ("etcd/ca.crt", "etcd/ca.key"),
    "proxy": ("front-proxy-ca.crt", "front-proxy-ca.key"),
    "sa": ("sa.pub", "sa.key"),
}
COMMON_NAMES = {"ca": "kubernetes", "etcd": "etcd-ca", "proxy": "front-proxy-ca"}


def secret_names(cluster: str) -> dict[str, str]:
    """The names of the Secrets, by purpose."""
    return {purpose: f"{cluster}-{purpose}" for purpose in FILES}


def new_pair(purpose: str, now: datetime) -> KeyPair:
    """A new CA, or the key pair of service account tokens."""
    if purpose == "sa":
        return certificates.create_token_keys()
    return certificates.create_ca(COMMON_NAMES[purpose], now)


def certificate_secret(
    cluster: str, namespace: str, purpose: str, pair: KeyPair, owner: Json
) -> Json:
    """The Secret of a key pair."""
    meta = {
        "name": f"{cluster}-{purpose}",
        "namespace": namespace,
        "labels": {CLUSTER_NAME: cluster},
        "ownerReferences": [owner],
    }
    data = {"tls.crt": _encoded(pair.certificate), "tls.key": _encoded(pair.key)}
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
    return head | {"data": data}


def pair_of(secret: Json) -> KeyPair:
    """The key pair of a Secret."""
    data = secret["data"]
    return KeyPair(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]))


def pki_files(secrets: Mapping[str, Json]) -> dict[str, str]:
    """The files of a control plane machine by path; ``secrets`` are by purpose."""
    files = {}
    for purpose, (certificate, key) in FILES.items():
        pair = pair_of(secrets[purpose])
        files[f"{PKI}/{certificate}"] = pair.certificate.decode()
        files[f"{PKI}/{key}"] = pair.key.decode()
    return files


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
