"""Workloads in small: tables of what is made, deleted and said."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager.nodelifecycle import plan as nodelife
from moxwell.embedded.controllermanager.workloads import plan, statefulset_revisions

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(
    name: str, *, ready: bool = False, node: str = "n", gone: bool = False, **meta: Any
) -> Json:
    conditions = [{"type": "Ready", "status": str(ready)}]
    extra = {"deletionTimestamp": "x"} if gone else {}
    return {
        "metadata": {"name": name, **meta, **extra},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running", "conditions": conditions},
    }


def stateful(replicas: int, **spec: Any) -> Json:
    meta = {"name": "db", "namespace": "d", "uid": "u"}
    return {"metadata": meta, "spec": {"replicas": replicas, **spec}}


@pytest.mark.parametrize(
    "owner, pods, ordinal",
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
def test_next_ordinal(owner: Json, pods: list[Json], ordinal: int | None) -> None:
    assert plan.next_ordinal(owner, pods) == ordinal


def test_the_highest_ordinals_go_first() -> None:
    pods = [pod(f"db-{i}") for i in range(4)]
    assert plan.excess_ordinals(stateful(2), pods) == ("db-3", "db-2")


def test_a_claim_is_named_for_its_pod() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"a": 1}}
    claims, volumes = plan.claims_of(stateful(1, volumeClaimTemplates=[template]), 2)
    assert claims[0]["metadata"] == {"name": "data-db-2", "namespace": "d"}
    assert volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-2"}}]


def test_the_least_loss_leaves_first() -> None:
    pods = [
        pod("old", ready=True, creationTimestamp="1"),
        pod("young", ready=True, creationTimestamp="2"),
        pod("sick", creationTimestamp="1"),
        pod("homeless", node=""),
        pod("leaving", gone=True),
    ]
    assert plan.pods_to_leave(pods, 3) == ("homeless", "sick", "young")


@pytest.mark.parametrize(
    "spec, allowed",
    [
        pytest.param({"minAvailable": 2}, 1, id="at least two"),
        pytest.param({"minAvailable": "100%"}, 0, id="all of them"),
        pytest.param({"maxUnavailable": 2}, 2, id="two may be away"),
        pytest.param({"maxUnavailable": "50%"}, 2, id="half, rounded up"),
    ],
)
def test_a_budget_allows(spec: Json, allowed: int) -> None:
    pods = [pod(str(i), ready=True) for i in range(3)]
    assert plan.budget_status({"metadata": {}, "spec": spec}, pods)["disruptionsAllowed"] == allowed


def test_equal_templates_have_one_name() -> None:
    one, two = {"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}
    assert plan.template_hash(one) == plan.template_hash(two)
    assert plan.template_hash(one) != plan.template_hash({"a": 2})


def lease(age: float) -> Json:
    return {"spec": {"renewTime": (NOW - timedelta(seconds=age)).isoformat()}}


NODE: Json = {"metadata": {"name": "n", "creationTimestamp": NOW.isoformat()}, "spec": {}}


@pytest.mark.parametrize(
    "age, silent",
    [
        pytest.param(5, False, id="just spoke"),
        pytest.param(41, True, id="silent"),
        pytest.param(None, False, id="new, no lease yet"),
    ],
)
def test_judge(age: float | None, silent: bool) -> None:
    verdict = nodelife.judge(NODE, None if age is None else lease(age), NOW)
    assert verdict.silent == silent
    assert verdict.again > 0


def test_taints_come_and_go() -> None:
    silent = nodelife.taints(NODE, NOW, silent=True)
    assert [t["effect"] for t in silent] == ["NoSchedule", "NoExecute"]
    tainted = NODE | {"spec": {"taints": silent}}
    later = NOW + timedelta(minutes=1)
    assert nodelife.taints(tainted, later, silent=True) == silent, "the time is that of the first"
    assert nodelife.taints(tainted, later, silent=False) == []


def _member(number: int, owner: Json, *, ready: bool = True, old: bool = False) -> Json:
    revision = "db-older" if old else statefulset_revisions.revision(owner)
    conditions = [{"type": "Ready", "status": str(ready)}]
    meta = {"name": f"db-{number}", "labels": {statefulset_revisions.REVISION: revision}}
    return {"metadata": meta, "status": {"phase": "Running", "conditions": conditions}}


@pytest.mark.parametrize(
    ("pods", "strategy", "leaving"),
    [
        pytest.param(((True, False), (True, False)), {}, (), id="all of the template"),
        pytest.param(((True, True), (True, True)), {}, ("db-1", "db-0"), id="the highest first"),
        pytest.param(((True, True), (False, False)), {}, (), id="while a new one starts, nobody"),
        pytest.param(((True, True),), {}, (), id="while one is missing, nobody"),
        pytest.param(
            ((True, True), (True, True)), {"type": "OnDelete"}, (), id="only when deleted by hand"
        ),
        pytest.param(
            ((True, True), (True, True)), {"rollingUpdate": {"partition": 1}}, ("db-1",),
            id="those below the partition stay",
        ),
    ],
)  # fmt: skip
def test_a_stateful_set_rolls_from_the_end(
    pods: tuple[tuple[bool, bool], ...], strategy: dict[str, Any], leaving: tuple[str, ...]
) -> None:
    spec = {"replicas": 2, "template": {"spec": {}}, "updateStrategy": strategy}
    owner = {"metadata": {"name": "db"}, "spec": spec}
    there = [_member(n, owner, ready=ready, old=old) for n, (ready, old) in enumerate(pods)]
    assert statefulset_revisions.outdated(owner, there) == leaving
    status = statefulset_revisions.status(owner, there)
    assert status["updatedReplicas"] == sum(not old for _, old in pods)
