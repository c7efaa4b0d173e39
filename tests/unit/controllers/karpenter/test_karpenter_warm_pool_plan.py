"""Which warm guests a node class gets and loses."""

from dataclasses import replace
from typing import Any

import pytest

from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus
from moxwell.api.infra.warm_guests import RESERVED_FOR, WARM_GUEST_HASH, WARM_GUEST_OF, count_in
from moxwell.api.karpenter.annotations import WARM_POOL
from moxwell.api.karpenter.proxmox import (
    InstanceTemplateRef,
    ProxmoxNodeClass,
    ProxmoxNodeClassSpec,
)
from moxwell.api.meta import ObjectMeta, OwnerReference
from moxwell.controllers.karpenter.proxmox.warm_guests import spec_hash
from moxwell.controllers.karpenter.proxmox.warm_pool.plan import (
    ObservedWarmPool,
    describe,
    next_move,
)
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Writes
from moxwell.scheduling.inventory_model import HostKey

CLUSTER = Key("default", "c")
OWNER = OwnerReference(api_version="v1", kind="Cluster", name="c", uid="u-c")
A, B = HostKey("north", "a"), HostKey("north", "b")
SPECS = {key: {"region": key.region, "target": key.name, "templateID": 9000} for key in (A, B)}


def node_class(count: str | None = "1") -> ProxmoxNodeClass:
    ref = InstanceTemplateRef(kind="ProxmoxTemplate", name="t")
    notes = {} if count is None else {WARM_POOL: count}
    meta = ObjectMeta(name="default", uid="u-class", annotations=notes)
    return ProxmoxNodeClass(metadata=meta, spec=ProxmoxNodeClassSpec(instance_template_ref=ref))


def guest(name: str, key: HostKey = A, *, ready: bool = True, **notes: str) -> ProxmoxMachine:
    of = {WARM_GUEST_OF: "default", WARM_GUEST_HASH: spec_hash(SPECS[key])}
    of |= {{"reserved": RESERVED_FOR, "hash": WARM_GUEST_HASH}[k]: v for k, v in notes.items()}
    condition = Condition(type="Ready", status="False", reason="Warm" if ready else "Cloning")
    return ProxmoxMachine(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"u-{name}", annotations=of),
        spec=ProxmoxMachineSpec(region=key.region, target=key.name),
        status=ProxmoxMachineStatus(conditions=(condition,), power_state="stopped"),
    )


def observed(*guests: ProxmoxMachine, **more: Any) -> ObservedWarmPool:
    names = {g.name for g in guests}
    return replace(ObservedWarmPool(CLUSTER, OWNER, SPECS, guests, names), **more)


def deleted(move: Writes | Done) -> list[str]:
    writes = move.writes if isinstance(move, Writes) else ()
    return sorted(w.name for w in writes if isinstance(w, Delete))


def created(move: Writes | Done) -> list[str]:
    """The hosts on which guests are made."""
    writes = move.writes if isinstance(move, Writes) else ()
    return [w.obj["spec"]["target"] for w in writes if isinstance(w, Create)]


