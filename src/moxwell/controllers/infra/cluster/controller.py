"""
``infra.cluster``: regions, zones, IP pools, credentials and endpoint of each ProxmoxCluster.

Credentials are read every minute, and sooner while a region does not answer, so a rotated Secret is
used without a restart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import MANAGED_BY
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.controllers.infra.cluster.credentials import protect_secret, release_secret
from moxwell.controllers.infra.cluster.describe import describe
from moxwell.controllers.infra.cluster.plan import (
    POOL_DELETED,
    AnnotateClaims,
    ApplyPools,
    ClaimEndpoint,
    ConnectRegions,
    Move,
    ObservedProxmoxCluster,
    ProtectSecrets,
    ReleaseEndpoint,
    ReleaseSecrets,
    SetEndpoint,
    endpoint_claim,
    plan,
)
from moxwell.controllers.infra.cluster.see import ClusterObserver
from moxwell.controllers.infra.owners import cluster_key, proxmox_cluster_key
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.kube.reader import Reader
from moxwell.pve.model import InventoryChange, InventoryEvent, InventoryHealth, ObservedHost
from moxwell.pve.regions import Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.watches import Watch

NAME = "infra.cluster"
FINALIZER = "proxmoxcluster.infrastructure.cluster.x-k8s.io"
AT_ONCE, POLL_SECONDS, CREDENTIALS_SECONDS, SAFETY_SECONDS = 0.1, 3.0, 60.0, 60.0
UNREACHABLE_SECONDS = 10.0  # while a region with its own Secret fails: the Secret may be corrected


class ClusterReconciler(Reconciler[ProxmoxCluster, ObservedProxmoxCluster, Move, dict[str, Any]]):
    """Provides what the machines of each ProxmoxCluster share."""

    kind = ProxmoxCluster
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        clusters: Cache[ProxmoxCluster],
        *,
        observer: ClusterObserver,
        registry: RegionRegistry,
    ) -> None:
        self._kube, self._regions, self._clusters = kube, regions, clusters
        self._observer, self._registry = observer, registry
        clusters.subscribe(self._cluster_changed)
        self.watches: Sequence[Watch] = (
            Watch(Cluster, _proxmox_cluster_keys),
            Watch(ProxmoxMachine, self._machine_keys, _is_created_or_deleted),
            Watch(InClusterIPPool, _owner_keys),
            Watch(IPAddressClaim, _owner_keys),
            Watch(IPAddress, self._address_keys),
        )

    async def see(self, obj: ProxmoxCluster, reader: Reader) -> ObservedProxmoxCluster:
        """Observe the cluster; see :mod:`.see`."""
        return await self._observer.see(obj, reader)

    def plan(self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster) -> Move:
        """Decide the next move; see :mod:`.plan`."""
        return plan(obj, seen)

    def describe(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster, move: Move
    ) -> dict[str, Any]:
        """Compute the status; see :mod:`.describe`."""
        return describe(obj, seen, move)

    def requeue_after(
        self, obj: ProxmoxCluster, seen: ObservedProxmoxCluster, move: Move
    ) -> float | None:
        """When to read the credentials again, or to continue."""
        own = obj.spec.credentials_ref is not None or bool(obj.spec.regions)
        if isinstance(move, Done):
            return CREDENTIALS_SECONDS if own else None
        if isinstance(move, Wait) and not obj.deleting:
            return UNREACHABLE_SECONDS if own else SAFETY_SECONDS
        at_once = isinstance(move, ConnectRegions | SetEndpoint | AnnotateClaims)
        return AT_ONCE if at_once else POLL_SECONDS

    async def act(self, move: Move) -> ProxmoxCluster | None:
        """Execute a move."""
        match move:
            case ConnectRegions():
                self._registry.add(move.owner, move.regions)
            case ApplyPools():
                for pool in move.pools:
                    await self._kube.apply(pool, force=True)
                for name in move.unwanted:
                    await self._delete(InClusterIPPool, name, move.namespace)
            case ProtectSecrets():
                for ref in move.refs:
                    await protect_secret(self._kube, ref, move.namespace)
            case ReleaseSecrets():
                for ref in move.refs:
                    await release_secret(self._kube, ref)
            case ClaimEndpoint():
                await self._create(move.claim)
            case SetEndpoint():
                return await self._set_endpoint(move)
            case ReleaseEndpoint():
                for name in move.claims:
                    await self._delete(IPAddressClaim, name, move.namespace)
            case AnnotateClaims():
                for name in move.claims:
                    await self._annotate(name, move.namespace)
            case Wait() | Done():
                return None
            case _:
                assert_never(move)
        return None

    async def _annotate(self, claim: str, namespace: str) -> None:
        change = {"metadata": {"annotations": {POOL_DELETED: "true"}}}
        try:
            await self._kube.merge(IPAddressClaim, claim, change, namespace)
        except NotFound:
            return

    async def _set_endpoint(self, move: SetEndpoint) -> ProxmoxCluster:
        endpoint: dict[str, Any] = {"host": move.endpoint.host, "port": move.endpoint.port}
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": move.resource_version},
            "spec": {"controlPlaneEndpoint": endpoint},
        }
        return await self._kube.merge(ProxmoxCluster, move.key.name, change, move.key.namespace)

    async def _create(self, claim: IPAddressClaim) -> None:
        try:
            await self._kube.create(claim)
        except AlreadyExists:
            return

    async def _delete(self, kind: Any, name: str, namespace: str) -> None:
        try:
            await self._kube.delete(kind, name, namespace)
        except NotFound:
            return

    # ---- events from caches and inventories

    def _cluster_changed(
        self, old: ProxmoxCluster | None, new: ProxmoxCluster | None, listed: bool
    ) -> None:
        """Disconnect the regions of a deleted cluster."""
        if new is None and old is not None:
            self._registry.remove(Key(old.namespace, old.name))

    def _machine_keys(self, machine: ProxmoxMachine) -> Iterable[Key]:
        key = cluster_key(machine)
        clusters = self._clusters.list(machine.namespace)
        return [Key(c.namespace, c.name) for c in clusters if key and cluster_name(c) == key.name]

    def _address_keys(self, address: IPAddress) -> Iterable[Key]:
        claim = address.spec.claim_ref.name
        clusters = self._clusters.list(address.namespace)
        return [
            Key(c.namespace, c.name)
            for c in clusters
            if endpoint_claim(c) == claim or c.deleting  # which waits for its last address
        ]

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Enqueue all clusters when the health of a region or a host changes."""

        def on_event(event: InventoryEvent) -> None:
            if isinstance(event, InventoryHealth) or _is_host(event):
                for cluster in self._clusters.list():
                    wake(Key(cluster.namespace, cluster.name))

        self._regions.subscribe(on_event)


def needs(obj: ProxmoxCluster) -> bool:
    """Whether the object is ours to reconcile; externally managed ones are not."""
    return MANAGED_BY not in obj.metadata.annotations and MANAGED_BY not in obj.metadata.labels


def _proxmox_cluster_keys(cluster: Cluster) -> Iterable[Key]:
    key = proxmox_cluster_key(cluster)
    return (key,) if key else ()


def _is_host(change: InventoryChange) -> bool:
    return isinstance(change.after or change.before, ObservedHost)


def _owner_keys(obj: Any) -> Iterable[Key]:
    owners = obj.metadata.owner_references
    return [Key(obj.namespace, o.name) for o in owners if o.kind == ProxmoxCluster.resource.kind]


def _is_created_or_deleted(old: Any, new: Any) -> bool:
    return old is None or new is None
