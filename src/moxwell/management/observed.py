"""Observes the temporary API and the management cluster of a bootstrap."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CONTROL_PLANE_LABEL
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.errors import Missing, MoxwellError
from moxwell.kube.reader import Reader
from moxwell.management import transfer
from moxwell.management.manifests import ManifestStage, next_stage
from moxwell.management.objects import SECRETS, cluster_objects
from moxwell.management.spec import ManagementSpec
from moxwell.runtime.key import Key
from moxwell.runtime.unstructured import Unstructured

Json = dict[str, Any]
OWN_NAMESPACE = "moxwell-bootstrap"  # of the temporary API: what is not moved
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
FindTarget = Callable[[Key], Awaitable[Reader | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTarget:
    """The management cluster; ``others`` are what its users have made with it."""

    nodes: int = 0  # that are ready
    stage: ManifestStage | None = None  # to be applied
    waiting: str = ""  # why the applied stages are not available
    objects: tuple[Unstructured, ...] = field(default=(), repr=False)
    others: tuple[str, ...] = ()

    @property
    def cluster(self) -> Json | None:
        return cluster_of(self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedManagement:
    """``objects`` are those of the temporary API; ``target`` is None while it does not answer."""

    objects: tuple[Unstructured, ...] = field(default=(), repr=False)
    missing: tuple[tuple[Resource, Json], ...] = field(default=(), repr=False)
    recorded: bool = False  # the kubeconfig is kept beside the objects that are moved
    kubeconfig: Json | None = field(default=None, repr=False)
    target: ObservedTarget | None = None

    @property
    def cluster(self) -> Json | None:
        return cluster_of(self.objects)

    def machines(self) -> list[Unstructured]:
        """The control plane machines."""
        return [
            o
            for o in self.of_kind("Machine")
            if CONTROL_PLANE_LABEL in (o.obj["metadata"].get("labels") or {})
        ]

    def of_kind(self, kind: str) -> list[Unstructured]:
        return [o for o in self.objects if o.resource.kind == kind]


def cluster_of(objects: Sequence[Unstructured]) -> Json | None:
    return next((o.obj for o in objects if o.resource == Cluster.resource), None)


@dataclass(frozen=True, slots=True)
class ManagementObserver:
    """Reads both APIs; ``find_target`` returns a client of the management cluster."""

    spec: ManagementSpec
    stages: Sequence[ManifestStage]
    find_target: FindTarget

    async def observe(self, reader: Reader, *, undo: bool) -> ObservedManagement:
        spec = self.spec
        objects = await transfer.read_objects(reader, spec.namespace, spec.name)
        known = {o.identity for o in objects}
        kept = await reader.find(SECRETS, kubeconfig_name(spec), OWN_NAMESPACE)
        return ObservedManagement(
            objects=objects,
            missing=tuple(
                (resource, obj)
                for resource, obj in cluster_objects(spec)
                if (resource.kind, obj["metadata"]["name"]) not in known
            ),
            recorded=kept is not None,
            kubeconfig=await reader.find(SECRETS, kubeconfig_name(spec), spec.namespace),
            target=await self._target(moved=kept is not None, undo=undo),
        )

    async def _target(self, *, moved: bool, undo: bool) -> ObservedTarget | None:
        """The management cluster by the kept kubeconfig, or by that of its objects."""
        namespace = OWN_NAMESPACE if moved else self.spec.namespace
        try:
            target = await self.find_target(Key(namespace, self.spec.name))
            if target is None:
                return None
            return await self._read(target, undo=undo)
        except MoxwellError:
            return None  # does not answer, or not yet

    async def _read(self, target: Reader, *, undo: bool) -> ObservedTarget:
        spec = self.spec
        nodes = (await target.list(NODES)).items
        objects = await transfer.read_objects(target, spec.namespace, spec.name)
        stage, waiting = (None, "") if undo else await next_stage(target, self.stages)
        return ObservedTarget(
            nodes=sum(map(is_node_ready, nodes)),
            stage=stage,
            waiting=waiting,
            objects=objects,
            others=await self._others(target) if undo else (),
        )

    async def _others(self, target: Reader) -> tuple[str, ...]:
        """Other clusters, their machines, and volumes of the CSI driver."""
        found = []
        own = (self.spec.namespace, self.spec.name)
        for resource in (Cluster.resource, ProxmoxMachine.resource):
            for obj in await _listed(target, resource):
                meta = obj["metadata"]
                labels = meta.get("labels") or {}
                cluster = labels.get("cluster.x-k8s.io/cluster-name", meta["name"])
                if (meta["namespace"], cluster) != own:
                    found.append(f"{resource.kind} {meta['namespace']}/{meta['name']}")
        for obj in await _listed(target, VOLUMES):
            if (obj.get("spec") or {}).get("csi"):
                found.append(f"PersistentVolume {obj['metadata']['name']}")
        return tuple(found)


async def _listed(reader: Reader, resource: Resource) -> Sequence[Json]:
    try:
        return (await reader.list(resource)).items
    except Missing:
        return ()


def kubeconfig_name(spec: ManagementSpec) -> str:
    return f"{spec.name}-kubeconfig"


def is_node_ready(node: Json) -> bool:
    """Whether a Node is ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
