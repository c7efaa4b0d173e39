"""
The Secrets of a cluster with Talos control planes. Pure.

``<cluster>-talos`` has everything; ``<cluster>-ca``, ``<cluster>-kubeconfig`` and
``<cluster>-talosconfig`` follow from it. Names and keys are those of Cluster API's providers.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import yaml

from moxwell import yaml_documents
from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.kinds import Object, owner_reference
from moxwell.bootstrap import talos_secrets
from moxwell.bootstrap.talos_secrets import TalosSecrets
from moxwell.embedded.clusterapi.administrator_kubeconfig import (
    is_due,
    kubeconfig_name,
    kubeconfig_secret,
)
from moxwell.embedded.clusterapi.kubeadm.certificates import certificate_secret
from moxwell.embedded.clusterapi.talos.controller import BUNDLE, secret_name
from moxwell.pki import certificates

Json = dict[str, Any]
TALOSCONFIG = "talosconfig"


def derived_names(cluster: str) -> tuple[str, ...]:
    """The Secrets that follow from that with everything."""
    return f"{cluster}-ca", kubeconfig_name(cluster), f"{cluster}-{TALOSCONFIG}"


def bundle_secret(owner: Object, cluster: Cluster, secrets: TalosSecrets) -> Json:
    """The Secret with everything."""
    return _secret(
        owner, cluster, secret_name(cluster.name), BUNDLE, talos_secrets.as_text(secrets)
    )


def due_secrets(
    owner: Object,
    cluster: Cluster,
    secrets: TalosSecrets,
    found: Mapping[str, Json],
    endpoints: tuple[str, ...],
    now: datetime,
) -> tuple[Json, ...]:
    """The Secrets to write: those that are missing, expire soon, or have other endpoints."""
    own, (ca_name, kubeconfig, talosconfig) = owner_ref(owner), derived_names(cluster.name)
    ca = certificate_secret(cluster.name, cluster.namespace, "ca", secrets.kubernetes, own)
    due = [] if ca_name in found else [ca]
    if is_due(found.get(kubeconfig), cluster, ca, now):
        due.append(kubeconfig_secret(owner, cluster, ca, now))
    if _is_due(found.get(talosconfig), secrets, endpoints, now):
        client = talos_secrets.administrator(secrets, now)
        text = talos_secrets.client_config(secrets, cluster.name, endpoints, client)
        due.append(_secret(owner, cluster, talosconfig, TALOSCONFIG, text))
    return tuple(due)


def _is_due(
    secret: Json | None, secrets: TalosSecrets, endpoints: tuple[str, ...], now: datetime
) -> bool:
    """Whether the talosconfig is missing, has other endpoints, or expires soon."""
    text = ((secret or {}).get("data") or {}).get(TALOSCONFIG, "")
    try:
        tree = yaml_documents.load(base64.b64decode(text))
        context = tree["contexts"][tree["context"]]
        client, known = base64.b64decode(context["crt"]), tuple(context["endpoints"])
        wanted = talos_secrets.ADMINISTRATOR
        reason = certificates.renewal_reason(client, wanted, secrets.talos, now)
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return True
    return known != endpoints or bool(reason)


def owner_ref(owner: Object) -> Json:
    found: Json = msgspec.to_builtins(owner_reference(owner))
    return found


def _secret(owner: Object, cluster: Cluster, name: str, key: str, text: str) -> Json:
    meta = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": {CLUSTER_NAME: cluster.name},
        "ownerReferences": [owner_ref(owner)],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
    return head | {"data": {key: base64.b64encode(text.encode()).decode()}}