FULL = (guest("one"), guest("two", B))
TABLE = [
    pytest.param("1", observed(), ["a", "b"], [], id="an empty pool is filled"),
    pytest.param("2", observed(*FULL), ["a", "b"], [], id="one more on each host"),
    pytest.param("1", observed(*FULL), [], [], id="a full pool is left"),
    pytest.param("0", observed(*FULL), [], ["one", "two"], id="none is wanted"),
    pytest.param(None, observed(*FULL), [], ["one", "two"], id="the annotation is removed"),
    pytest.param("no", observed(*FULL), [], ["one", "two"], id="the annotation is wrong"),
    pytest.param("3", observed(*FULL, most=2), [], ["one", "two"], id="more than allowed"),
    pytest.param(
        "1", observed(*FULL, owner=None), [], ["one", "two"], id="the cluster is being deleted"
    ),
    pytest.param(
        "1",
        observed(guest("new", ready=False), guest("one"), FULL[1]),
        [],
        ["new"],
        id="the one that is not ready is surplus",
    ),
    pytest.param("1", observed(guest("old", hash="x"), FULL[1]), [], ["old"], id="drifted"),
    pytest.param(
        "1", observed(*FULL, specs={A: SPECS[A]}), [], ["two"], id="a host is not selected any more"
    ),
    pytest.param(
        "1", observed(*FULL, problem="no region"), [], [], id="a mistake elsewhere keeps guests"
    ),
    pytest.param("1", observed(problem="no region"), [], [], id="a mistake elsewhere makes none"),
    pytest.param(
        "1",
        observed(guest("one", reserved="u-1"), FULL[1], claims={"u-1"}),
        ["a"],
        [],
        id="a reserved guest is kept and replaced",
    ),
    pytest.param(
        "1",
        observed(guest("one", reserved="u-1"), FULL[1]),
        [],
        ["one"],
        id="the claim of a reservation is gone",
    ),
    pytest.param(
        "1",
        observed(guest("one", reserved="u-1"), FULL[1], claims={"u-1"}, taken={"other": "u-1"}),
        [],
        ["one"],
        id="the claim of a reservation has another guest",
    ),
    pytest.param(
        "1",
        observed(guest("one", reserved="u-1"), FULL[1], taken={"one": "u-1"}),
        ["a"],
        [],
        id="the Machine of a deleted claim still refers to it",
    ),
]


@pytest.mark.parametrize(("count", "seen", "makes", "deletes"), TABLE)
def test_the_pool_is_kept(
    count: str | None, seen: ObservedWarmPool, makes: list[str], deletes: list[str]
) -> None:
    move = next_move(node_class(count), seen)
    assert (created(move), deleted(move)) == (makes, deletes)


def test_a_repeated_creation_has_the_same_name_and_a_used_name_is_never_reused() -> None:
    def names(seen: ObservedWarmPool) -> list[str]:
        move = next_move(node_class(), seen)
        assert isinstance(move, Writes)
        return [w.obj["metadata"]["name"] for w in move.writes if isinstance(w, Create)]

    first = names(observed())
    assert names(observed()) == first
    assert not set(first) & set(names(observed(used_names=set(first))))


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("20", 20), (" 3 ", 3), ("21", None), ("-1", None), ("", None), ("٣", None)],
)
def test_numbers_of_warm_guests(text: str, count: int | None) -> None:
    assert count_in({WARM_POOL: text}) == count


CONDITIONS = [
    pytest.param(None, observed(), (), id="not asked for"),
    pytest.param("1", observed(*FULL), ("True", "Ready", "2 of 2"), id="ready"),
    pytest.param(
        "1",
        observed(FULL[0]),
        ("False", "WarmGuestsNotReady", "1 of 2 warm guests are ready"),
        id="filling",
    ),
    pytest.param(
        "x", observed(), ("False", "InvalidWarmPool", f"annotations[{WARM_POOL}]: 'x'"), id="wrong"
    ),
    pytest.param(
        "3", observed(most=2), ("False", "WarmPoolNotAllowed", "may keep 2"), id="not allowed"
    ),
    pytest.param(
        "1", observed(problem="spec.region"), ("False", "NodeClassNotReady", "spec.region"), id="no"
    ),
]


@pytest.mark.parametrize(("count", "seen", "wanted"), CONDITIONS)
def test_the_condition_says_how_full_the_pool_is(
    count: str | None, seen: ObservedWarmPool, wanted: tuple[str, ...]
) -> None:
    found = describe(node_class(count), seen)["conditions"]
    if not wanted:
        assert found == []
        return
    (condition,) = found
    assert (condition["type"], condition["status"]) == ("WarmPoolReady", wanted[0])
    assert condition["reason"] == wanted[1]
    assert wanted[2] in condition["message"]
