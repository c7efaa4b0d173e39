"""The write that makes a Secret as desired."""

from typing import Any

from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.runtime.writes import Create, Merge

Json = dict[str, Any]


def secret_write(desired: Json, found: Json | None) -> Create | Merge | None:
    """
    Create or update a Secret; None if its data and annotations are as desired.

    Other keys are kept: Kamaji's CA Secret and that of Cluster API may be the same object.
    """
    meta = desired["metadata"]
    if found is None:
        return Create(desired, SECRETS)
    annotations = meta.get("annotations") or {}
    change: Json = {}
    if not desired["data"].items() <= (found.get("data") or {}).items():
        change["data"] = desired["data"]
    if not annotations.items() <= (found["metadata"].get("annotations") or {}).items():
        change["metadata"] = {"annotations": annotations}
    return Merge(SECRETS, meta["name"], change, meta["namespace"]) if change else None
