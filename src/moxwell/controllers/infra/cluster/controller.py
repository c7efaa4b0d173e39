"""
The loop over clusters: look, decide, take one step, tell.

Woken by the Cluster, by machines that go, by pools and addresses, and by regions that fall silent
or answer again. Credentials are read again every minute, and at once when a region refuses them: a
rotated Secret is in use without a restart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME, MANAGED_BY
from moxwell.api.infra.cluster import ClusterStatus, ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import (
    InClusterIPPool,
    IPAddress,
    IPAddressClaim,
    IPAddressClaimSpec,
    PoolSpec,
)
from moxwell.api.ipam import PoolRef as IpamPoolRef
from moxwell.api.kinds import own
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.cluster import plan
from moxwell.controllers.infra.cluster.credentials import Credentials
from moxwell.controllers.infra.cluster.plan import Move, describe, next_move
from moxwell.controllers.infra.cluster.see import Eyes, endpoint_claim
from moxwell.controllers.infra.owners import cluster_key, ground_key
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.pve.model import Event, Health, HostSeen
from moxwell.pve.regions import Regions
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch
from moxwell.scheduling.zone_settings import MadePool

NAME = "infra.cluster"
FINALIZER = "proxmoxcluster.infrastructure.cluster.x-k8s.io"
ZONE_LABEL = "topology.kubernetes.io/proxmox-zone"
POLLED, CREDENTIALS, SAFETY = 3.0, 60.0, 60.0
MENDED = 10.0  # while a region that a cluster brings is silent: somebody may mend its Secret


class ClusterReconciler:
    """The ground of each ProxmoxCluster."""

    kind = ProxmoxCluster
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        clusters: Cache[ProxmoxCluster],
        *,
        eyes: Eyes,
        book: RegionBook,
        credentials: Credentials,
    ) -> None:
        self._credentials = credentials
        self._kube, self._regions, self._clusters = kube, regions, clusters
        self._eyes, self._book = eyes, book
        self.watches: Sequence[Watch] = (
            Watch(Cluster, _ground_keys),
            Watch(ProxmoxMachine, self._of_machine, _is_coming_or_going),
            Watch(InClusterIPPool, _owner_keys),
            Watch(IPAddressClaim, _owner_keys),
            Watch(IPAddress, self._of_address),
        )

    async def reconcile(self, obj: ProxmoxCluster) -> Outcome[ClusterStatus]:
        """One look and at most one step."""
        seen = await self._eyes.see(obj)
        move = next_move(obj, seen)
        await self._take(obj, move)
        settled = isinstance(move, Done)
        if settled and obj.deleting:
            self._book.drop(Key(obj.namespace, obj.name))
        return Outcome(describe(obj, seen, move), _again(obj, move), settled)

    # ---- steps

    async def _take(self, obj: ProxmoxCluster, move: Move) -> None:
        match move:
            case plan.PutPools():
                for pool in move.pools:
                    await self._put_pool(obj, pool, move.grace)
                for name in move.unwanted:
                    await self._delete(InClusterIPPool, obj, name)
            case plan.HoldSecrets():
                for ref in move.refs:
                    await self._credentials.hold(obj, ref)
            case plan.ReleaseSecrets():
                for ref in move.refs:
                    await self._credentials.release(ref)
            case plan.AskEndpoint():
                await self._ask_endpoint(obj, move)
            case plan.PutEndpoint():
                await self._put_endpoint(obj, move)
            case plan.GiveBack():
                for name in move.claims:
                    await self._delete(IPAddressClaim, obj, name)

    async def _put_endpoint(self, obj: ProxmoxCluster, move: plan.PutEndpoint) -> None:
        where: dict[str, Any] = {"host": move.endpoint.host, "port": move.endpoint.port}
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": obj.metadata.resource_version},
            "spec": {"controlPlaneEndpoint": where},
        }
        await self._kube.merge(ProxmoxCluster, obj.name, change, obj.namespace)

    async def _put_pool(self, obj: ProxmoxCluster, pool: MadePool, grace: int) -> None:
        config = pool.config
        made = InClusterIPPool(
            metadata=ObjectMeta(
                name=pool.name,
                namespace=obj.namespace,
                labels={CLUSTER_NAME: cluster_name(obj), ZONE_LABEL: pool.zone},
                owner_references=(own(obj),),
            ),
            spec=PoolSpec(
                addresses=config.addresses,
                prefix=config.prefix,
                gateway=config.gateway,
                address_reuse_grace_period_seconds=grace,
            ),
        )
        await self._kube.apply(made, force=True)

    async def _ask_endpoint(self, obj: ProxmoxCluster, move: plan.AskEndpoint) -> None:
        cluster = cluster_name(obj)
        meta = ObjectMeta(
            name=endpoint_claim(obj),
            namespace=obj.namespace,
            labels={CLUSTER_NAME: cluster},
            owner_references=(own(obj),),
        )
        ref = IpamPoolRef(api_group=move.pool.api_group, kind=move.pool.kind, name=move.pool.name)
        spec = IPAddressClaimSpec(cluster_name=cluster, pool_ref=ref)
        try:
            await self._kube.create(IPAddressClaim(metadata=meta, spec=spec))
        except AlreadyExists:
            return

    async def _delete(self, kind: Any, obj: ProxmoxCluster, name: str) -> None:
        try:
            await self._kube.delete(kind, name, obj.namespace)
        except NotFound:
            return

    # ---- what wakes it

    def _of_machine(self, machine: ProxmoxMachine) -> Iterable[Key]:
        key = cluster_key(machine)
        named = [c for c in self._clusters.list(machine.namespace) if key and _is_of(c, key)]
        return [Key(c.namespace, c.name) for c in named]

    def _of_address(self, address: IPAddress) -> Iterable[Key]:
        claim = address.spec.claim_ref.name
        found = self._clusters.list(address.namespace)
        return [Key(c.namespace, c.name) for c in found if endpoint_claim(c) == claim]

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Let regions and hosts that come and go wake it."""

        def on_event(event: Event) -> None:
            if isinstance(event, Health) or isinstance(event.after or event.before, HostSeen):
                for cluster in self._clusters.list():
                    wake(Key(cluster.namespace, cluster.name))

        self._regions.subscribe(on_event)


def needs(obj: ProxmoxCluster) -> bool:
    """Objects that somebody else manages are left alone."""
    return MANAGED_BY not in obj.metadata.annotations and MANAGED_BY not in obj.metadata.labels


def _ground_keys(cluster: Cluster) -> Iterable[Key]:
    key = ground_key(cluster)
    return (key,) if key else ()


def _owner_keys(obj: Any) -> Iterable[Key]:
    owners = obj.metadata.owner_references
    return [Key(obj.namespace, o.name) for o in owners if o.kind == ProxmoxCluster.resource.kind]


def _is_of(cluster: ProxmoxCluster, key: Key) -> bool:
    return cluster_name(cluster) == key.name


def _is_coming_or_going(old: Any, new: Any) -> bool:
    return old is None or new is None


def _again(obj: ProxmoxCluster, move: Move) -> float | None:
    brings = obj.spec.credentials_ref is not None or bool(obj.spec.regions)
    if isinstance(move, Done):
        return CREDENTIALS if brings else None
    if isinstance(move, Wait) and not obj.deleting:
        return MENDED if brings else SAFETY
    return POLLED
