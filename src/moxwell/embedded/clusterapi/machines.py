"""Selects Machines by cluster, owner and readiness, for several Cluster API controllers."""

from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.runtime.cache import Cache
from moxwell.runtime.index import by_field
from moxwell.runtime.key import Key

BY_CLUSTER = "embedded.cluster_name"


def is_ready(machine: Machine) -> bool:
    """Whether the Ready condition of a Machine is true."""
    return any(c.type == "Ready" and c.status == "True" for c in machine.status.conditions)


def cached_machines(machines: Cache[Any], cluster: str, namespace: str) -> list[Machine]:
    """The Machines of a cluster by ``spec.clusterName``; a hand-written one may have no label."""
    machines.add_index(BY_CLUSTER, by_field("spec.clusterName"))
    return [m for m in machines.by(BY_CLUSTER, cluster) if m.namespace == namespace]


def owner_machine(obj: Any) -> list[Key]:
    """The key of the Machine that owns a provider's object."""
    meta = obj["metadata"] if isinstance(obj, dict) else None
    if meta is None:
        owner = obj.metadata.controller
        owned = owner is not None and owner.kind == "Machine"
        return [Key(obj.namespace, owner.name)] if owned else []
    owners = meta.get("ownerReferences") or ()
    return [Key(meta["namespace"], o["name"]) for o in owners if o["kind"] == "Machine"]
