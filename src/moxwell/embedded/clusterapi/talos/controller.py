"""The Talos bootstrap provider of Cluster API: machine configurations of workers."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.capi.talos import TalosConfig, TalosConfigStatus
from moxwell.api.kinds import owner_reference
from moxwell.bootstrap import talos_config
from moxwell.clock import Clock
from moxwell.embedded.clusterapi import bootstrap_tokens
from moxwell.embedded.clusterapi.machines import owner_machine
from moxwell.embedded.clusterapi.talos.plan import (
    CreateTalosData,
    CreateTalosSecret,
    ObservedTalosConfig,
    TalosConfigMove,
    describe,
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
TALOS = "talos"


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
        return ObservedTalosConfig(
            now=now,
            machine=machine,
            cluster=await reader.find(Cluster, name, namespace),
            ca_secret=await reader.find(SECRETS, f"{name}-ca", namespace),
            talos_secret=await reader.find(SECRETS, f"{name}-{TALOS}", namespace),
            reachable=await self._tenants.find(Key(namespace, name)) is not None,
        )

    def plan(self, config: TalosConfig, seen: ObservedTalosConfig) -> TalosConfigMove:
        return next_move(config, seen)

    async def act(self, move: TalosConfigMove) -> Any:
        if isinstance(move, CreateTalosSecret):
            await Create(_talos_secret(move), SECRETS).perform(self._kube)
        elif isinstance(move, CreateTalosData):
            await self._create(move)
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
    """The configuration of one worker, in YAML."""
    spec, cluster = move.config.spec, move.cluster.spec
    if spec.generate_type == "none":
        return spec.data
    endpoint, talos = cluster.control_plane_endpoint, move.talos_secret["data"]
    found = talos_config.TalosCluster(
        name=move.cluster.name,
        endpoint=f"https://{host_port(endpoint.host, endpoint.port)}",
        ca=base64.b64decode(move.ca_secret["data"]["tls.crt"]),
        talos_ca=base64.b64decode(talos["tls.crt"]),
        talos_token=base64.b64decode(talos["token"]).decode(),
        pods=tuple(cluster.cluster_network.pods.cidr_blocks),
        services=tuple(cluster.cluster_network.services.cidr_blocks),
        domain=cluster.cluster_network.service_domain,
    )
    worker = talos_config.worker_config(found, move.machine.spec.version, token)
    return talos_config.patched(worker, spec.strategic_patches)


def _talos_secret(move: CreateTalosSecret) -> Json:
    """The CA of Talos' API and the token of its workers."""
    pair = create_ca("talos", move.now)
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    data["token"] = bootstrap_tokens.new_token().encode()
    owner = msgspec.to_builtins(owner_reference(move.cluster))
    meta = {
        "name": f"{move.cluster.name}-{TALOS}",
        "namespace": move.cluster.namespace,
        "labels": {CLUSTER_NAME: move.cluster.name},
        "ownerReferences": [owner | {"controller": False}],
    }
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
    return head | {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
