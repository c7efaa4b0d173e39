"""
The Secrets a cluster brings: read, held while machines need them, let go by the last who does.

In flows a ProxmoxCluster, out flow the regions of its Secrets and which of them to hold or release.
A held Secret outlives ``kubectl delete namespace`` or a hasty hand, for without it nobody could
remove the guests any more. The finalizer is CAPMOX's own, so its Secrets are let go as well.
"""

from collections.abc import Iterator

from moxwell.api.core.resources import Secret
from moxwell.api.infra.cluster import ProxmoxCluster, SecretRef
from moxwell.controllers.infra.zone_defaults import region_of_secret
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound
from moxwell.pve.config import RegionConfig, from_secret
from moxwell.runtime.cache import Cache

SECRET_KEYS = ("url", "token", "secret", "insecure", "root_ca", "fingerprint")
MOVE = "clusterctl.cluster.x-k8s.io/move"
HOLD = "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret"


class Credentials:
    """Reads and keeps the Secrets of clusters."""

    def __init__(self, kube: Kube, clusters: Cache[ProxmoxCluster]) -> None:
        self._kube, self._clusters = kube, clusters

    async def read(self, obj: ProxmoxCluster) -> tuple[list[RegionConfig], tuple[SecretRef, ...]]:
        """The regions that the cluster brings, and the Secrets that are not held yet."""
        configs, loose = [], []
        for region, ref in _wanted(obj):
            secret = await self._kube.get(Secret, ref.name, ref.namespace)
            given = {k: v for k in SECRET_KEYS if (v := secret.read(k)) is not None}
            configs.append(from_secret(region, {k: v.strip() for k, v in given.items()}))
            if _is_loose(secret, obj):
                loose.append(ref)
        return configs, tuple(loose)

    async def hold(self, obj: ProxmoxCluster, ref: SecretRef) -> None:
        """Keep a Secret from going, and let ``clusterctl move`` take it along."""
        secret = await self._kube.get(Secret, ref.name, ref.namespace)
        meta = secret.metadata
        change: dict[str, object] = {
            "resourceVersion": meta.resource_version,
            "finalizers": sorted({*meta.finalizers, HOLD}),
        }
        if secret.namespace == obj.namespace:
            change["labels"] = {MOVE: ""}
        await self._kube.merge(Secret, ref.name, {"metadata": change}, ref.namespace)

    async def held_for(self, obj: ProxmoxCluster) -> tuple[SecretRef, ...]:
        """The Secrets that are held, and by no other cluster than this one."""
        others = {
            ref
            for other in self._clusters.list()
            if other.uid != obj.uid
            for _, ref in _wanted(other)
        }
        mine = dict.fromkeys(ref for _, ref in _wanted(obj) if ref not in others)
        return tuple([ref for ref in mine if await self._is_held(ref)])

    async def _is_held(self, ref: SecretRef) -> bool:
        try:
            secret = await self._kube.get(Secret, ref.name, ref.namespace)
        except NotFound:
            return False
        return HOLD in secret.metadata.finalizers

    async def release(self, ref: SecretRef) -> None:
        """Nobody needs it any more; if it was deleted meanwhile, it goes now."""
        try:
            secret = await self._kube.get(Secret, ref.name, ref.namespace)
            rest = [f for f in secret.metadata.finalizers if f != HOLD]
            version = secret.metadata.resource_version
            change = {"metadata": {"resourceVersion": version, "finalizers": rest}}
            await self._kube.merge(Secret, ref.name, change, ref.namespace)
        except NotFound:
            return


def _wanted(obj: ProxmoxCluster) -> Iterator[tuple[str, SecretRef]]:
    """Each region that the cluster brings, with its Secret's full name."""
    spec = obj.spec
    for region in spec.regions:
        yield region.name, _whole(obj, region.credentials_ref)
    if spec.credentials_ref is not None:
        ref = _whole(obj, spec.credentials_ref)
        yield spec.region or region_of_secret(ref.namespace, ref.name), ref


def _whole(obj: ProxmoxCluster, ref: SecretRef) -> SecretRef:
    return SecretRef(name=ref.name, namespace=ref.namespace or obj.namespace)


def _is_loose(secret: Secret, obj: ProxmoxCluster) -> bool:
    """Not held, and it could be: what is going already takes no finalizer."""
    if secret.deleting:
        return False
    movable = secret.namespace != obj.namespace or MOVE in secret.metadata.labels
    return HOLD not in secret.metadata.finalizers or not movable
