"""
Names, labels, owner references and hashes of the objects of a tenant cluster. Pure.

A hash is computed over canonical JSON without empty values, so equal content has an equal hash.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import owner_reference
from moxwell.errors import Invalid

Json = dict[str, Any]
CORE = "cluster.x-k8s.io/v1beta2"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
GROUP_LABEL = "moxwell.dev/node-group"
MANAGED = {"app.kubernetes.io/managed-by": "moxwell"}


def short_hash(value: Any) -> str:
    """Eight characters that depend on the content of a value, not on how it is written."""
    text = json.dumps(_without_empty(value), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _without_empty(value: Any) -> Any:
    """Without None, empty maps and empty lists."""
    if isinstance(value, Mapping):
        inner = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, {}, [])}
    return [_without_empty(item) for item in value] if isinstance(value, list | tuple) else value


def seconds(text: str) -> int:
    """The seconds of a Go duration such as ``1h30m`` or ``90s``."""
    units = {"h": 3600, "m": 60, "s": 1}
    total, number = 0, ""
    for char in text:
        if char.isdigit():
            number += char
        elif char in units and number:
            total, number = total + int(number) * units[char], ""
        else:
            raise Invalid(f"{text!r} is not a duration: write it like 20m, 90s or 1h30m")
    if number:
        raise Invalid(f"{text!r} is not a duration: write it like 20m, 90s or 1h30m")
    return total


def ref(group: str, kind: str, name: str) -> Json:
    return {"apiGroup": group, "kind": kind, "name": name}


def new_object(app: Kubernetes, api_version: str, kind: str, name: str, spec: Json) -> Json:
    meta = {"name": name, "namespace": app.namespace, "labels": {CLUSTER_NAME: app.name, **MANAGED}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def owned(app: Kubernetes, obj: Json) -> Json:
    """With an owner reference to the app; the controlling owner is Cluster API's to set."""
    reference = msgspec.to_builtins(owner_reference(app, controller=False, block=False))
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}
