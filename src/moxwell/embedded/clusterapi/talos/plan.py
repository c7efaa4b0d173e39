"""
The next move and the status of a TalosConfig. Pure.

The data Secret is created once. A worker of a hosted control plane gets a bootstrap token of its
own, which is kept valid until the machine has joined; where the control plane runs Talos, all nodes
have the token of its secrets.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from moxwell.api.capi.bootstrap import BootstrapInitialization
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.talos import TalosConfig, TalosConfigStatus
from moxwell.api.conditions import LegacyCondition
from moxwell.bootstrap.talos_secrets import TalosSecrets
from moxwell.embedded.clusterapi.bootstrap_tokens import RENEW_SECONDS, RenewToken, renewal
from moxwell.runtime.move import Done, Wait

Json = dict[str, Any]
POLL_SECONDS = 5.0


class TalosConfigReason(StrEnum):
    """Why a TalosConfig has no bootstrap data yet."""

    WAITING_FOR_MACHINE = "WaitingForMachine"
    WAITING_FOR_CONTROL_PLANE = "WaitingForControlPlane"
    UNSUPPORTED = "Unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTalosConfig:
    """What is known of the machine, its cluster and the Secrets."""

    now: datetime
    machine: Machine | None = None
    cluster: Cluster | None = None
    has_data_secret: bool = False
    token_secret: Json | None = field(default=None, repr=False)
    ca_secret: Json | None = field(default=None, repr=False)
    talos_secret: Json | None = field(default=None, repr=False)
    secrets: TalosSecrets | None = None  # of Talos control planes
    reachable: bool = False


@dataclass(frozen=True, slots=True)
class CreateTalosSecret:
    """Create the CA and the token of Talos' API, which all workers of the cluster share."""

    cluster: Cluster
    now: datetime
    requeue_after: float = 0.0


@dataclass(frozen=True, slots=True)
class CreateTalosData:
    """Create a bootstrap token in the cluster and the data Secret that contains it."""

    config: TalosConfig = field(repr=False)
    cluster: Cluster = field(repr=False)
    machine: Machine = field(repr=False)
    ca_secret: Json = field(repr=False)
    talos_secret: Json = field(repr=False)
    now: datetime
    requeue_after: float = RENEW_SECONDS


@dataclass(frozen=True, slots=True)
class CreateFromSecrets:
    """Create the data Secret of a node whose control plane runs Talos."""

    config: TalosConfig = field(repr=False)
    cluster: Cluster = field(repr=False)
    machine: Machine = field(repr=False)
    secrets: TalosSecrets
    requeue_after: float = RENEW_SECONDS


TalosConfigMove = CreateTalosSecret | CreateTalosData | CreateFromSecrets | RenewToken | Wait | Done


def next_move(config: TalosConfig, seen: ObservedTalosConfig) -> TalosConfigMove:
    """Create the bootstrap data when the cluster can be joined; then renew the token."""
    machine, cluster = seen.machine, seen.cluster
    if refused := refusal(config):
        return _wait(TalosConfigReason.UNSUPPORTED, refused)
    if machine is None:
        return _wait(TalosConfigReason.WAITING_FOR_MACHINE, "no Machine owns this object yet")
    if seen.has_data_secret:
        return renewal(machine, seen.token_secret, seen.now)
    if cluster is not None and (seen.secrets is not None or is_control_plane(config)):
        return _from_secrets(config, cluster, machine, seen.secrets)
    ready = cluster is not None and cluster.status.initialization.control_plane_initialized
    if cluster is None or not ready or seen.ca_secret is None or not seen.reachable:
        text = f"the control plane of cluster {machine.spec.cluster_name} is not initialized yet"
        return _wait(TalosConfigReason.WAITING_FOR_CONTROL_PLANE, text)
    if seen.talos_secret is None:
        return CreateTalosSecret(cluster, seen.now)
    return CreateTalosData(config, cluster, machine, seen.ca_secret, seen.talos_secret, seen.now)


def _from_secrets(
    config: TalosConfig, cluster: Cluster, machine: Machine, secrets: TalosSecrets | None
) -> TalosConfigMove:
    reason, name = TalosConfigReason.WAITING_FOR_CONTROL_PLANE, cluster.name
    if secrets is None:
        return _wait(reason, f"the control plane of cluster {name} has not made its secrets yet")
    if not cluster.spec.control_plane_endpoint:
        return _wait(reason, f"cluster {name} has no endpoint yet")
    return CreateFromSecrets(config, cluster, machine, secrets)


def is_control_plane(config: TalosConfig) -> bool:
    """Whether the machine is a control plane."""
    return config.spec.generate_type == "controlplane"


def refusal(config: TalosConfig) -> str:
    """Why the embedded provider cannot make this configuration; empty if it can."""
    spec = config.spec
    if spec.generate_type not in ("worker", "controlplane", "none"):
        return (
            f"generateType {spec.generate_type} is not supported without the Talos provider of "
            "Cluster API; use worker, controlplane, or none with data"
        )
    if spec.config_patches:
        return "configPatches are not supported here; use strategicPatches"
    if spec.generate_type == "none" and not spec.data:
        return "generateType none needs the whole configuration in data"
    return ""


def _wait(reason: TalosConfigReason, message: str) -> Wait:
    return Wait(reason, message, POLL_SECONDS)


def describe(
    config: TalosConfig, seen: ObservedTalosConfig, move: TalosConfigMove
) -> TalosConfigStatus:
    """Ready as soon as the data Secret, which has the name of the config, exists."""
    if isinstance(move, Wait | CreateTalosSecret):
        reason, message = ("", "") if not isinstance(move, Wait) else (move.reason, move.message)
        waiting = LegacyCondition(type="Ready", status="False", reason=reason, message=message)
        return TalosConfigStatus(conditions=(waiting,))
    return TalosConfigStatus(
        ready=True,
        initialization=BootstrapInitialization(data_secret_created=True),
        data_secret_name=config.name,
        conditions=(LegacyCondition(type="Ready", status="True"),),
        observed_generation=config.metadata.generation,
    )
