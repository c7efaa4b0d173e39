"""The Talos bootstrap provider of Cluster API: machine configurations of nodes."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.capi.talos import TalosConfig, TalosConfigStatus
from moxwell.api.kinds import owner_reference
from moxwell.bootstrap import talos_config, talos_secrets
from moxwell.bootstrap.talos_config import TalosCluster, TalosJoin
from moxwell.bootstrap.talos_secrets import TalosSecrets
from moxwell.clock import Clock
from moxwell.embedded.clusterapi import bootstrap_tokens
from moxwell.embedded.clusterapi.machines import owner_machine
from moxwell.embedded.clusterapi.talos.plan import (
    CreateFromSecrets,
    CreateTalosData,
    CreateTalosSecret,
    ObservedTalosConfig,
    TalosConfigMove,
    describe,
    is_control_plane,
    next_move,
)
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.embedded.ports import host_port
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pki.certificates import create_ca
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Create

Json = dict[str, Any]
TALOS, BUNDLE = "talos", "bundle"


def _config_of(machine: Machine) -> list[Key]:
    ref = machine.spec.bootstrap.config_ref
    return [Key(machine.namespace, ref.name)] if ref and ref.kind == "TalosConfig" else []


class TalosConfigController(
    Reconciler[TalosConfig, ObservedTalosConfig, TalosConfigMove, TalosConfigStatus]
):
    """Reconciles TalosConfigs."""

    kind = TalosConfig
    watches: Sequence[Watch] = (Watch(Machine, _config_of),)

    def __init__(self, kube: Kube, tenants: TenantClients, clock: Clock) -> None:
        self._kube, self._tenants, self._clock = kube, tenants, clock

    async def see(self, config: TalosConfig, reader: Reader) -> ObservedTalosConfig:
        now, keys = self._clock.now(), owner_machine(config)
        machine = await reader.find(Machine, keys[0].name, keys[0].namespace) if keys else None
        if machine is None:
            return ObservedTalosConfig(now=now)
        name, namespace = machine.spec.cluster_name, machine.namespace
        data = await reader.find(SECRETS, config.name, namespace)
        if data is not None:
            token = await bootstrap_tokens.find_token(self._tenants, machine, data)
            return ObservedTalosConfig(
                now=now, machine=machine, has_data_secret=True, token_secret=token
            )
        talos = await reader.find(SECRETS, secret_name(name), namespace)
        return ObservedTalosConfig(
            now=now,
            machine=machine,
            cluster=await reader.find(Cluster, name, namespace),
            ca_secret=await reader.find(SECRETS, f"{name}-ca", namespace),
            talos_secret=talos,
            secrets=talos_secrets_of(talos),
            reachable=await self._tenants.find(Key(namespace, name)) is not None,
        )

    def plan(self, config: TalosConfig, seen: ObservedTalosConfig) -> TalosConfigMove:
        return next_move(config, seen)

    async def act(self, move: TalosConfigMove) -> Any:
        if isinstance(move, CreateTalosSecret):
            await Create(_talos_secret(move), SECRETS).perform(self._kube)
        elif isinstance(move, CreateTalosData):
            await self._create(move)
        elif isinstance(move, CreateFromSecrets):
            data = configuration_from_secrets(move)
            secret = bootstrap_tokens.data_secret(move.config, move.cluster.name, data, kind=TALOS)
            await Create(secret, SECRETS).perform(self._kube)
        elif isinstance(move, bootstrap_tokens.RenewToken):
            await move.write().perform(await self._tenants.get(move.tenant))

    async def _create(self, move: CreateTalosData) -> None:
        """The token first: a data Secret with a token that does not exist would be final."""
        token, config = bootstrap_tokens.new_token(), move.config
        tenant = await self._tenants.get(Key(move.cluster.namespace, move.cluster.name))
        await tenant.create(bootstrap_tokens.token_secret(token, move.now, config), SECRETS)
        data = machine_configuration(move, token)
        secret = bootstrap_tokens.data_secret(config, move.cluster.name, data, token, kind=TALOS)
        await Create(secret, SECRETS).perform(self._kube)

    def describe(
        self, config: TalosConfig, seen: ObservedTalosConfig, move: TalosConfigMove
    ) -> TalosConfigStatus:
        return describe(config, seen, move)


def machine_configuration(move: CreateTalosData, token: str) -> str:
    """The configuration of a worker of a hosted control plane, in YAML."""
    spec, talos = move.config.spec, move.talos_secret["data"]
    if spec.generate_type == "none":
        return spec.data
    join = TalosJoin(
        ca=base64.b64decode(move.ca_secret["data"]["tls.crt"]),
        token=token,
        talos_ca=base64.b64decode(talos["tls.crt"]),
        talos_token=base64.b64decode(talos["token"]).decode(),
    )
    version = move.machine.spec.version
    worker = talos_config.worker_config(talos_cluster(move.cluster), join, version)
    return talos_config.patched(worker, spec.strategic_patches)


def configuration_from_secrets(move: CreateFromSecrets) -> str:
    """The configuration of a node whose control plane runs Talos, in YAML."""
    spec, secrets, version = move.config.spec, move.secrets, move.machine.spec.version
    if spec.generate_type == "none":
        return spec.data
    cluster = talos_cluster(move.cluster)
    if is_control_plane(move.config):
        made = talos_config.control_plane_config(cluster, secrets, version)
    else:
        join = TalosJoin(
            ca=secrets.kubernetes.certificate,
            token=secrets.bootstrap_token,
            talos_ca=secrets.talos.certificate,
            talos_token=secrets.trustd_token,
        )
        made = talos_config.worker_config(cluster, join, version)
    return talos_config.patched(made, spec.strategic_patches)


def talos_cluster(cluster: Cluster) -> TalosCluster:
    """What the machine configurations of a cluster share."""
    endpoint, network = cluster.spec.control_plane_endpoint, cluster.spec.cluster_network
    return TalosCluster(
        name=cluster.name,
        endpoint=f"https://{host_port(endpoint.host, endpoint.port)}",
        pods=tuple(network.pods.cidr_blocks),
        services=tuple(network.services.cidr_blocks),
        domain=network.service_domain,
    )


def secret_name(cluster: str) -> str:
    """The Secret with the secrets of Talos."""
    return f"{cluster}-{TALOS}"


def talos_secrets_of(secret: Json | None) -> TalosSecrets | None:
    """The secrets of Talos control planes; None if the cluster has none."""
    text = ((secret or {}).get("data") or {}).get(BUNDLE)
    return talos_secrets.parse(base64.b64decode(text)) if text else None


def _talos_secret(move: CreateTalosSecret) -> Json:
    """The CA of Talos' API and the token of its workers."""
    pair = create_ca("talos", move.now)
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    data["token"] = bootstrap_tokens.new_token().encode()
    owner = msgspec.to_builtins(owner_reference(move.cluster))
    meta = {
        "name": secret_name(move.cluster.name),
        "namespace": move.cluster.namespace,
        "labels": {CLUSTER_NAME: move.cluster.name},
        "ownerReferences": [owner | {"controller": False}],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
    return head | {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
