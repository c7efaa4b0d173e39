"""
The Secrets with a cluster's own Proxmox credentials.

While guests exist a finalizer keeps each Secret, even if its namespace is deleted: without it
nobody could remove the guests. It is CAPMOX's finalizer, so that its Secrets are released as well.
"""

from collections.abc import Iterable, Iterator

from moxwell.api.core.resources import Secret
from moxwell.api.gateway import ReferenceGrant
from moxwell.api.infra.cluster import ProxmoxCluster, SecretRef
from moxwell.controllers.infra.policy import InfraPolicy
from moxwell.controllers.infra.zone_defaults import region_of_secret
from moxwell.errors import Denied
from moxwell.kube.client import Kube
from moxwell.kube.errors import KubeForbidden, NotFound
from moxwell.kube.reader import Reader
from moxwell.pve.config import RegionConfig, from_secret

SECRET_KEYS = ("url", "token", "secret", "insecure", "root_ca", "fingerprint")
MOVE_LABEL = "clusterctl.cluster.x-k8s.io/move"
SECRET_FINALIZER = "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret"


class ReferenceNotPermitted(Denied):
    """A Secret in another namespace, without a ReferenceGrant."""

    reason = "RefNotPermitted"  # as in the conditions of the Gateway API


async def read_credentials(
    obj: ProxmoxCluster, reader: Reader, policy: InfraPolicy
) -> tuple[list[RegionConfig], tuple[SecretRef, ...]]:
    """The regions of the cluster's Secrets, and the Secrets without our finalizer or label."""
    configs, unprotected = [], []
    for region, ref in _references(obj):
        if not await _is_permitted(obj, ref, reader, policy):
            raise ReferenceNotPermitted(
                f"Secret {ref.namespace}/{ref.name} is in another namespace: its owner must create "
                "a ReferenceGrant there, from ProxmoxCluster in namespace "
                f"{obj.namespace} to Secret"
            )
        secret = await reader.get(Secret, ref.name, ref.namespace)
        given = {k: v for k in SECRET_KEYS if (v := secret.read(k)) is not None}
        config = from_secret(region, {k: v.strip() for k, v in given.items()})
        policy.refuse_urls(config.urls)
        configs.append(config)
        if _is_unprotected(secret, obj):
            unprotected.append(ref)
    return configs, tuple(unprotected)


async def _is_permitted(
    obj: ProxmoxCluster, ref: SecretRef, reader: Reader, policy: InfraPolicy
) -> bool:
    """Whether a cluster may use a Secret: one of its namespace, or one with a ReferenceGrant."""
    if ref.namespace == obj.namespace or policy.cross_namespace_credentials:
        return True
    try:
        grants = (await reader.list(ReferenceGrant, ref.namespace or "")).items
    except (NotFound, KubeForbidden):  # the kind is not served, or the operator may not read it
        return False
    return any(grants_reference(grant, obj, ref.name) for grant in grants)


def grants_reference(grant: ReferenceGrant, obj: ProxmoxCluster, secret: str) -> bool:
    """Whether a grant in the namespace of a Secret lets a cluster refer to the Secret."""
    group, kind = obj.resource.group, obj.resource.kind
    given = any(
        (f.group, f.kind, f.namespace) == (group, kind, obj.namespace) for f in grant.spec.sources
    )
    return given and any(
        (t.group, t.kind) == ("", Secret.resource.kind) and t.name in (None, "", secret)
        for t in grant.spec.to
    )


async def protected_secrets(
    obj: ProxmoxCluster,
    clusters: Iterable[ProxmoxCluster],
    reader: Reader,
    policy: InfraPolicy,
) -> tuple[SecretRef, ...]:
    """The Secrets with our finalizer that no other cluster references."""
    others = {ref for other in clusters if other.uid != obj.uid for _, ref in _references(other)}
    own = dict.fromkeys(ref for _, ref in _references(obj) if ref not in others)
    found = []
    for ref in own:
        if not await _is_permitted(obj, ref, reader, policy):
            continue
        secret = await reader.find(Secret, ref.name, ref.namespace)
        if secret is not None and SECRET_FINALIZER in secret.metadata.finalizers:
            found.append(ref)
    return tuple(found)


async def protect_secret(kube: Kube, ref: SecretRef, namespace: str) -> None:
    """Add our finalizer, and the move label to a Secret in the namespace of the cluster."""
    secret = await kube.get(Secret, ref.name, ref.namespace)
    meta = secret.metadata
    change: dict[str, object] = {
        "resourceVersion": meta.resource_version,
        "finalizers": sorted({*meta.finalizers, SECRET_FINALIZER}),
    }
    if secret.namespace == namespace:
        change["labels"] = {MOVE_LABEL: ""}
    await kube.merge(Secret, ref.name, {"metadata": change}, ref.namespace)


async def release_secret(kube: Kube, ref: SecretRef) -> None:
    """Remove our finalizer; a Secret that was deleted meanwhile disappears now."""
    try:
        secret = await kube.get(Secret, ref.name, ref.namespace)
        rest = [f for f in secret.metadata.finalizers if f != SECRET_FINALIZER]
        version = secret.metadata.resource_version
        change = {"metadata": {"resourceVersion": version, "finalizers": rest}}
        await kube.merge(Secret, ref.name, change, ref.namespace)
    except NotFound:
        return


def _references(obj: ProxmoxCluster) -> Iterator[tuple[str, SecretRef]]:
    """Each region of the cluster's own, with the namespace and name of its Secret."""
    spec = obj.spec
    for region in spec.regions:
        yield region.name, _with_namespace(obj, region.credentials_ref)
    if spec.credentials_ref is not None:
        ref = _with_namespace(obj, spec.credentials_ref)
        yield spec.region or region_of_secret(ref.namespace, ref.name), ref


def _with_namespace(obj: ProxmoxCluster, ref: SecretRef) -> SecretRef:
    return SecretRef(name=ref.name, namespace=ref.namespace or obj.namespace)


def _is_unprotected(secret: Secret, obj: ProxmoxCluster) -> bool:
    if secret.deleting:  # the API server refuses new finalizers
        return False
    movable = secret.namespace != obj.namespace or MOVE_LABEL in secret.metadata.labels
    return SECRET_FINALIZER not in secret.metadata.finalizers or not movable
