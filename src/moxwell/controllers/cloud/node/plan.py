"""What a node needs next: initialization, new labels, new addresses, or nothing. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node, NodeAddress
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.guest_lookup import (
    GuestGone,
    GuestUnknown,
    LookupResult,
    NotAGuest,
    guest_of,
)
from moxwell.controllers.cloud.identity import GuestIdentity
from moxwell.runtime.move import Done, Wait

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
RESERVED = ("kubernetes.io", "k8s.io")
GENERATIONS = (  # deprecated label, label; the deprecated one wins, as in k8s.io/cloud-provider
    (identity.OLD_ZONE, identity.ZONE),
    (identity.OLD_REGION, identity.REGION),
    (identity.OLD_TYPE, identity.TYPE),
)


class CloudNodeReason(StrEnum):
    """Reasons of events and waits."""

    ADDRESSES_NOT_READY = "AddressesNotReady"
    GUEST_GONE = "GuestGone"
    GUEST_NOT_FOUND = "GuestNotFound"
    GUEST_UNKNOWN = "GuestUnknown"
    NEVER_INITIALIZED = "NeverInitialized"
    NO_ADDRESS = "NoAddress"
    PROVIDER_ID_WRONG = "ProviderIDWrong"
    RELABELLED = "Relabelled"
    SYNCED = "Synced"
    ZONE_LABEL_KEPT = "ZoneLabelKept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCloudNode:
    """
    The guest of a node.

    ``pinned``: a volume is attached that exists only in the zone of the node's label.
    ``young``: the guest may be too new for the inventory.
    """

    result: LookupResult
    guest: GuestIdentity | None = None
    pinned: bool = False
    young: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeCloudNode:
    """Set provider ID and labels and remove the taint, in one write."""

    name: str
    change: Mapping[str, Any]
    addresses: tuple[NodeAddress, ...]
    created: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelNode:
    """Set labels (None removes one); ``moved_to`` is set if the guest was migrated."""

    name: str
    labels: Mapping[str, str | None]
    addresses: tuple[NodeAddress, ...]
    moved_to: str = ""


@dataclass(frozen=True, slots=True)
class RefreshAddresses:
    """Only ``status.addresses`` changes."""

    addresses: tuple[NodeAddress, ...]


CloudNodeMove = InitializeCloudNode | RelabelNode | RefreshAddresses | Wait | Done


def is_new(node: Node) -> bool:
    """Whether the node waits for its initialization by a cloud controller."""
    return any(t.key == TAINT for t in node.spec.taints)


def plan_node(node: Node, seen: ObservedCloudNode, features: Features) -> CloudNodeMove:
    """The next move for a node."""
    result, guest = seen.result, seen.guest
    if isinstance(result, NotAGuest):
        if result.why and is_new(node):
            return Wait(CloudNodeReason.GUEST_NOT_FOUND, result.why)
        return Done()
    if isinstance(result, GuestGone):
        return Wait(CloudNodeReason.GUEST_GONE, f"{result.what} does not exist any more")
    if isinstance(result, GuestUnknown) or guest is None:
        why = result.why if isinstance(result, GuestUnknown) else "the guest cannot be read"
        return Wait(CloudNodeReason.GUEST_UNKNOWN, why)
    if is_new(node):
        return _initialize(node, guest, features)
    return _update(node, guest, features, pinned=seen.pinned)


def _initialize(node: Node, guest: GuestIdentity, features: Features) -> CloudNodeMove:
    addresses = identity.addresses(node, guest, features)
    if addresses.why_not:
        return Wait(CloudNodeReason.ADDRESSES_NOT_READY, addresses.why_not)
    named, found = guest_of(node), (guest.region, guest.vmid)
    if node.spec.provider_id and named is not None and named != found:
        return Wait(
            CloudNodeReason.PROVIDER_ID_WRONG,
            f"the provider ID names {named[0]}/{named[1]}, but the guest is {found[0]}/{found[1]}",
        )
    return InitializeCloudNode(
        name=node.name,
        change=initialization(node, guest, features),
        addresses=addresses.found,
        created=node.metadata.creation_timestamp,
    )


def _update(node: Node, guest: GuestIdentity, features: Features, *, pinned: bool) -> CloudNodeMove:
    if not node.spec.provider_id and identity.REGION not in node.metadata.labels:
        return Wait(
            CloudNodeReason.NEVER_INITIALIZED,
            "the kubelet runs without --cloud-provider=external, so the node was not initialized: "
            "set the flag, delete the node and restart the kubelet",
        )
    rows = identity.addresses(node, guest, features).found or node.status.addresses
    if has_moved(node, guest, features):
        if pinned:
            text = "a volume is attached that exists only in the old zone"
            return Wait(CloudNodeReason.ZONE_LABEL_KEPT, text)
        moved_to = f"{guest.region}/{identity.zone(guest, features)}"
        labels = topology_labels(node, guest, features)
        return RelabelNode(name=node.name, labels=labels, addresses=rows, moved_to=moved_to)
    if outdated := current_labels(node.metadata.labels):
        return RelabelNode(name=node.name, labels=outdated, addresses=rows)
    return RefreshAddresses(rows) if rows != node.status.addresses else Done()


def has_moved(node: Node, guest: GuestIdentity, features: Features) -> bool:
    """Whether labels must follow a guest that was migrated."""
    labels = node.metadata.labels
    wanted = topology_labels(node, guest, features)
    return features.force_update_labels and any(labels.get(k) != v for k, v in wanted.items())


def topology_labels(node: Node, guest: GuestIdentity, features: Features) -> dict[str, str | None]:
    """Region, zone and HA group labels of the guest; None for groups that it has left."""
    groups = identity.ha_labels(guest)
    stale = {k: None for k in node.metadata.labels if k.startswith(identity.HA)}
    return {**stale, **identity.topology(guest, features), **groups}


def current_labels(labels: Mapping[str, str]) -> dict[str, str | None]:
    """Labels that differ from their deprecated form, or are missing."""
    return {
        new: labels[old]
        for old, new in GENERATIONS
        if old in labels and labels.get(new) != labels[old]
    }


def initialization(node: Node, guest: GuestIdentity, features: Features) -> dict[str, Any]:
    """The merge patch that initializes a node."""
    wanted = identity.labels(guest, features)
    labels = {k: v for k, v in wanted.items() if _may_set(k, v, node.metadata.labels)}
    taints = [msgspec.to_builtins(t) for t in node.spec.taints if t.key != TAINT]
    spec: dict[str, Any] = {"taints": taints or None}
    if not node.spec.provider_id:
        spec["providerID"] = identity.provider_id(guest, features)
    meta: dict[str, Any] = {
        "resourceVersion": node.metadata.resource_version,
        "labels": labels,
        "annotations": {identity.INSTANCE_ID: str(guest.vmid)},
    }
    return {"metadata": meta, "spec": spec}


def _may_set(key: str, value: str, existing: Mapping[str, str]) -> bool:
    """Reserved labels are overwritten; other labels that a person has set are kept."""
    domain = key.partition("/")[0]
    if domain.endswith(RESERVED):
        return True
    return existing.get(key, value) == value
