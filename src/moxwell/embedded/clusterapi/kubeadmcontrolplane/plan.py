"""
The next move and the status of a KubeadmControlPlane. Pure.

The first Machine runs ``kubeadm init``. The others join one after the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.bootstrap import JoinConfiguration, KubeadmConfig, KubeadmConfigSpec
from moxwell.api.capi.controlplane import (
    ControlPlaneInitialization,
    ControlPlaneStatus,
    KubeadmControlPlane,
)
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, CONTROL_PLANE_LABEL
from moxwell.api.conditions import Condition
from moxwell.api.kinds import owner_reference
from moxwell.api.meta import ObjectMeta
from moxwell.embedded.clusterapi import control_plane_machines
from moxwell.embedded.clusterapi.control_plane_machines import (
    MachineDesign,
    deletion,
    has_joined,
    has_node,
)
from moxwell.embedded.clusterapi.kubeadm.certificates import PKI, secret_names
from moxwell.embedded.clusterapi.machines import is_ready
from moxwell.embedded.clusterapi.machineset.plan import MissingPart, new_part
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Write, Writes

Json = dict[str, Any]
POLL_SECONDS = 5.0
RENEW_SECONDS = 12 * 3600.0


class KubeadmControlPlaneReason(StrEnum):
    """Reasons of ``Available`` and of the moves of a KubeadmControlPlane."""

    AVAILABLE = "Available"
    NOT_AVAILABLE = "NotAvailable"
    WAITING_FOR_CLUSTER = "WaitingForCluster"
    WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
    WAITING_FOR_MACHINE = "WaitingForMachine"
    SCALE_DOWN_NOT_SUPPORTED = "ScaleDownNotSupported"
    DELETING = "WaitingForMachinesDeletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedKubeadmControlPlane:
    """``secrets`` are found Secrets by purpose; ``missing`` are objects that Machines name."""

    now: datetime
    cluster: Cluster | None = None
    secrets: Mapping[str, Json] = field(default_factory=dict, repr=False)
    kubeconfig_due: bool = False
    machines: tuple[Machine, ...] = ()
    missing: tuple[MissingPart, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateCertificates:
    """Create the Secrets with the certificates that do not exist yet."""

    owner: KubeadmControlPlane = field(repr=False)
    cluster: str
    purposes: tuple[str, ...]
    now: datetime


@dataclass(frozen=True, slots=True)
class WriteKubeconfig:
    """Create or renew the Secret with the administrator's kubeconfig."""

    owner: KubeadmControlPlane = field(repr=False)
    cluster: Cluster = field(repr=False)
    ca_secret: Json = field(repr=False)
    now: datetime


KubeadmControlPlaneMove = CreateCertificates | WriteKubeconfig | Writes | Wait | Done


def next_move(
    owner: KubeadmControlPlane, seen: ObservedKubeadmControlPlane
) -> KubeadmControlPlaneMove:
    """Certificates, kubeconfig, then one Machine after the other."""
    if owner.deleting:
        return deletion(seen.machines, KubeadmControlPlaneReason.DELETING)
    cluster = seen.cluster
    if cluster is None:
        reason = KubeadmControlPlaneReason.WAITING_FOR_CLUSTER
        return Wait(reason, "no Cluster owns this control plane yet", POLL_SECONDS)
    missing = tuple(p for p in secret_names(cluster.name) if p not in seen.secrets)
    if missing:
        return CreateCertificates(owner, cluster.name, missing, seen.now)
    provisioned = cluster.status.initialization.infrastructure_provisioned
    if not provisioned or not cluster.spec.control_plane_endpoint:
        reason = KubeadmControlPlaneReason.WAITING_FOR_INFRASTRUCTURE
        return Wait(reason, "the cluster has no infrastructure or no endpoint yet", POLL_SECONDS)
    if seen.kubeconfig_due:
        return WriteKubeconfig(owner, cluster, seen.secrets["ca"], seen.now)
    return _machines(owner, cluster, seen)


