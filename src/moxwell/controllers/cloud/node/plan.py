"""What a node needs next: pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node, NodeAddress
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import Answer, Gone, NotOurs, Unknown, guest_of
from moxwell.controllers.cloud.identity import Place
from moxwell.runtime.move import Done, Wait

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
RESERVED = ("kubernetes.io", "k8s.io")
GENERATIONS = (  # the older label is the source of truth, as in k8s.io/cloud-provider
    (identity.OLD_ZONE, identity.ZONE),
    (identity.OLD_REGION, identity.REGION),
    (identity.OLD_TYPE, identity.TYPE),
)


@dataclass(frozen=True, slots=True)
class Initialize:
    """Everything in one write: provider ID, labels, and the taint taken off."""

    change: Mapping[str, Any]
    addresses: tuple[NodeAddress, ...]


@dataclass(frozen=True, slots=True)
class Relabel:
    """Labels to write (None: to take off); ``where`` if the guest has moved."""

    labels: Mapping[str, str | None]
    addresses: tuple[NodeAddress, ...]
    where: str = ""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Only the addresses."""

    addresses: tuple[NodeAddress, ...]


Move = Initialize | Relabel | Refresh | Wait | Done


def is_new(node: Node) -> bool:
    """The kubelet says that a cloud must speak first."""
    return any(t.key == TAINT for t in node.spec.taints)


def next_move(
    node: Node, answer: Answer, place: Place | None, features: Features, pinned: bool
) -> Move:
    """``pinned``: volumes are attached that can only be where the node was."""
    if isinstance(answer, NotOurs):
        return Wait("GuestNotFound", answer.why) if answer.why and is_new(node) else Done()
    if isinstance(answer, Gone):
        return Wait("GuestGone", f"{answer.what} is not there any more")
    if isinstance(answer, Unknown) or place is None:
        why = answer.why if isinstance(answer, Unknown) else "the guest cannot be read"
        return Wait("GuestUnknown", why)
    return _begin(node, place, features) if is_new(node) else _keep(node, place, features, pinned)


def _begin(node: Node, place: Place, features: Features) -> Move:
    found = identity.addresses(node, place, features)
    if found.why_not:
        return Wait("AddressesNotReady", found.why_not)
    said, true = guest_of(node), (place.region, place.vmid)
    if node.spec.provider_id and said is not None and said != true:
        return Wait(
            "ProviderIDWrong",
            f"the provider ID says {said[0]}/{said[1]}, but the guest is {true[0]}/{true[1]}",
        )
    return Initialize(initialization(node, place, features), found.found)


def _keep(node: Node, place: Place, features: Features, pinned: bool) -> Move:
    if not node.spec.provider_id and identity.REGION not in node.metadata.labels:
        return Wait(
            "NeverInitialized",
            "the kubelet runs without --cloud-provider=external, so nobody asked for an identity: "
            "set it, delete the node and restart the kubelet",
        )
    rows = identity.addresses(node, place, features).found or node.status.addresses
    if has_moved(node, place, features):
        if pinned:
            return Wait("ZoneLabelKept", "volumes are attached that exist only in the old zone")
        where = f"{place.region}/{identity.zone(place, features)}"
        return Relabel(placement(node, place, features), rows, where)
    if behind := generations(node.metadata.labels):
        return Relabel(behind, rows)
    return Refresh(rows) if rows != node.status.addresses else Done()


def has_moved(node: Node, place: Place, features: Features) -> bool:
    """Whether labels are to follow a guest that is elsewhere now."""
    there = node.metadata.labels
    wanted = placement(node, place, features)
    return features.force_update_labels and any(there.get(k) != v for k, v in wanted.items())


def placement(node: Node, place: Place, features: Features) -> dict[str, str | None]:
    """The labels that follow the guest: where it is, and the groups it belongs to now."""
    groups = identity.ha_labels(place)
    stale = {k: None for k in node.metadata.labels if k.startswith(identity.HA)}
    return {**stale, **identity.topology(place, features), **groups}


def generations(labels: Mapping[str, str]) -> dict[str, str | None]:
    """Labels of today that differ from, or lack, what their older form says."""
    return {
        new: labels[old]
        for old, new in GENERATIONS
        if old in labels and labels.get(new) != labels[old]
    }


def initialization(node: Node, place: Place, features: Features) -> dict[str, Any]:
    """The merge patch that makes a node a node of this cloud."""
    wanted = identity.labels(place, features)
    labels = {k: v for k, v in wanted.items() if _may_set(k, v, node.metadata.labels)}
    taints = [msgspec.to_builtins(t) for t in node.spec.taints if t.key != TAINT]
    spec: dict[str, Any] = {"taints": taints or None}
    if not node.spec.provider_id:
        spec["providerID"] = identity.provider_id(place, features)
    meta: dict[str, Any] = {
        "resourceVersion": node.metadata.resource_version,
        "labels": labels,
        "annotations": {identity.INSTANCE_ID: str(place.vmid)},
    }
    return {"metadata": meta, "spec": spec}


def _may_set(key: str, value: str, there: Mapping[str, str]) -> bool:
    """Cloud labels replace others; labels of our own never fight with a person's."""
    domain = key.partition("/")[0]
    if domain.endswith(RESERVED):
        return True
    return there.get(key, value) == value
