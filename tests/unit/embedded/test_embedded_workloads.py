"""Workload controllers: which pods are created and deleted, and the status of their owners."""

from typing import Any

import pytest

from moxwell.embedded.controllermanager.daemonset import plan as daemonset
from moxwell.embedded.controllermanager.deployment import plan as deployment
from moxwell.embedded.controllermanager.disruption import plan as disruption
from moxwell.embedded.controllermanager.job import plan as job
from moxwell.embedded.controllermanager.replicaset import plan as replicaset
from moxwell.embedded.controllermanager.statefulset import plan as statefulset
from moxwell.embedded.controllermanager.workloads import template_hash
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]
META = {"name": "db", "namespace": "d", "uid": "u"}
TEMPLATE: Json = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}}


def pod(
    name: str, *, ready: bool = False, node: str = "n", gone: bool = False, phase: str = "Running",
    **meta: Any,
) -> Json:  # fmt: skip
    conditions = [{"type": "Ready", "status": str(ready)}]
    extra = {"deletionTimestamp": "x"} if gone else {}
    return {
        "metadata": {"name": name, **meta, **extra},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions},
    }


def owner(kind: str, **spec: Any) -> Json:
    body = {"template": TEMPLATE, "selector": {"matchLabels": {"app": "db"}}, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": META, "spec": body}


def stateful(replicas: int, **spec: Any) -> Json:
    return owner("StatefulSet", replicas=replicas, **spec)


def kinds(move: WriteMove) -> list[type]:
    return [type(w) for w in move.writes] if isinstance(move, Writes) else []


# Deployments


def replica_set(of: Json, replicas: int, *, old: bool = False) -> Json:
    created = deployment.new_set(of, replicas, 1)
    if old:
        created["metadata"]["labels"] = {}
        created["metadata"]["name"] = "db-old"
    counts = {"replicas": replicas, "availableReplicas": replicas, "readyReplicas": replicas}
    return created | {"status": counts}


@pytest.mark.parametrize(
    ("of", "sets", "expected"),
    [
        pytest.param(owner("Deployment", replicas=2), [], [Create, Merge], id="created and scaled"),
        pytest.param(owner("Deployment", replicas=2), [2], [], id="nothing to do"),
        pytest.param(owner("Deployment", replicas=3), [2], [Merge], id="scaled"),
        pytest.param(
            owner("Deployment", replicas=2, revisionHistoryLimit=0),
            [2, -1],
            [Delete],
            id="an empty old set is deleted",
        ),
    ],
)
def test_next_move_of_a_deployment(of: Json, sets: list[int], expected: list[type]) -> None:
    there = [replica_set(of, max(0, n), old=n < 0) for n in sets]
    move = deployment.next_move(of, there)
    assert kinds(move) == expected
    assert expected or move == Done()


def test_status_of_a_deployment() -> None:
    of = owner("Deployment", replicas=2)
    status = deployment.describe(of, [replica_set(of, 1)])
    assert (status["availableReplicas"], status["unavailableReplicas"]) == (1, 1)
    assert status["conditions"][0]["reason"] == "MinimumReplicasUnavailable"


def test_equal_templates_have_equal_hashes() -> None:
    one, two = {"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}
    assert template_hash(one) == template_hash(two)
    assert template_hash(one) != template_hash({"a": 2})


# ReplicaSets


@pytest.mark.parametrize(
    ("replicas", "pods", "expected"),
    [
        pytest.param(2, [], [Create, Create], id="both are missing"),
        pytest.param(1, [pod("a")], [], id="enough"),
        pytest.param(1, [pod("a", gone=True)], [Create], id="one that is deleted is replaced"),
        pytest.param(1, [pod("a"), pod("b")], [Delete], id="one too many"),
    ],
)
def test_next_move_of_a_replica_set(replicas: int, pods: list[Json], expected: list[type]) -> None:
    assert kinds(replicaset.next_move(owner("ReplicaSet", replicas=replicas), pods)) == expected


def test_surplus_pods_are_unscheduled_then_unready_then_young() -> None:
    pods = [
        pod("old", ready=True, creationTimestamp="1"),
        pod("young", ready=True, creationTimestamp="2"),
        pod("unready", creationTimestamp="1"),
        pod("unscheduled", node=""),
        pod("deleted", gone=True),
    ]
    assert replicaset.surplus_pods(pods, 3) == ("unscheduled", "unready", "young")


# StatefulSets


@pytest.mark.parametrize(
    "of, pods, ordinal",
    [
        pytest.param(stateful(2), [], 0, id="the first"),
        pytest.param(stateful(2), [pod("db-0")], None, id="waits for the first to be ready"),
        pytest.param(stateful(2), [pod("db-0", ready=True)], 1, id="then the second"),
        pytest.param(stateful(1), [pod("db-0", ready=True)], None, id="enough"),
        pytest.param(
            stateful(2, podManagementPolicy="Parallel"), [pod("db-0")], 1, id="all at once"
        ),
    ],
)
def test_next_ordinal(of: Json, pods: list[Json], ordinal: int | None) -> None:
    assert statefulset.next_ordinal(of, pods) == ordinal


def test_the_highest_ordinals_are_deleted_first() -> None:
    pods = [pod(f"db-{i}") for i in range(4)]
    assert statefulset.surplus_pods(stateful(2), pods) == ("db-3", "db-2")
    assert kinds(statefulset.next_move(stateful(2), pods)) == [Delete]


def test_a_claim_is_named_for_its_pod() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"a": 1}}
    of = stateful(1, volumeClaimTemplates=[template])
    claims, volumes = statefulset.new_claims(of, 2)
    assert claims[0]["metadata"] == {"name": "data-db-2", "namespace": "d"}
    assert volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-2"}}]
    assert kinds(statefulset.next_move(of, [])) == [Create, Create]


