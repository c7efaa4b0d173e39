"""What a node needs next: pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.api.core.nodes import Node, NodeAddress
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.identity import Place
from moxwell.controllers.cloud.lookup import Answer, Gone, NotOurs, Unknown
from moxwell.controllers.cloud.settings import Features
from moxwell.runtime.move import Settled, Wait

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
RESERVED = ("kubernetes.io", "k8s.io")


@dataclass(frozen=True, slots=True)
class Initialize:
    """Everything in one write: provider ID, labels, and the taint taken off."""

    change: Mapping[str, Any]
    addresses: tuple[NodeAddress, ...]


@dataclass(frozen=True, slots=True)
class Relabel:
    """The guest has moved: the labels that say where follow."""

    labels: Mapping[str, str]
    addresses: tuple[NodeAddress, ...]


@dataclass(frozen=True, slots=True)
class Refresh:
    """Only the addresses."""

    addresses: tuple[NodeAddress, ...]


Move = Initialize | Relabel | Refresh | Wait | Settled


def is_new(node: Node) -> bool:
    """The kubelet says that a cloud must speak first."""
    return any(t.key == TAINT for t in node.spec.taints)


def next_move(
    node: Node, answer: Answer, place: Place | None, features: Features, pinned: bool
) -> Move:
    """``pinned``: volumes are attached that can only be where the node was."""
    if isinstance(answer, NotOurs):
        return Settled()
    if isinstance(answer, Gone):
        return Wait("GuestGone", f"{answer.what} is not there any more")
    if isinstance(answer, Unknown) or place is None:
        why = answer.why if isinstance(answer, Unknown) else "the guest cannot be read"
        return Wait("GuestUnknown", why)
    found = identity.addresses(node, place, features)
    if is_new(node):
        if found.why_not:
            return Wait("AddressesNotReady", found.why_not)
        return Initialize(initialization(node, place, features), found.found)
    rows = found.found or node.status.addresses
    moved = identity.topology(place, features)
    differs = any(node.metadata.labels.get(k, v) != v for k, v in moved.items())
    if differs and features.force_update_labels:
        if pinned:
            return Wait("ZoneLabelKept", "volumes are attached that exist only in the old zone")
        return Relabel(moved, rows)
    return Refresh(rows) if rows != node.status.addresses else Settled()


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
