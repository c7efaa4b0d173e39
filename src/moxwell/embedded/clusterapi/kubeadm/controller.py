"""The kubeadm bootstrap provider of Cluster API: user data and bootstrap tokens."""

import base64
from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.bootstrap import KubeadmConfig, KubeadmConfigStatus
from moxwell.api.capi.core import Cluster, Machine
from moxwell.clock import Clock
from moxwell.embedded.clusterapi import bootstrap_tokens
from moxwell.embedded.clusterapi.kubeadm import certificates, cloud_config
from moxwell.embedded.clusterapi.kubeadm.plan import (
    CreateBootstrapData,
    CreateInitData,
    KubeadmConfigMove,
    KubeadmRole,
    ObservedKubeadmConfig,
    describe,
    next_move,
    role_of,
)
from moxwell.embedded.clusterapi.machines import owner_machine
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.runtime.watches import Watch
from moxwell.runtime.writes import Create

Json = dict[str, Any]


def _config_of(machine: Machine) -> list[Key]:
    ref = machine.spec.bootstrap.config_ref
    return [Key(machine.namespace, ref.name)] if ref and ref.kind == "KubeadmConfig" else []


def _relevant(machine: Machine | None) -> object:
    """What the bootstrap data of a Machine depends on: not what else its status says."""
    if machine is None:
        return None
    meta = machine.metadata
    return machine.spec, meta.labels, machine.deleting, machine.status.node_ref is None


class KubeadmConfigController(
    Reconciler[KubeadmConfig, ObservedKubeadmConfig, KubeadmConfigMove, KubeadmConfigStatus]
):
    """Reconciles KubeadmConfigs."""

    kind = KubeadmConfig
    watches: Sequence[Watch] = (
        Watch(Machine, _config_of, lambda old, new: _relevant(old) != _relevant(new)),
    )

    def __init__(self, kube: Kube, tenants: TenantClients, clock: Clock) -> None:
        self._kube, self._tenants, self._clock = kube, tenants, clock

    async def see(self, config: KubeadmConfig, reader: Reader) -> ObservedKubeadmConfig:
        now, keys = self._clock.now(), owner_machine(config)
        machine = await reader.find(Machine, keys[0].name, keys[0].namespace) if keys else None
        if machine is None:
            return ObservedKubeadmConfig(now=now)
        data = await reader.find(SECRETS, config.name, config.namespace)
        if data is not None:
            token = await bootstrap_tokens.find_token(self._tenants, machine, data)
            return ObservedKubeadmConfig(
                now=now, machine=machine, has_data_secret=True, token_secret=token
            )
        name, namespace = machine.spec.cluster_name, machine.namespace
        cluster = await reader.find(Cluster, name, namespace)
        ca_secret = await reader.find(SECRETS, f"{name}-ca", namespace)
        reachable = await self._tenants.find(Key(namespace, name)) is not None
        role = role_of(config)
        ready = ca_secret and (reachable or role is KubeadmRole.INIT)
        return ObservedKubeadmConfig(
            now=now,
            machine=machine,
            cluster=cluster,
            ca_secret=ca_secret,
            has_kubeconfig=reachable,
            contents=await _contents(config, reader) if ready else {},
            pki={} if role is KubeadmRole.WORKER else await _pki(name, namespace, reader),
        )

    def plan(self, config: KubeadmConfig, seen: ObservedKubeadmConfig) -> KubeadmConfigMove:
        return next_move(config, seen)

    async def act(self, move: KubeadmConfigMove) -> Any:
        if isinstance(move, CreateBootstrapData):
            await self._create(move)
        elif isinstance(move, CreateInitData):
            documents = cloud_config.init_configuration(move.config, move.cluster, move.version)
            data = cloud_config.init_data(move.config.spec, documents, move.contents, move.pki)
            secret = bootstrap_tokens.data_secret(move.config, move.cluster.name, data)
            await Create(secret, SECRETS).perform(self._kube)
        elif isinstance(move, bootstrap_tokens.RenewToken):
            await move.write().perform(await self._tenants.get(move.tenant))

    async def _create(self, move: CreateBootstrapData) -> None:
        """The token first: a data Secret with a token that does not exist would be final."""
        token = bootstrap_tokens.new_token()
        tenant = await self._tenants.get(move.tenant)
        await tenant.create(bootstrap_tokens.token_secret(token, move.now, move.config), SECRETS)
        ca_hash = cloud_config.ca_hash(base64.b64decode(move.ca_secret["data"]["tls.crt"]))
        endpoint = move.cluster.spec.control_plane_endpoint
        join = cloud_config.join_configuration(move.config, endpoint, token, [ca_hash])
        data = cloud_config.join_data(move.config.spec, join, move.contents, move.pki)
        secret = bootstrap_tokens.data_secret(move.config, move.tenant.name, data, token)
        await Create(secret, SECRETS).perform(self._kube)

    def describe(
        self, config: KubeadmConfig, seen: ObservedKubeadmConfig, move: KubeadmConfigMove
    ) -> KubeadmConfigStatus:
        return describe(config, move)


async def _contents(config: KubeadmConfig, reader: Reader) -> dict[str, str]:
    """The contents of files that come from Secrets, by path."""
    contents = {}
    for file in config.spec.files:
        if file.content_from is not None:
            ref = file.content_from.secret
            secret = await reader.get(SECRETS, ref.name, config.namespace)
            if ref.key not in (secret.get("data") or {}):
                raise Missing(f"Secret {ref.name} has no key {ref.key} for {file.path}")
            contents[file.path] = base64.b64decode(secret["data"][ref.key]).decode()
    return contents


async def _pki(cluster: str, namespace: str, reader: Reader) -> dict[str, str]:
    """The certificate files of a control plane machine; empty while a Secret is missing."""
    found = {}
    for purpose, name in certificates.secret_names(cluster).items():
        secret = await reader.find(SECRETS, name, namespace)
        if secret is None:
            return {}
        found[purpose] = secret
    return certificates.pki_files(found)
