"""The kubeadm control plane provider of Cluster API: Machines, certificates and kubeconfig."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.controlplane import ControlPlaneStatus, KubeadmControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME, SECRET_TYPE, ContractRef
from moxwell.api.kinds import owner_reference
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.kubeadm import certificates as pki
from moxwell.embedded.clusterapi.kubeadmcontrolplane.plan import (
    CreateCertificates,
    KubeadmControlPlaneMove,
    ObservedKubeadmControlPlane,
    WriteKubeconfig,
    describe,
    next_move,
)
from moxwell.embedded.clusterapi.machineset.plan import MissingPart
from moxwell.embedded.clusterapi.references import ReferenceResolver, instance_ref
from moxwell.embedded.clusterapi.secrets import secret_write
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.embedded.ports import https_url
from moxwell.kube import kubeconfig_writer
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import COALESCE_SECONDS, Watch
from moxwell.runtime.writes import Create, Writes

Json = dict[str, Any]
ADMINISTRATOR = CertificateConfig(common_name="kubernetes-admin", organizations=("system:masters",))


def owner_control_plane(machine: Machine) -> list[Key]:
    """The key of the KubeadmControlPlane that controls a Machine."""
    owner = machine.metadata.controller
    owned = owner is not None and owner.kind == "KubeadmControlPlane"
    return [Key(machine.namespace, owner.name)] if owner and owned else []


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
        kubeconfig = await reader.find(SECRETS, f"{cluster.name}-kubeconfig", namespace)
        return ObservedKubeadmControlPlane(
            now=now,
            cluster=cluster,
            secrets=secrets,
            kubeconfig_due="ca" in secrets and self._is_due(kubeconfig, cluster, secrets["ca"]),
            machines=machines,
            missing=await self._missing(owner, machines, reader),
        )

    def _is_due(self, kubeconfig: Json | None, cluster: Cluster, ca_secret: Json) -> bool:
        """Whether the kubeconfig is missing, has another endpoint, or expires soon."""
        endpoint = cluster.spec.control_plane_endpoint
        text = base64.b64decode(((kubeconfig or {}).get("data") or {}).get("value", "")).decode()
        client, ca = kubeconfig_writer.client_certificate(text), pki.pair_of(ca_secret)
        if client is None:
            return True
        if kubeconfig_writer.server(text) != https_url(endpoint.host, endpoint.port):
            return True
        return bool(certificates.renewal_reason(client, ADMINISTRATOR, ca, self._clock.now()))

    async def _missing(
        self, owner: KubeadmControlPlane, machines: Sequence[Machine], reader: Reader
    ) -> tuple[MissingPart, ...]:
        """The objects that Machines name and that do not exist."""
        missing = []
        source = owner.spec.machine_template.spec.infrastructure_ref
        for machine in machines:
            done = machine.status.initialization  # a part that has done its work is not read again
            if machine.deleting:
                continue
            ref = machine.spec.bootstrap.config_ref
            if not done.bootstrap_data_secret_created and await self._lacks(reader, machine, ref):
                resource = KubeadmConfig.resource
                missing.append(MissingPart(machine, machine.name, resource, source, {}))
            ref = machine.spec.infrastructure_ref
            if not done.infrastructure_provisioned and await self._lacks(reader, machine, ref):
                at = self._resolver.resource(source)
                found = await reader.get(at, source.name, machine.namespace)
                resource = self._resolver.resource(instance_ref(source, machine.name) or source)
                missing.append(MissingPart(machine, machine.name, resource, source, found))
        return tuple(missing)

    async def _lacks(self, reader: Reader, machine: Machine, ref: ContractRef | None) -> bool:
        return ref is not None and not await self._resolver.exists(reader, ref, machine.namespace)

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
        ca, cluster = pki.pair_of(move.ca_secret), move.cluster
        client = certificates.issue(ADMINISTRATOR, ca, move.now)
        endpoint = cluster.spec.control_plane_endpoint
        url = https_url(endpoint.host, endpoint.port)
        text = kubeconfig_writer.render(url, ca.certificate, client, cluster.name)
        meta: Json = {
            "name": f"{cluster.name}-kubeconfig",
            "namespace": cluster.namespace,
            "labels": {CLUSTER_NAME: cluster.name},
            "ownerReferences": [msgspec.to_builtins(owner_reference(move.owner))],
        }
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": SECRET_TYPE}
        desired = head | {"data": {"value": base64.b64encode(text.encode()).decode()}}
        found = await self._kube.find(SECRETS, meta["name"], cluster.namespace)
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
