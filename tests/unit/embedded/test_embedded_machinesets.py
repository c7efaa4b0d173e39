"""MachineSets and MachineDeployments: what is created, scaled and deleted."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine, MachineSpec
from moxwell.api.capi.machinesets import (
    MachineDeployment,
    MachineDeploymentSpec,
    MachineReplicaStatus,
    MachineSet,
    MachineSetSpec,
    MachineTemplate,
    Rollout,
    RolloutStrategy,
)
from moxwell.api.capi.shared import NO_NEW_MACHINES, TEMPLATE_HASH, ContractRef
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.meta import ObjectMeta
from moxwell.embedded.clusterapi.machinedeployment import plan
from moxwell.embedded.clusterapi.machineset import plan as sets
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Delete, Merge, Writes
from moxwell.scheduling.machine_rollout import template_hash

TEMPLATE = MachineTemplate(spec=MachineSpec(cluster_name="c"))
CLUSTER = {"cluster.x-k8s.io/cluster-name": "c"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(
    strategy: Any = "RollingUpdate", replicas: int = 2, *, paused: bool = False, **meta: Any
) -> MachineDeployment:
    rollout = Rollout(strategy=RolloutStrategy(type=strategy))
    return MachineDeployment(
        metadata=ObjectMeta(name="w", namespace="default", **({"labels": CLUSTER} | meta)),
        spec=MachineDeploymentSpec(
            cluster_name="c",
            replicas=replicas,
            template=TEMPLATE,
            rollout=rollout,
            paused=paused or None,
        ),
    )


CURRENT = template_hash(deployment())


def machine_set(
    name: str = "new",
    short: str = CURRENT,
    replicas: int = 2,
    *,
    held: bool = False,
    deleting: bool = False,
) -> MachineSet:
    return MachineSet(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            labels={TEMPLATE_HASH: short},
            annotations={NO_NEW_MACHINES: "true"} if held else {},
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=MachineSetSpec(cluster_name="c", replicas=replicas, template=TEMPLATE),
        status=MachineReplicaStatus(replicas=replicas, available_replicas=replicas),
    )


def kinds(move: WriteMove) -> list[type]:
    return [type(w) for w in move.writes] if isinstance(move, Writes) else []


@pytest.mark.parametrize(
    "strategy, held, found",
    [
        pytest.param("OnDelete", False, {"old": "true"}, id="an old set must not replace"),
        pytest.param("OnDelete", True, {}, id="it is annotated already"),
        pytest.param("RollingUpdate", True, {"old": None}, id="a rolling update removes it"),
        pytest.param("RollingUpdate", False, {}, id="nothing to change"),
    ],
)
def test_old_sets_of_on_delete_create_no_machines(
    strategy: str, held: bool, found: dict[str, str | None]
) -> None:
    both = [machine_set("old", "another", held=held), machine_set()]
    assert plan.creation_changes(deployment(strategy), both) == found
    assert sets.may_create(both[0]) is not held


@pytest.mark.parametrize(
    ("obj", "there", "expected"),
    [
        pytest.param(deployment(), (), [Create], id="the set of the template is created"),
        pytest.param(deployment(), (machine_set(),), [], id="nothing to do"),
        pytest.param(deployment(replicas=3), (machine_set(),), [Merge], id="the set is scaled"),
        pytest.param(
            deployment(labels={}), (machine_set(),), [Merge], id="the cluster label is set"
        ),
        pytest.param(
            deployment(replicas=3, paused=True), (machine_set(),), [], id="paused: no rollout"
        ),
        pytest.param(
            deployment(),
            (machine_set(), machine_set("a", "1", 0), machine_set("b", "2", 0)),
            [Delete],
            id="one empty old set is kept",
        ),
        pytest.param(deployment(deletion_timestamp=NOW), (machine_set(),), [Delete], id="deletion"),
        pytest.param(deployment(deletion_timestamp=NOW), (), [], id="nothing is left"),
    ],
)
def test_next_move_of_a_deployment(
    obj: MachineDeployment, there: tuple[MachineSet, ...], expected: list[type]
) -> None:
    move = plan.next_move(obj, plan.ObservedMachineDeployment(there))
    assert kinds(move) == expected
    assert expected or move == Done()


def test_a_deployment_waits_for_its_sets() -> None:
    seen = plan.ObservedMachineDeployment((machine_set(deleting=True),))
    assert isinstance(plan.next_move(deployment(deletion_timestamp=NOW), seen), Wait)


@pytest.mark.parametrize(
    ("replicas", "phase"),
    [
        pytest.param(2, "Running", id="as many as desired"),
        pytest.param(3, "ScalingUp", id="too few"),
        pytest.param(1, "ScalingDown", id="too many"),
    ],
)
def test_phase_of_a_deployment(replicas: int, phase: str) -> None:
    assert plan.describe(deployment(replicas=replicas), [machine_set()]).phase == phase


# MachineSets


def machine(name: str, *, deleting: bool = False, broken: bool = False) -> Machine:
    rows = [{"type": "OwnerRemediated", "status": "False", "reason": "r"}] if broken else []
    rows = [r | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for r in rows]
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    spec = {"clusterName": "c", "bootstrap": {}}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"conditions": rows}}, Machine
    )


REF = ContractRef(api_group="g", kind="ProxmoxMachineTemplate", name="t")
MISSING = sets.MissingPart(
    machine("a"), "a", ProxmoxMachine.resource, REF, {"spec": {"template": {"spec": {"x": 1}}}}
)


@pytest.mark.parametrize(
    ("owner", "seen", "expected"),
    [
        pytest.param(machine_set(), (), [Create, Create], id="both are created"),
        pytest.param(machine_set(), ("a", "b"), [], id="enough"),
        pytest.param(machine_set(replicas=1), ("a", "b"), [Delete], id="one too many"),
        pytest.param(machine_set(held=True), (), [], id="it may not create"),
        pytest.param(machine_set(deleting=True), ("a", "b"), [Delete, Delete], id="deletion"),
        pytest.param(machine_set(deleting=True), (), [], id="nothing is left"),
    ],
)
def test_next_move_of_a_set(owner: MachineSet, seen: tuple[str, ...], expected: list[type]) -> None:
    move = sets.next_move(owner, sets.ObservedMachineSet(tuple(map(machine, seen))))
    assert kinds(move) == expected
    assert expected or move == Done()


def test_a_machine_that_is_being_deleted_is_replaced_but_waited_for() -> None:
    there = (machine("a", deleting=True), machine("b"))
    move = sets.next_move(machine_set(), sets.ObservedMachineSet(there))
    assert isinstance(move, Writes)
    assert [type(w) for w in move.writes] == [Create]
    last = sets.next_move(machine_set(deleting=True), sets.ObservedMachineSet(there[:1]))
    assert isinstance(last, Wait)


def test_a_machine_that_a_health_check_marked_is_deleted() -> None:
    there = (machine("a", broken=True), machine("b"))
    move = sets.next_move(machine_set(), sets.ObservedMachineSet(there))
    assert isinstance(move, Writes)
    assert [(type(w), getattr(w, "name", "")) for w in move.writes] == [(Delete, "a")]


def test_the_object_of_a_machine_is_created_from_the_template_of_its_set() -> None:
    seen = sets.ObservedMachineSet((machine("a"), machine("b")), (MISSING,))
    move = sets.next_move(machine_set(), seen)
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Create)
    assert write.obj["spec"] == {"x": 1}
    meta = write.obj["metadata"]
    assert meta["ownerReferences"][0]["uid"] == "uid-a"
    assert meta["annotations"]["cluster.x-k8s.io/cloned-from-name"] == "t"


def test_names_are_derived_and_never_used_twice() -> None:
    names = sets.new_names(machine_set(replicas=5), ())
    assert len(set(names)) == 5
    assert names == sets.new_names(machine_set(replicas=5), ())
    used = [machine(n) for n in names[:3]]
    assert not {m.name for m in used} & set(sets.new_names(machine_set(replicas=5), used))