def member(number: int, of: Json, *, ready: bool = True, old: bool = False) -> Json:
    revision = "db-older" if old else statefulset.revision(of)
    return pod(f"db-{number}", ready=ready, labels={statefulset.REVISION: revision})


@pytest.mark.parametrize(
    ("pods", "strategy", "replaced"),
    [
        pytest.param(((True, False), (True, False)), {}, (), id="all of the template"),
        pytest.param(((True, True), (True, True)), {}, ("db-1", "db-0"), id="the highest first"),
        pytest.param(((True, True), (False, False)), {}, (), id="none while a new one starts"),
        pytest.param(((True, True),), {}, (), id="none while one is missing"),
        pytest.param(((True, True), (True, True)), {"type": "OnDelete"}, (), id="on delete"),
        pytest.param(
            ((True, True), (True, True)), {"rollingUpdate": {"partition": 1}}, ("db-1",),
            id="those below the partition stay",
        ),
    ],
)  # fmt: skip
def test_a_rolling_update_replaces_pods_from_the_highest_ordinal(
    pods: tuple[tuple[bool, bool], ...], strategy: Json, replaced: tuple[str, ...]
) -> None:
    of = stateful(2, updateStrategy=strategy)
    there = tuple(member(n, of, ready=ready, old=old) for n, (ready, old) in enumerate(pods))
    assert statefulset.outdated_pods(of, there) == replaced
    status = statefulset.describe(of, there)
    assert status["updatedReplicas"] == sum(not old for _, old in pods)
    outdated = any(old for _, old in pods)
    current = "db-older" if outdated else status["updateRevision"]
    assert status["currentRevision"] == current


# DaemonSets, Jobs, PodDisruptionBudgets


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        pytest.param({"n", "m"}, (), [Create, Create], id="one for each node"),
        pytest.param({"n"}, (pod("a"),), [], id="nothing to do"),
        pytest.param(set(), (pod("a"),), [Delete], id="its node is gone"),
    ],
)
def test_next_move_of_a_daemon_set(
    nodes: set[str], pods: tuple[Json, ...], expected: list[type]
) -> None:
    seen = daemonset.ObservedDaemonSet(frozenset(nodes), pods)
    assert kinds(daemonset.next_move(owner("DaemonSet"), seen)) == expected
    status = daemonset.describe(owner("DaemonSet"), seen)
    assert status["desiredNumberScheduled"] == len(nodes)


@pytest.mark.parametrize(
    ("spec", "pods", "created", "complete"),
    [
        pytest.param({}, [], 1, False, id="the first"),
        pytest.param({"completions": 3, "parallelism": 2}, [], 2, False, id="in parallel"),
        pytest.param({}, [pod("a")], 0, False, id="runs"),
        pytest.param({}, [pod("a", phase="Failed")], 1, False, id="again after a failure"),
        pytest.param({}, [pod("a", phase="Succeeded")], 0, True, id="complete"),
    ],
)
def test_next_move_of_a_job(spec: Json, pods: list[Json], created: int, complete: bool) -> None:
    assert len(kinds(job.next_move(owner("Job", **spec), pods))) == created
    assert ("conditions" in job.describe(owner("Job", **spec), pods)) is complete


@pytest.mark.parametrize(
    "spec, allowed",
    [
        pytest.param({"minAvailable": 2}, 1, id="at least two"),
        pytest.param({"minAvailable": "100%"}, 0, id="all of them"),
        pytest.param({"maxUnavailable": 2}, 2, id="two may be unavailable"),
        pytest.param({"maxUnavailable": "50%"}, 2, id="half, rounded up"),
    ],
)
def test_disruptions_allowed(spec: Json, allowed: int) -> None:
    pods = [pod(str(i), ready=True) for i in range(3)]
    status = disruption.describe({"metadata": {}, "spec": spec}, pods)
    assert status["disruptionsAllowed"] == allowed
