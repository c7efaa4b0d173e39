"""The Talos control plane provider of Cluster API: secrets, Machines, and the beginning of etcd."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.capi.talos import TalosConfig, TalosControlPlane, TalosControlPlaneStatus
from moxwell.bootstrap import talos_secrets
from moxwell.bootstrap.talos_access import DialTalos, TalosAccess, TalosApi
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.control_plane_machines import missing_parts, owner_of_kind
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.secrets import secret_write
from moxwell.embedded.clusterapi.talos.controller import secret_name, talos_secrets_of
from moxwell.embedded.clusterapi.taloscontrolplane.plan import (
    BeginEtcd,
    CreateSecrets,
    ObservedTalosControlPlane,
    TalosControlPlaneMove,
    WriteSecrets,
    addresses,
    describe,
    next_move,
)
from moxwell.embedded.clusterapi.taloscontrolplane.secrets import (
    bundle_secret,
    derived_names,
    due_secrets,
)
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]


def owner_control_plane(machine: Machine) -> list[Key]:
    """The key of the TalosControlPlane that controls a Machine."""
    return owner_of_kind(machine, TalosControlPlane.resource.kind)


def dial_over_grpc(access: TalosAccess) -> TalosApi:
    """Talos' API on a machine; gRPC is imported only where it is called."""
    from moxwell.embedded.clusterapi.taloscontrolplane.node_api import GrpcTalosApi

    return GrpcTalosApi(access)


class TalosControlPlaneController(
    Reconciler[
        TalosControlPlane,
        ObservedTalosControlPlane,
        TalosControlPlaneMove,
        TalosControlPlaneStatus,
    ]
):
    """Reconciles TalosControlPlanes; ``dial`` connects to Talos on a machine."""

    kind = TalosControlPlane
    finalizer = "talos.controlplane.cluster.x-k8s.io"
    watches: Sequence[Watch] = (Watch(Machine, owner_control_plane, delay=COALESCE_SECONDS),)

    def __init__(
        self, kube: Kube, resolver: ReferenceResolver, clock: Clock, dial: DialTalos
    ) -> None:
        self._kube, self._resolver = kube, resolver
        self._clock, self._dial = clock, dial

    async def see(self, owner: TalosControlPlane, reader: Reader) -> ObservedTalosControlPlane:
        now, namespace = self._clock.now(), owner.namespace
        names = [o.name for o in owner.metadata.owner_references if o.kind == "Cluster"]
        cluster = await reader.find(Cluster, names[0], namespace) if names else None
        labels = {CLUSTER_NAME: names[0]} if names else {}
        page = await reader.list(Machine, namespace, labels=labels)
        mine = Key(namespace, owner.name)
        machines = tuple(m for m in page.items if owner_control_plane(m) == [mine])
        if cluster is None or owner.deleting:
            return ObservedTalosControlPlane(now=now, cluster=cluster, machines=machines)
        bundle = await reader.find(SECRETS, secret_name(cluster.name), namespace)
        secrets = talos_secrets_of(bundle)
        found = [await reader.find(SECRETS, n, namespace) for n in derived_names(cluster.name)]
        known = {each["metadata"]["name"]: each for each in found if each is not None}
        endpoints = addresses(machines)
        due = due_secrets(owner, cluster, secrets, known, endpoints, now) if secrets else ()
        return ObservedTalosControlPlane(
            now=now,
            cluster=cluster,
            secrets=secrets,
            due=due,
            machines=machines,
            missing=await missing_parts(
                reader, self._resolver, machines, TalosConfig.resource, owner.spec.template_ref
            ),
        )

    def plan(
        self, owner: TalosControlPlane, seen: ObservedTalosControlPlane
    ) -> TalosControlPlaneMove:
        return next_move(owner, seen)

    async def act(self, move: TalosControlPlaneMove) -> Any:
        if isinstance(move, Writes):
            return await move.perform(self._kube, self.kind)
        if isinstance(move, CreateSecrets):
            made = talos_secrets.create_secrets(move.now)
            bundle = bundle_secret(move.owner, move.cluster, made)
            await Create(bundle, SECRETS).perform(self._kube)
        if isinstance(move, WriteSecrets):
            for secret in move.secrets:
                await self._write(secret)
        if isinstance(move, BeginEtcd):
            life = talos_secrets.CALL_LIFETIME
            client = talos_secrets.administrator(move.secrets, move.now, life)
            access = TalosAccess(move.address, move.secrets.talos.certificate, client)
            await self._dial(access).bootstrap()
        return None

    async def _write(self, desired: Json) -> None:
        meta = desired["metadata"]
        found = await self._kube.find(SECRETS, meta["name"], meta["namespace"])
        write = secret_write(desired, found)
        if write is not None:
            await write.perform(self._kube)

    def describe(
        self,
        owner: TalosControlPlane,
        seen: ObservedTalosControlPlane,
        move: TalosControlPlaneMove,
    ) -> TalosControlPlaneStatus:
        return describe(owner, seen, move)
