"""
To whom a machine belongs: its Machine, its Cluster, its ground; and which replicas are alike.

In flow objects from caches, out flow names. Cluster API writes owner references and labels, and a
person who writes a ProxmoxMachine by hand writes neither the one nor the other; then nothing is
known, and nothing is done.
"""

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, CONTROL_PLANE_LABEL, DEPLOYMENT_NAME, SET_NAME
from moxwell.api.capi.shared import GROUP as CAPI
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.runtime.key import Key

KEEP = "moxwell.dev/keep"


def owner_key(obj: Object, kind: str) -> Key | None:
    """The owner of one kind of Cluster API, by owner reference."""
    for owner in obj.metadata.owner_references:
        if owner.kind == kind and owner.group == CAPI:
            return Key(obj.namespace, owner.name)
    return None


def cluster_key(obj: Object, machine: Machine | None = None) -> Key | None:
    """The Cluster of an object: by its Machine, its label or its owner."""
    name = machine.spec.cluster_name if machine else obj.metadata.labels.get(CLUSTER_NAME, "")
    return Key(obj.namespace, name) if name else owner_key(obj, "Cluster")


def ground_key(cluster: Cluster) -> Key | None:
    """The ProxmoxCluster that a Cluster names."""
    ref = cluster.spec.infrastructure_ref
    return Key(cluster.namespace, ref.name) if ref and ref.kind == "ProxmoxCluster" else None


def group_of(machine: ProxmoxMachine) -> str:
    """Replicas of the same thing: to be spread, and counted together."""
    labels = machine.metadata.labels
    cluster = labels.get(CLUSTER_NAME, "")
    if CONTROL_PLANE_LABEL in labels:
        return f"{machine.namespace}/{cluster}/control-plane"
    part = labels.get(DEPLOYMENT_NAME) or labels.get(SET_NAME) or "workers"
    return f"{machine.namespace}/{cluster}/{part}"


def is_kept(obj: Object) -> bool:
    """Did somebody ask that the guest outlives its object?"""
    return obj.metadata.annotations.get(KEEP, "").lower() == "true"
