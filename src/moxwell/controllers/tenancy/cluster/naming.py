"""
The forms that the objects of a tenant cluster share: names, references, hashes.

A hash is over what a value means (canonical JSON, without what says nothing), never over its text.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import own
from moxwell.errors import Invalid

Json = dict[str, Any]
CORE = "cluster.x-k8s.io/v1beta2"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
GROUP_LABEL = "moxwell.dev/node-group"
MANAGED = {"app.kubernetes.io/managed-by": "moxwell"}


def short_hash(value: Any) -> str:
    """Eight characters for a meaning: equal values, equal names, however they are written."""
    text = json.dumps(_bare(value), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _bare(value: Any) -> Any:
    """Without what says nothing: None, and empty maps and lists."""
    if isinstance(value, Mapping):
        inner = {key: _bare(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, {}, [])}
    return [_bare(item) for item in value] if isinstance(value, list | tuple) else value


def seconds(text: str) -> int:
    """A duration as Go writes it: ``1h30m``, ``90s``."""
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
    """Owned by the app, but not controlled: Cluster API sets the controlling owner itself."""
    reference = msgspec.to_builtins(own(app, controller=False, block=False))
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}
