"""
The next move and the status of a KubeadmConfig. Pure.

The data Secret is created once; until the machine has joined, its bootstrap token is kept valid.
The machine that runs ``kubeadm init`` needs no token and no control plane, only the certificates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.api.capi.bootstrap import (
    BootstrapInitialization,
    KubeadmConfig,
    KubeadmConfigStatus,
)
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.conditions import Condition
from moxwell.embedded.clusterapi.bootstrap_tokens import RENEW_SECONDS, RenewToken, renewal
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
POLL_SECONDS = 5.0


class KubeadmConfigReason(StrEnum):
    """Reasons of the Ready condition of a KubeadmConfig."""

    READY = "Ready"
    WAITING_FOR_MACHINE = "WaitingForMachine"
    WAITING_FOR_INFRASTRUCTURE = "WaitingForInfrastructure"
    WAITING_FOR_CONTROL_PLANE = "WaitingForControlPlane"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedKubeadmConfig:
    """What is known of the machine, its cluster and its data Secret."""

    now: datetime
    machine: Machine | None = None
    cluster: Cluster | None = None
    has_data_secret: bool = False
    token_secret: Json | None = field(default=None, repr=False)
    ca_secret: Json | None = field(default=None, repr=False)
    has_kubeconfig: bool = False
    contents: Mapping[str, str] = field(default_factory=dict, repr=False)  # of files, by path
    pki: Mapping[str, str] = field(default_factory=dict, repr=False)  # of a control plane machine


class KubeadmRole(StrEnum):
    """What kubeadm does on the machine."""

    INIT = "init"
    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


def role_of(config: KubeadmConfig) -> KubeadmRole:
    """The role by the configurations that the object has, as in Cluster API."""
    join, spec = config.spec.join_configuration, config.spec
    if join is None and not (spec.init_configuration is spec.cluster_configuration is None):
        return KubeadmRole.INIT
    if join is not None and join.control_plane is not None:
        return KubeadmRole.CONTROL_PLANE
    return KubeadmRole.WORKER


@dataclass(frozen=True, slots=True)
class CreateBootstrapData:
    """Create a bootstrap token in the tenant cluster and the data Secret that contains it."""

    tenant: Key
    config: KubeadmConfig = field(repr=False)
    cluster: Cluster = field(repr=False)
    ca_secret: Json = field(repr=False)
    contents: Mapping[str, str] = field(repr=False)
    now: datetime
    requeue_after: float = RENEW_SECONDS
    pki: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class CreateInitData:
    """Create the data Secret of the machine that creates the cluster."""

    config: KubeadmConfig = field(repr=False)
    cluster: Cluster = field(repr=False)
    version: str
    contents: Mapping[str, str] = field(repr=False)
    pki: Mapping[str, str] = field(repr=False)
    requeue_after: float = RENEW_SECONDS


KubeadmConfigMove = CreateBootstrapData | CreateInitData | RenewToken | Wait | Done


def next_move(config: KubeadmConfig, seen: ObservedKubeadmConfig) -> KubeadmConfigMove:
    """Create the bootstrap data when the cluster can be joined; then renew the token."""
    machine = seen.machine
    if machine is None:
        return _wait(KubeadmConfigReason.WAITING_FOR_MACHINE, "no Machine owns this object yet")
    tenant = Key(machine.namespace, machine.spec.cluster_name)
    if not seen.has_data_secret:
        return _create(config, seen, tenant)
    return renewal(machine, seen.token_secret, seen.now)


def _create(config: KubeadmConfig, seen: ObservedKubeadmConfig, tenant: Key) -> KubeadmConfigMove:
    cluster, name = seen.cluster, tenant.name
    if cluster is None or not cluster.status.initialization.infrastructure_provisioned:
        reason = KubeadmConfigReason.WAITING_FOR_INFRASTRUCTURE
        return _wait(reason, f"the infrastructure of cluster {name} is not provisioned yet")
    reason, role = KubeadmConfigReason.WAITING_FOR_CONTROL_PLANE, role_of(config)
    if role is not KubeadmRole.WORKER and not seen.pki:
        return _wait(reason, f"cluster {name} does not have all Secrets with certificates yet")
    if role is KubeadmRole.INIT:
        version = seen.machine.spec.version if seen.machine else ""
        return CreateInitData(config, cluster, version, seen.contents, seen.pki)
    if not cluster.status.initialization.control_plane_initialized:
        return _wait(reason, f"the control plane of cluster {name} is not initialized yet")
    if seen.ca_secret is None or not seen.has_kubeconfig:
        return _wait(reason, f"cluster {name} has no kubeconfig or CA Secret yet")
    return CreateBootstrapData(
        tenant, config, cluster, seen.ca_secret, seen.contents, seen.now, pki=seen.pki
    )


def _wait(reason: KubeadmConfigReason, message: str) -> Wait:
    return Wait(reason, message, POLL_SECONDS)


def describe(config: KubeadmConfig, move: KubeadmConfigMove) -> KubeadmConfigStatus:
    """Ready as soon as the data Secret, which has the name of the config, exists."""
    if isinstance(move, Wait):
        waiting = Condition(type="Ready", status="False", reason=move.reason, message=move.message)
        return KubeadmConfigStatus(conditions=(waiting,))
    ready = Condition(type="Ready", status="True", reason=KubeadmConfigReason.READY)
    return KubeadmConfigStatus(
        conditions=(ready,),
        initialization=BootstrapInitialization(data_secret_created=True),
        data_secret_name=config.name,
        observed_generation=config.metadata.generation,
    )
