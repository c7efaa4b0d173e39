"""Which warm guests a node class gets and loses. Pure."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import GROUP, HUB, ProxmoxMachine
from moxwell.api.infra.warm_guests import RESERVED_FOR, WARM_GUEST_HASH, WARM_GUEST_OF, count_in
from moxwell.api.karpenter.annotations import MOST_PER_HOST, WARM_POOL
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.meta import OwnerReference
from moxwell.controllers.karpenter.proxmox.warm_guests import host_of, is_ready, spec_hash
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Writes
from moxwell.scheduling.inventory_model import HostKey

RESCAN_SECONDS = 30.0
CONDITION = "WarmPoolReady"
NAME_LIMIT, DIGEST = 63, 10
Json = dict[str, Any]


class WarmPoolReason(StrEnum):
    """Reasons of the condition WarmPoolReady."""

    READY = "Ready"
    NOT_READY = "WarmGuestsNotReady"
    INVALID_COUNT = "InvalidWarmPool"
    NOT_ALLOWED = "WarmPoolNotAllowed"
    NODE_CLASS_NOT_READY = "NodeClassNotReady"


@dataclass(frozen=True, slots=True)
class ObservedWarmPool:
    """What was observed of the warm guests of a node class."""

    cluster: Key
    owner: OwnerReference | None = None  # the Cluster; None: it is gone or being deleted
    specs: Mapping[HostKey, Json] = field(default_factory=dict)  # of a new guest, by host
    guests: tuple[ProxmoxMachine, ...] = ()
    used_names: Collection[str] = ()  # of all machines, and of those that Machines refer to
    claims: Collection[str] = ()  # UIDs of the node claims that exist
    taken: Mapping[str, str] = field(default_factory=dict)  # claim by the guest of its Machine
    most: int = MOST_PER_HOST  # that the operator allows per host
    problem: str = ""  # why no guest can be made now; existing ones stay


def wanted_count(obj: ProxmoxNodeClass, seen: ObservedWarmPool) -> int:
    """The guests per host; 0 if the annotation is wrong or not allowed."""
    count = count_in(obj.metadata.annotations) or 0
    return 0 if obj.deleting or seen.owner is None or count > seen.most else count


def next_move(obj: ProxmoxNodeClass, seen: ObservedWarmPool) -> Writes | Done:
    """Delete the guests that are not wanted, else create the missing ones."""
    count = wanted_count(obj, seen)
    if surplus := tuple(_unwanted(seen, count)):
        writes = (Delete(ProxmoxMachine, m.name, m.namespace, uid=m.uid) for m in surplus)
        return Writes(tuple(writes), requeue_after=RESCAN_SECONDS)
    missing = () if seen.problem else tuple(_missing(obj, seen, count))
    if missing:
        creations = tuple(Create(body, ProxmoxMachine.resource) for body in missing)
        return Writes(creations, requeue_after=RESCAN_SECONDS)
    return Done(RESCAN_SECONDS)


def _unwanted(seen: ObservedWarmPool, count: int) -> Iterable[ProxmoxMachine]:
    kept: dict[HostKey, int] = {}
    alive = [m for m in seen.guests if not m.deleting]
    for machine in sorted(alive, key=lambda m: (not is_ready(m), m.name)):
        uid, key = machine.metadata.annotations.get(RESERVED_FOR), host_of(machine)
        if uid is not None:
            if not _is_held(machine, uid, seen):
                yield machine
            continue
        if seen.problem and count:
            continue
        kept[key] = kept.get(key, 0) + 1
        if kept[key] > count or _is_outdated(machine, seen):
            kept[key] -= 1
            yield machine


def _is_held(machine: ProxmoxMachine, uid: str, seen: ObservedWarmPool) -> bool:
    """Whether a claim still needs its reservation: it exists and has no other guest."""
    if seen.taken.get(machine.name) == uid:
        return True
    return uid in seen.claims and uid not in seen.taken.values()


def _is_outdated(machine: ProxmoxMachine, seen: ObservedWarmPool) -> bool:
    spec = seen.specs.get(host_of(machine))
    return spec is None or spec_hash(spec) != machine.metadata.annotations.get(WARM_GUEST_HASH)


def _missing(obj: ProxmoxNodeClass, seen: ObservedWarmPool, count: int) -> Iterable[Json]:
    used = set(seen.used_names)
    for key, spec in sorted(seen.specs.items()):
        free = [m for m in seen.guests if RESERVED_FOR not in m.metadata.annotations]
        have = sum(1 for m in free if host_of(m) == key)  # also those that are being deleted
        for _ in range(count - have):
            name = _name(seen.cluster.name, obj, key, used)
            used.add(name)
            yield _body(obj, seen, name, spec)


def _name(cluster: str, obj: ProxmoxNodeClass, key: HostKey, used: Collection[str]) -> str:
    """The first free name: a repeated creation has the same name and makes no second guest."""
    stem = re.sub(r"[^a-z0-9-]+", "-", f"{cluster}-{obj.name}".lower())
    stem = stem[: NAME_LIMIT - DIGEST - 1].strip("-") or "node"
    number = 0
    while True:
        text = f"{cluster}/{obj.uid}/{key}/{number}"
        name = f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:DIGEST]}"
        if name not in used:
            return name
        number += 1


def _body(obj: ProxmoxNodeClass, seen: ObservedWarmPool, name: str, spec: Json) -> Json:
    owner = seen.owner
    assert owner is not None
    metadata: Json = {
        "name": name,
        "namespace": seen.cluster.namespace,
        "labels": {CLUSTER_NAME: seen.cluster.name},
        "annotations": {WARM_GUEST_OF: obj.name, WARM_GUEST_HASH: spec_hash(spec)},
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
            }
        ],
    }
    head = {"apiVersion": f"{GROUP}/{HUB}", "kind": "ProxmoxMachine"}
    return head | {"metadata": metadata, "spec": spec}


def describe(obj: ProxmoxNodeClass, seen: ObservedWarmPool) -> Json:
    """One condition if the node class asks for warm guests, else none."""
    if WARM_POOL not in obj.metadata.annotations:
        return {"conditions": []}
    truth, reason, message = _state(obj, seen)
    found = Condition(
        type=CONDITION,
        status="True" if truth else "False",
        reason=reason,
        message=message,
        observed_generation=obj.metadata.generation,
    )
    return {"conditions": [msgspec.to_builtins(found)]}


def _state(obj: ProxmoxNodeClass, seen: ObservedWarmPool) -> tuple[bool, WarmPoolReason, str]:
    field_name, count = f"metadata.annotations[{WARM_POOL}]", count_in(obj.metadata.annotations)
    if count is None:
        text = obj.metadata.annotations[WARM_POOL]
        message = f"{field_name}: {text[:20]!r} is not a number from 0 to {MOST_PER_HOST}; set one"
        return False, WarmPoolReason.INVALID_COUNT, message
    if count > seen.most:
        message = (
            f"{field_name}: the cluster may keep {seen.most} warm guests per host, not {count}; "
            "set a smaller number or ask the operator to set the annotation of the ProxmoxCluster"
        )
        return False, WarmPoolReason.NOT_ALLOWED, message
    if seen.problem:
        return False, WarmPoolReason.NODE_CLASS_NOT_READY, seen.problem
    ready, all_guests = sum(map(is_ready, seen.guests)), count * len(seen.specs)
    message = f"{ready} of {all_guests} warm guests are ready"
    if ready >= all_guests:
        return True, WarmPoolReason.READY, message
    waiting = _why(seen)
    return False, WarmPoolReason.NOT_READY, f"{message}{': ' if waiting else ''}{waiting}"


def _why(seen: ObservedWarmPool) -> str:
    """What the first guest that is not ready waits for."""
    for machine in seen.guests:
        ready = next((c for c in machine.status.conditions if c.type == "Ready"), None)
        if not is_ready(machine) and ready is not None and ready.message:
            return f"{machine.name}: {ready.message}"
    return ""
