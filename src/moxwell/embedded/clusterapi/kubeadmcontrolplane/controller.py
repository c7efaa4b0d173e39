"""The kubeadm control plane provider of Cluster API: Machines, certificates and kubeconfig."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.controlplane import ControlPlaneStatus, KubeadmControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.kinds import owner_reference
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.administrator_kubeconfig import (
    is_due,
    kubeconfig_name,
    kubeconfig_secret,
)
from moxwell.embedded.clusterapi.control_plane_machines import missing_parts, owner_of_kind
from moxwell.embedded.clusterapi.kubeadm import certificates as pki
from moxwell.embedded.clusterapi.kubeadmcontrolplane.plan import (
    CreateCertificates,
    KubeadmControlPlaneMove,
    ObservedKubeadmControlPlane,
    WriteKubeconfig,
    describe,
    next_move,
)
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.secrets import secret_write
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]


def owner_control_plane(machine: Machine) -> list[Key]:
    """The key of the KubeadmControlPlane that controls a Machine."""
    return owner_of_kind(machine, KubeadmControlPlane.resource.kind)


class KubeadmControlPlaneController(
    Reconciler[
        KubeadmControlPlane,
        ObservedKubeadmControlPlane,
        KubeadmControlPlaneMove,
        ControlPlaneStatus,
    ]
):
    """Reconciles KubeadmControlPlanes."""

    kind = KubeadmControlPlane
    finalizer = "kubeadm.controlplane.cluster.x-k8s.io"
    watches: Sequence[Watch] = (Watch(Machine, owner_control_plane, delay=COALESCE_SECONDS),)

    def __init__(self, kube: Kube, resolver: ReferenceResolver, clock: Clock) -> None:
        self._kube, self._resolver, self._clock = kube, resolver, clock

    async def see(self, owner: KubeadmControlPlane, reader: Reader) -> ObservedKubeadmControlPlane:
        now, namespace = self._clock.now(), owner.namespace
        names = [o.name for o in owner.metadata.owner_references if o.kind == "Cluster"]
        cluster = await reader.find(Cluster, names[0], namespace) if names else None
        labels = {CLUSTER_NAME: names[0]} if names else {}
        page = await reader.list(Machine, namespace, labels=labels)
        mine = Key(namespace, owner.name)
        machines = tuple(m for m in page.items if owner_control_plane(m) == [mine])
        if cluster is None or owner.deleting:
            return ObservedKubeadmControlPlane(now=now, cluster=cluster, machines=machines)
        found = {
            purpose: await reader.find(SECRETS, name, namespace)
            for purpose, name in pki.secret_names(cluster.name).items()
        }
        secrets = {purpose: secret for purpose, secret in found.items() if secret is not None}
        kubeconfig = await reader.find(SECRETS, kubeconfig_name(cluster.name), namespace)
        template = owner.spec.machine_template.spec.infrastructure_ref
        return ObservedKubeadmControlPlane(
            now=now,
            cluster=cluster,
            secrets=secrets,
            kubeconfig_due="ca" in secrets and is_due(kubeconfig, cluster, secrets["ca"], now),
            machines=machines,
            missing=await missing_parts(
                reader, self._resolver, machines, KubeadmConfig.resource, template
            ),
        )

    def plan(
        self, owner: KubeadmControlPlane, seen: ObservedKubeadmControlPlane
    ) -> KubeadmControlPlaneMove:
        return next_move(owner, seen)

    async def act(self, move: KubeadmControlPlaneMove) -> Any:
        if isinstance(move, Writes):
            return await move.perform(self._kube, self.kind)
        if isinstance(move, CreateCertificates):
            owner = msgspec.to_builtins(owner_reference(move.owner))
            for purpose in move.purposes:
                pair, namespace = pki.new_pair(purpose, move.now), move.owner.namespace
                secret = pki.certificate_secret(move.cluster, namespace, purpose, pair, owner)
                await Create(secret, SECRETS).perform(self._kube)
        if isinstance(move, WriteKubeconfig):
            await self._write_kubeconfig(move)
        return None

    async def _write_kubeconfig(self, move: WriteKubeconfig) -> None:
        desired = kubeconfig_secret(move.owner, move.cluster, move.ca_secret, move.now)
        meta = desired["metadata"]
        found = await self._kube.find(SECRETS, meta["name"], meta["namespace"])
        write = secret_write(desired, found)
        if write is not None:
            await write.perform(self._kube)

    def describe(
        self,
        owner: KubeadmControlPlane,
        seen: ObservedKubeadmControlPlane,
        move: KubeadmControlPlaneMove,
    ) -> ControlPlaneStatus:
        return describe(owner, seen, move)
