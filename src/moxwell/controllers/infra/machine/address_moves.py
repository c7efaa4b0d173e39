"""Executes the moves of ``infra.machine`` that write IPAddressClaims."""

from typing import Any, assert_never

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.ipam import IPAddressClaim, IPAddressClaimSpec, IPPoolReference
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.address_users import NETWORK, REGION, TAKEN, TAKEN_BY
from moxwell.controllers.infra.machine.moves import (
    AddressMove,
    ClaimAddresses,
    ReleaseAddresses,
    SetAddressesAside,
)
from moxwell.controllers.infra.machine.observed import TakenAddress
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound


async def act(kube: Kube, move: AddressMove) -> None:
    """Execute a move; a second execution has no effect."""
    match move:
        case ClaimAddresses():
            await _claim(kube, move)
        case SetAddressesAside():
            await _set_aside(kube, move)
        case ReleaseAddresses():
            await _release(kube, move)
        case _:
            assert_never(move)


async def _claim(kube: Kube, move: ClaimAddresses) -> None:
    for name in move.wrong:
        await _delete(kube, move.namespace, name)
    for request in move.requests:
        meta = ObjectMeta(
            name=request.name,
            namespace=move.namespace,
            labels={CLUSTER_NAME: move.cluster, **move.labels},
            owner_references=(move.owner,),
        )
        pool = request.pool
        ref = IPPoolReference(api_group=pool.api_group, kind=pool.kind, name=pool.name)
        spec = IPAddressClaimSpec(cluster_name=move.cluster, pool_ref=ref)
        try:
            await kube.create(IPAddressClaim(metadata=meta, spec=spec))
        except AlreadyExists:
            continue  # the cache is behind, or another object has the name


async def _set_aside(kube: Kube, move: SetAddressesAside) -> None:
    for taken in move.taken:
        change = reservation(move, taken)
        await kube.merge(IPAddressClaim, taken.claim, change, move.namespace)


def reservation(move: SetAddressesAside, taken: TakenAddress) -> dict[str, Any]:
    """The change that turns a machine's claim into a reservation of the cluster."""
    notes = {TAKEN_BY: taken.user, REGION: taken.region, NETWORK: taken.network}
    meta = {
        "labels": {TAKEN: "true"},
        "annotations": notes,
        "ownerReferences": [msgspec.to_builtins(move.owner)],
    }
    return {"metadata": meta}


async def _release(kube: Kube, move: ReleaseAddresses) -> None:
    for name in move.claims:
        if move.keep:
            change = {"metadata": {"ownerReferences": None}}
            await kube.merge(IPAddressClaim, name, change, move.namespace)
        else:
            await _delete(kube, move.namespace, name)


async def _delete(kube: Kube, namespace: str, name: str) -> None:
    try:
        await kube.delete(IPAddressClaim, name, namespace)
    except NotFound:
        return
