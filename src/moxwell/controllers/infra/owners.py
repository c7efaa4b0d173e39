"""
The Machine, Cluster and ProxmoxCluster that a ProxmoxMachine belongs to, and its replica group.

Names come from owner references and labels that Cluster API writes. An object without them is left
alone.
"""

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, CONTROL_PLANE_LABEL, DEPLOYMENT_NAME, SET_NAME
from moxwell.api.capi.shared import GROUP as CAPI
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.runtime.key import Key

KEEP = "moxwell.dev/keep"


def owner_key(obj: Object, kind: str) -> Key | None:
    """The owner of a Cluster API kind, by owner reference."""
    for owner in obj.metadata.owner_references:
        if owner.kind == kind and owner.group == CAPI:
            return Key(obj.namespace, owner.name)
    return None


def cluster_key(obj: Object, machine: Machine | None = None) -> Key | None:
    """The Cluster of an object: by its Machine, its label or its owner reference."""
    name = machine.spec.cluster_name if machine else obj.metadata.labels.get(CLUSTER_NAME, "")
    return Key(obj.namespace, name) if name else owner_key(obj, "Cluster")


def proxmox_cluster_key(cluster: Cluster) -> Key | None:
    """The ProxmoxCluster that a Cluster references."""
    ref = cluster.spec.infrastructure_ref
    return Key(cluster.namespace, ref.name) if ref and ref.kind == "ProxmoxCluster" else None


def replica_group(machine: ProxmoxMachine) -> str:
    """The name shared by replicas that placement spreads over hosts."""
    labels = machine.metadata.labels
    cluster = labels.get(CLUSTER_NAME, "")
    if CONTROL_PLANE_LABEL in labels:
        return f"{machine.namespace}/{cluster}/control-plane"
    part = labels.get(DEPLOYMENT_NAME) or labels.get(SET_NAME) or "workers"
    return f"{machine.namespace}/{cluster}/{part}"


def is_replaced_by(old: ProxmoxMachine, new: ProxmoxMachine) -> bool:
    """Whether a rollout replaces one replica by the other: their MachineSets differ."""
    sets = [machine.metadata.labels.get(SET_NAME, "") for machine in (old, new)]
    return all(sets) and sets[0] != sets[1]


def keeps_guest(obj: Object) -> bool:
    """Whether an annotation asks to keep the guest when the object is deleted."""
    return obj.metadata.annotations.get(KEEP, "").lower() == "true"