def _machines(
    owner: KubeadmControlPlane, cluster: Cluster, seen: ObservedKubeadmControlPlane
) -> KubeadmControlPlaneMove:
    first = not any(map(has_node, seen.machines))
    parts: tuple[Write, ...] = tuple(_new_part(owner, part, first) for part in seen.missing)
    if parts:
        return Writes(parts)
    wanted = desired_replicas(owner)
    if len(seen.machines) > wanted:
        message = f"{len(seen.machines)} machines exist; members of etcd are not removed"
        return Wait(KubeadmControlPlaneReason.SCALE_DOWN_NOT_SUPPORTED, message, RENEW_SECONDS)
    if waiting := [m.name for m in seen.machines if not has_joined(m)]:
        message = f"waiting for machine {', '.join(waiting)}"
        return Wait(KubeadmControlPlaneReason.WAITING_FOR_MACHINE, message, POLL_SECONDS)
    if len(seen.machines) < wanted:
        return Writes((Create(new_machine(owner, cluster, seen.machines)),))
    return Done(RENEW_SECONDS)


def desired_replicas(owner: KubeadmControlPlane) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def new_machine(
    owner: KubeadmControlPlane, cluster: Cluster, machines: Sequence[Machine]
) -> Machine:
    """The next Machine."""
    template = owner.spec.machine_template
    design = MachineDesign(
        version=owner.spec.version,
        template=template.spec.infrastructure_ref,
        bootstrap=KubeadmConfig.resource,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        deletion=template.spec.deletion,
    )
    return control_plane_machines.new_machine(owner, cluster, machines, design)


def _new_part(owner: KubeadmControlPlane, part: MissingPart, first: bool) -> Create:
    """The infrastructure object from its template, or the KubeadmConfig from this object."""
    if part.resource != KubeadmConfig.resource:
        return new_part(part)
    machine = part.machine
    meta = ObjectMeta(
        name=part.name,
        namespace=machine.namespace,
        labels=machine.metadata.labels,
        owner_references=(owner_reference(machine),),
    )
    config = KubeadmConfig(metadata=meta, spec=config_spec(owner, first=first))
    return Create(_without_empty(config), KubeadmConfig.resource)


def _without_empty(config: KubeadmConfig) -> Json:
    """The object without empty parts of its join configuration, which upstream's CRD refuses."""
    resource, tree = KubeadmConfig.resource, msgspec.to_builtins(config)
    join: Json = tree["spec"].get("joinConfiguration") or {}
    for part in ("discovery", "nodeRegistration"):
        if join.get(part) == {}:
            del join[part]
    kept = {"metadata": tree["metadata"], "spec": tree["spec"]}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **kept}


def config_spec(owner: KubeadmControlPlane, *, first: bool) -> KubeadmConfigSpec:
    """The bootstrap configuration of the machine that creates the cluster, or of one that joins."""
    spec = owner.spec.kubeadm_config_spec
    if first:
        given = spec.init_configuration or spec.cluster_configuration
        cluster = spec.cluster_configuration or (None if given else {"certificatesDir": PKI})
        return msgspec.structs.replace(
            spec, join_configuration=None, cluster_configuration=cluster
        )  # upstream's CRD refuses empty configurations
    join = spec.join_configuration or JoinConfiguration()
    joining = msgspec.structs.replace(join, control_plane=join.control_plane or {})
    return msgspec.structs.replace(
        spec, join_configuration=joining, init_configuration=None, cluster_configuration=None
    )


def describe(
    owner: KubeadmControlPlane, seen: ObservedKubeadmControlPlane, move: KubeadmControlPlaneMove
) -> ControlPlaneStatus:
    """The status, from that of the Machines."""
    initialized = any(has_node(m) for m in seen.machines)
    ready = sum(is_ready(m) and not m.deleting for m in seen.machines)
    reason, message = KubeadmControlPlaneReason.AVAILABLE, ""
    if not ready:
        reason = KubeadmControlPlaneReason.NOT_AVAILABLE
    if isinstance(move, Wait):
        reason, message = KubeadmControlPlaneReason(move.reason), move.message
    available = Condition(
        type="Available", status="True" if ready else "False", reason=reason, message=message
    )
    current = sum(m.spec.version == owner.spec.version for m in seen.machines)
    return ControlPlaneStatus(
        conditions=(available,),
        initialization=ControlPlaneInitialization(control_plane_initialized=initialized),
        ready=ready > 0,
        replicas=len(seen.machines),
        ready_replicas=ready,
        available_replicas=ready,
        up_to_date_replicas=current,
        selector=f"{CLUSTER_NAME}={seen.cluster.name},{CONTROL_PLANE_LABEL}="
        if seen.cluster
        else "",
        version=owner.spec.version if seen.machines else "",
        observed_generation=owner.metadata.generation,
    )
