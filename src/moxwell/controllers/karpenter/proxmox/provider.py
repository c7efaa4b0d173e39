"""
The autoscaler's provider over Proxmox: machines of node claims in the management cluster.

``launch`` writes in an order that survives a crash: the Machine with the record of what was chosen,
then its bootstrap data, then its ProxmoxMachine. A repeated call creates what is missing. If the
chosen host has a warm guest, its ProxmoxMachine is reserved first and handed over last.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import structs

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import BOOTSTRAP
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.warm_guests import is_warm
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import PROVIDER_GROUP, ProxmoxNodeClass
from moxwell.controllers.karpenter.provider import (
    InstanceState,
    LaunchFailure,
    NodeClassState,
    NodeInstance,
)
from moxwell.controllers.karpenter.proxmox import machine_objects
from moxwell.controllers.karpenter.proxmox.catalogue import catalogue
from moxwell.controllers.karpenter.proxmox.class_hash import class_hash
from moxwell.controllers.karpenter.proxmox.class_reader import NodeClassReader, ReadNodeClass
from moxwell.controllers.karpenter.proxmox.class_sources import ClassSources
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLAIM_UID,
    InstanceRecord,
    guest_name,
    machine_name,
    record_of,
)
from moxwell.controllers.karpenter.proxmox.instance_state import instance_of
from moxwell.controllers.karpenter.proxmox.kubelet_settings import kubelet_patch
from moxwell.controllers.karpenter.proxmox.launch_choice import LaunchChoice, NoOffering, choose
from moxwell.controllers.karpenter.proxmox.launches import (
    FailedLaunch,
    FailedLaunches,
    UnavailableOfferings,
    pending_guest,
)
from moxwell.controllers.karpenter.proxmox.node_bootstrap import NodeBootstrap
from moxwell.controllers.karpenter.proxmox.placed_record import overhead_of, placed_record
from moxwell.controllers.karpenter.proxmox.planned_capacity import (
    PlannedCapacity,
    others,
    planned_guests,
)
from moxwell.controllers.karpenter.proxmox.spot_guests import SpotGuestReader
from moxwell.controllers.karpenter.proxmox.template_network import network_devices, node_pools
from moxwell.controllers.karpenter.proxmox.warm_guests import WarmGuests
from moxwell.errors import Invalid
from moxwell.kube.client import Kube
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.writes import Create, Delete
from moxwell.scheduling.inventory_model import HostKey, PendingGuest
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest, SpotInterruption

Json = dict[str, Any]
BY_CLUSTER = "karpenter.cluster"
NODE_CLASS_DRIFT, IMAGE_DRIFT = "NodeClassDrift", "ImageDrift"


@dataclass(frozen=True, slots=True)
class ProviderParts:
    """What the provider uses; ``machines`` are those of the management cluster."""

    management: Kube
    machines: Cache[Machine]
    node_classes: Cache[ProxmoxNodeClass]
    sources: ClassSources
    reader: NodeClassReader
    bootstrap: NodeBootstrap
    unavailable: UnavailableOfferings
    failed: FailedLaunches
    warm: WarmGuests
    spot: SpotGuestReader
    claims: Cache[NodeClaim]
    planned: PlannedCapacity


@dataclass(frozen=True, slots=True)
class _Selection:
    """The record of a launch, or why there is none; the hosts with warm guests."""

    record: InstanceRecord | NoOffering
    warm: Mapping[HostKey, ProxmoxMachine]
    unobserved: frozenset[HostKey]


class ProxmoxProvider:
    """Machines for the node claims of one cluster."""

    def __init__(self, cluster: Key, parts: ProviderParts) -> None:
        self._cluster, self.parts = cluster, parts
        parts.machines.add_index(BY_CLUSTER, _cluster_of)

    # ---- reading

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        found = self._class_of(pool.spec.template.spec.node_class_ref)
        if found is None:
            return ()
        read = await self.parts.reader.read(found, partial(self._planned_by_all, found))
        return catalogue(read.sizes, read.hosts, read.settings, self.parts.unavailable.current())

    def _planned_by_all(self, node_class: ProxmoxNodeClass) -> tuple[PendingGuest, ...]:
        """The planned node claims of this cluster, and of others that may report theirs."""
        own = self._planned(node_class, self.parts.claims.list())
        if self.parts.reader.trusted:
            return self.parts.planned.report(self._cluster, own)
        return (*own, *self.parts.planned.report(self._cluster, ()))

    def _planned(
        self, node_class: ProxmoxNodeClass, claims: Iterable[NodeClaim]
    ) -> tuple[PendingGuest, ...]:
        """Those of the node claims that have a planned host and no Machine yet."""
        machines = self.parts.machines.by(BY_CLUSTER, f"{self._cluster}")
        made = {f"{m.namespace}/{m.name}" for m in machines} | self.parts.sources.launched.names()
        return planned_guests(self._cluster, claims, made, node_class.spec.boot_device.storage)

    async def node_class(self, pool: NodePool) -> NodeClassState | None:
        found = self._class_of(pool.spec.template.spec.node_class_ref)
        if found is None:
            return None
        return _state(found, await self.parts.reader.read(found))

    async def instance(self, claim: NodeClaim) -> NodeInstance | None:
        name = machine_name(self._cluster.name, claim.name, claim.uid)
        machine = self.parts.machines.find(Key(self._cluster.namespace, name))
        if machine is not None and machine.metadata.labels.get(CLAIM_UID) == claim.uid:
            made = self._proxmox_machine(machine)
            complete = made is not None and not is_warm(made)
            return self._observed(machine) if complete else None  # a launch goes on
        failed = self.parts.failed.find(claim.uid)
        if failed is None:
            return None
        return NodeInstance(
            claim.name,
            claim.uid,
            InstanceState.FAILED,
            failure=failed.failure,
            message=failed.message,
        )

    async def instances(self) -> tuple[NodeInstance, ...]:
        found = self.parts.machines.by(BY_CLUSTER, f"{self._cluster}")
        return tuple(i for i in map(self._observed, found) if i is not None)

    async def drift(self, claim: NodeClaim) -> str:
        name = machine_name(self._cluster.name, claim.name, claim.uid)
        machine = self.parts.machines.find(Key(self._cluster.namespace, name))
        record = record_of(machine) if machine else None
        node_class = self._class_of(claim.spec.node_class_ref)
        if record is None or node_class is None:
            return ""
        if record.class_hash != class_hash(node_class):
            return NODE_CLASS_DRIFT
        read = await self.parts.reader.read(node_class)
        templates = {(z.key.region, z.template.vmid) for z in read.checked.zones}
        if templates and (record.region, record.template) not in templates:
            return IMAGE_DRIFT
        return ""

    async def spot_guests(self) -> tuple[SpotGuest, ...]:
        return self.parts.spot.read(self.parts.machines.by(BY_CLUSTER, f"{self._cluster}"))

    async def interruptions(self, pods: Iterable[RoomNeed]) -> tuple[SpotInterruption, ...]:
        return await self.parts.spot.interruptions(await self.spot_guests(), pods)

    def _observed(self, machine: Machine) -> NodeInstance | None:
        proxmox = self._proxmox_machine(machine)
        found = instance_of(machine, proxmox)
        record = record_of(machine)
        if found and record and found.failure is LaunchFailure.INSUFFICIENT_CAPACITY:
            host = HostKey(record.region, record.host)
            self.parts.unavailable.block(record.instance_type, host, found.uid)
        return found

    def _proxmox_machine(self, machine: Machine) -> ProxmoxMachine | None:
        cache = self.parts.sources.management.proxmox_machines
        return cache.find(Key(machine.namespace, guest_name(machine)))

    def _class_of(self, ref: Any) -> ProxmoxNodeClass | None:
        if ref.group != PROVIDER_GROUP or ref.kind != "ProxmoxNodeClass":
            return None
        return self.parts.node_classes.find(Key("", ref.name))

    # ---- writing

    async def launch(self, claim: NodeClaim) -> None:
        name = machine_name(self._cluster.name, claim.name, claim.uid)
        node_class = self._class_of(claim.spec.node_class_ref)
        if node_class is None or node_class.deleting:
            ref = claim.spec.node_class_ref
            message = f"{ref.kind} {ref.name} does not exist or is being deleted"
            return self._fail(claim, LaunchFailure.NODE_CLASS_NOT_READY, message)
        try:
            machine = await self._machine(name, claim, node_class)
            if machine is not None and not machine.deleting:
                await self._complete(machine, claim, node_class)
        except Invalid as error:
            self._fail(claim, LaunchFailure.LAUNCH_FAILED, str(error))

    async def terminate(self, claim: str, uid: str) -> None:
        name = machine_name(self._cluster.name, claim, uid)
        self.parts.failed.remove(uid)
        await self.parts.bootstrap.revoke(uid)
        machine = await self.parts.management.find(Machine, name, self._cluster.namespace)
        if machine is None or machine.metadata.labels.get(CLAIM_UID) != uid or machine.deleting:
            return
        delete = Delete(Machine, name, self._cluster.namespace, uid=machine.uid)
        await delete.perform(self.parts.management)

    def _fail(self, claim: NodeClaim, failure: LaunchFailure, message: str) -> None:
        self.parts.failed.add(claim.uid, FailedLaunch(failure, message))

    async def _machine(
        self, name: str, claim: NodeClaim, node_class: ProxmoxNodeClass
    ) -> Machine | None:
        """The Machine of a claim, created with the record of the choice if it is missing."""
        kube, namespace = self.parts.management, self._cluster.namespace
        found = await kube.find(Machine, name, namespace)
        if found is not None:
            return found if found.metadata.labels.get(CLAIM_UID) == claim.uid else None
        selection = await self._select(claim, node_class, older=False)
        if selection is not None and isinstance(selection.record, NoOffering):
            selection = await self._select(claim, node_class, older=True)
        if selection is None:
            return None
        record = selection.record  # nothing is awaited since it was chosen
        if isinstance(record, NoOffering):
            self._fail(claim, LaunchFailure.INSUFFICIENT_CAPACITY, record.message)
            return None
        if HostKey(record.region, record.host) in selection.unobserved:
            return None  # the next call finds the warm guest of this host ready, or gone
        self._count(name, record, node_class)
        record = await self._reserve(record, selection.warm, claim.uid)
        version = await self.parts.bootstrap.version(self.parts.sources.defaults().version)
        bootstrap = _bootstrap(record.warm_guest or name, node_class)
        body = machine_objects.machine(self._cluster, name, claim, record, bootstrap, version)
        await Create(body, Machine.resource).perform(kube)
        self.parts.failed.remove(claim.uid)
        return await kube.find(Machine, name, namespace)

    async def _select(
        self, claim: NodeClaim, node_class: ProxmoxNodeClass, *, older: bool
    ) -> _Selection | None:
        """What the claim gets beside the plans of other (older) claims; None if nothing may be."""

        def planned() -> tuple[PendingGuest, ...]:
            return self._planned(node_class, others(self.parts.claims.list(), claim, older=older))

        read = await self.parts.reader.read(node_class, planned)
        state = _state(node_class, read)
        if not state.ready:
            self._fail(claim, LaunchFailure.NODE_CLASS_NOT_READY, state.message)
            return None
        zones = read.checked.zones
        warm = self.parts.warm.ready(node_class, zones, claim.uid)
        unobserved = self.parts.warm.awaited(node_class, zones, claim.uid)
        choice = self._choose(claim, node_class, read, warm.keys() | unobserved)
        record = choice if isinstance(choice, NoOffering) else placed_record(choice, node_class)
        return _Selection(record, warm, unobserved)

    async def _reserve(
        self, record: InstanceRecord, warm: Mapping[HostKey, ProxmoxMachine], uid: str
    ) -> InstanceRecord:
        """The record with a warm guest of its host, if there is one that nobody else takes."""
        found = warm.get(HostKey(record.region, record.host))
        if found is None or not await self.parts.warm.reserve(found, uid):
            return record
        return structs.replace(record, warm_guest=found.name)

    def _choose(
        self,
        claim: NodeClaim,
        node_class: ProxmoxNodeClass,
        read: ReadNodeClass,
        warm: Collection[HostKey],
    ) -> LaunchChoice | NoOffering:
        strategy = node_class.spec.placement_strategy.zone_balance
        return choose(
            claim,
            read.sizes,
            read.hosts,
            settings=read.settings,
            blocked=self.parts.unavailable.current(),
            at_random=strategy == "AvailabilityFirst",
            warm=warm,
        )

    def _count(self, name: str, record: InstanceRecord, node_class: ProxmoxNodeClass) -> None:
        """Count the machine as used capacity until the cache shows it."""
        guest = pending_guest(record, node_class.spec.boot_device.storage)
        self.parts.sources.launched.add(f"{self._cluster.namespace}/{name}", guest)

    async def _complete(
        self, machine: Machine, claim: NodeClaim, node_class: ProxmoxNodeClass
    ) -> None:
        """Create what the Machine lacks."""
        record = record_of(machine)
        if record is None:
            return
        kube, sources = self.parts.management, self.parts.sources
        defaults, name = sources.defaults(), guest_name(machine)
        found = await kube.find(ProxmoxMachine, name, machine.namespace)
        if found is not None and not is_warm(found):
            return  # it is created, or handed over, last
        if record.warm_guest and (found is None or found.deleting):
            lost = Delete(Machine, machine.name, machine.namespace, uid=machine.uid)
            await lost.perform(kube)  # its warm guest was deleted; the launch starts again
            return
        if machine.spec.bootstrap.config_ref is not None:
            if await kube.find(KubeadmConfig, name, machine.namespace) is None:
                patch = kubelet_patch(node_class.spec.kubelet_configuration, overhead_of(record))
                config = machine_objects.kubeadm_config(machine, claim, patch)
                await Create(config, KubeadmConfig.resource).perform(kube)
        elif await kube.find(Secret, name, machine.namespace) is None:
            data = await self.parts.bootstrap.data(
                name, claim, node_class, record, machine.spec.version
            )
            secret = machine_objects.bootstrap_secret(machine, data)
            await Create(secret, Secret.resource).perform(kube)
        devices = await self._devices(node_class)
        body = machine_objects.proxmox_machine(machine, record, node_class, defaults, devices)
        if found is None:
            await Create(body, ProxmoxMachine.resource).perform(kube)
        else:
            await self.parts.warm.hand_over(found, body)  # after a conflict it is repeated

    async def _devices(self, node_class: ProxmoxNodeClass) -> list[Json]:
        """The network devices that a ProxmoxTemplate describes, after their pools were created."""
        template = self.parts.reader.own_template(node_class)
        cluster = self.parts.sources.management.clusters.find(self._cluster)
        if template is None or cluster is None:
            return []
        for pool in node_pools(cluster, template):
            await Create(pool).perform(self.parts.management)
        return network_devices(self._cluster, template)


def _cluster_of(machine: Machine) -> tuple[str, ...]:
    if CLAIM_UID not in machine.metadata.labels:
        return ()
    return (f"{Key(machine.namespace, machine.spec.cluster_name)}",)


def _state(node_class: ProxmoxNodeClass, read: ReadNodeClass) -> NodeClassState:
    """Ready if the class has no mistake, as found now and, for its Secrets, by its controller."""
    for problem in read.checked.problems:
        return NodeClassState(False, problem.reason, problem.message)
    ready = next((c for c in node_class.status.conditions if c.type == "Ready"), None)
    if ready is not None and ready.status == "False":
        return NodeClassState(False, ready.reason, ready.message)
    return NodeClassState(True)


def _bootstrap(name: str, node_class: ProxmoxNodeClass) -> Json:
    if node_class.spec.metadata_options.type == "cdrom":
        return {"dataSecretName": name}
    return {"configRef": {"apiGroup": BOOTSTRAP, "kind": "KubeadmConfig", "name": name}}
