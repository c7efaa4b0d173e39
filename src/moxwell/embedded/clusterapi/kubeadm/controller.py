"""The loop over KubeadmConfigs."""

import base64
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from moxwell.api.capi.bootstrap import BootstrapInitialization, KubeadmConfig, KubeadmConfigStatus
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE
from moxwell.api.conditions import Condition
from moxwell.api.kinds import own
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.kubeadm import plan
from moxwell.embedded.clusterapi.machine.controller import owner_machine
from moxwell.embedded.clusterapi.tenant_clients import SECRETS, Tenants
from moxwell.errors import Conflict, Missing
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.move import Wait
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 5.0
RENEW_SECONDS = 300.0
TOKEN_NOTE = "moxwell.dev/bootstrap-token-id"
Json = dict[str, Any]


class KubeadmConfigs:
    """Writes the data a worker boots with, and keeps its token alive until it has joined."""

    kind = KubeadmConfig
    finalizer = ""

    def __init__(self, kube: Kube, tenants: Tenants, clock: Clock) -> None:
        self._kube, self._tenants, self._clock = kube, tenants, clock
        self.watches: Sequence[Watch] = (Watch(Machine, _config_of),)

    async def reconcile(self, config: KubeadmConfig) -> Outcome[KubeadmConfigStatus]:
        machine = await self._machine(config)
        if machine is None:
            return _waiting(Wait("WaitingForMachine", "no Machine owns this configuration yet"))
        secret = await self._kube.find(SECRETS, config.name, config.namespace)
        if secret is None:
            wait = await self._write(config, machine)
            if wait is not None:
                return _waiting(wait)
        elif machine.status.node_ref is None:
            await self._renew(machine, secret)
        joined = machine.status.node_ref is not None
        return Outcome(_ready(config), again=None if joined else RENEW_SECONDS)

    async def _machine(self, config: KubeadmConfig) -> Machine | None:
        keys = owner_machine(config)
        return await self._kube.find(Machine, keys[0].name, keys[0].namespace) if keys else None

    async def _write(self, config: KubeadmConfig, machine: Machine) -> Wait | None:
        name, space = machine.spec.cluster_name, machine.namespace
        cluster = await self._kube.find(Cluster, name, space)
        if cluster is None or not cluster.status.initialization.infrastructure_provisioned:
            return Wait("WaitingForInfrastructure", f"cluster {name} has no infrastructure yet")
        if not cluster.status.initialization.control_plane_initialized:
            return Wait("WaitingForControlPlane", f"the control plane of {name} is not up yet")
        authority = await self._kube.find(SECRETS, f"{name}-ca", space)
        tenant = await self._tenants.find(Key(space, name))
        if authority is None or tenant is None:
            return Wait("WaitingForControlPlane", f"{name} has no kubeconfig or authority yet")
        token = _new_token()
        await tenant.create(plan.token_secret(token, self._clock.now()), SECRETS)
        pin = plan.ca_hash(base64.b64decode(authority["data"]["tls.crt"]))
        join = plan.join_configuration(config, cluster.spec.control_plane_endpoint, token, [pin])
        contents = await self._contents(config)
        data = plan.cloud_config(config.spec, join, contents)
        with suppress(Conflict):
            await self._kube.create(_data_secret(config, name, data, token), SECRETS)
        return None

    async def _contents(self, config: KubeadmConfig) -> dict[str, str]:
        """Files whose content is kept in Secrets."""
        found = {}
        for file in config.spec.files:
            if file.content_from is not None:
                ref = file.content_from.secret
                secret = await self._kube.get(SECRETS, ref.name, config.namespace)
                if ref.key not in (secret.get("data") or {}):
                    raise Missing(f"Secret {ref.name} has no key {ref.key} for {file.path}")
                found[file.path] = base64.b64decode(secret["data"][ref.key]).decode()
        return found

    async def _renew(self, machine: Machine, secret: Json) -> None:
        """A machine that has not joined yet keeps a valid token."""
        tenant = await self._tenants.find(Key(machine.namespace, machine.spec.cluster_name))
        short = (secret["metadata"].get("annotations") or {}).get(TOKEN_NOTE)
        if tenant is None or not short:
            return
        name, now = f"bootstrap-token-{short}", self._clock.now()
        token = await tenant.find(SECRETS, name, "kube-system")
        if token is None or not plan.is_running_out(token, now):
            return
        until = base64.b64encode(plan.expiry(now).encode()).decode()
        with suppress(Missing):
            await tenant.merge(SECRETS, name, {"data": {"expiration": until}}, "kube-system")


def _config_of(machine: Machine) -> list[Key]:
    ref = machine.spec.bootstrap.config_ref
    return [Key(machine.namespace, ref.name)] if ref and ref.kind == "KubeadmConfig" else []


def _new_token() -> str:
    return f"{_letters(6)}.{_letters(16)}"


def _letters(count: int) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(alphabet) for _ in range(count))


def _data_secret(config: KubeadmConfig, cluster: str, data: str, token: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": config.name,
            "namespace": config.namespace,
            "labels": {CLUSTER_NAME: cluster},
            "annotations": {TOKEN_NOTE: token.partition(".")[0]},
            "ownerReferences": [msgspec.to_builtins(own(config))],
        },
        "type": SECRET_TYPE,
        "data": {
            "value": base64.b64encode(data.encode()).decode(),
            "format": base64.b64encode(b"cloud-config").decode(),
        },
    }


def _ready(config: KubeadmConfig) -> KubeadmConfigStatus:
    said = Condition(type="Ready", status="True", reason="Ready")
    return KubeadmConfigStatus(
        conditions=(said,),
        initialization=BootstrapInitialization(data_secret_created=True),
        data_secret_name=config.name,
        observed_generation=config.metadata.generation,
    )


def _waiting(wait: Wait) -> Outcome[KubeadmConfigStatus]:
    said = Condition(type="Ready", status="False", reason=wait.reason, message=wait.message)
    return Outcome(KubeadmConfigStatus(conditions=(said,)), again=POLL_SECONDS)
