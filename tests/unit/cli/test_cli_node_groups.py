"""Node groups are added and removed in the form that the spec has: a list or a map."""

from typing import Any

import pytest

from moxwell.api.cozystack import GroupStatus, Kubernetes, KubernetesSpec, KubernetesStatus
from moxwell.api.meta import ObjectMeta
from moxwell.cli import node_groups
from moxwell.errors import Invalid, Missing

LIST = [{"name": "a", "replicas": 2, "instanceType": "u1.small"}, {"name": "b", "replicas": 1}]
MAP = {"a": {"minReplicas": 1, "maxReplicas": 3}, "b": {}}


def cluster(groups: Any) -> Kubernetes:
    status = KubernetesStatus(groups=(GroupStatus(name="a", replicas=2, ready=1),))
    meta = ObjectMeta(name="demo", namespace="tenant-demo")
    return Kubernetes(metadata=meta, spec=KubernetesSpec(node_groups=groups), status=status)


def test_a_group_is_added() -> None:
    fields = {"replicas": 2, "instanceType": "u1.large"}
    assert node_groups.with_group(cluster(LIST), "c", fields) == [*LIST, {"name": "c", **fields}]
    added = node_groups.with_group(cluster(MAP), "c", fields)
    assert added == {**MAP, "c": {"minReplicas": 2, "maxReplicas": 2, "instanceType": "u1.large"}}


def test_the_default_group_stays_when_one_is_added() -> None:
    added = node_groups.with_group(cluster(None), "c", {"replicas": 1})
    assert [g["name"] for g in added] == [*(g.name for g in cluster(None).spec.groups), "c"]


def test_a_group_is_removed() -> None:
    assert node_groups.without_group(cluster(LIST), "a") == LIST[1:]
    assert node_groups.without_group(cluster(MAP), "a") == {"a": None, "b": {}}


@pytest.mark.parametrize("groups", [LIST, MAP], ids=["list", "map"])
def test_what_cannot_work_is_refused(groups: Any) -> None:
    with pytest.raises(Invalid, match="exists already"):
        node_groups.with_group(cluster(groups), "a", {"replicas": 1})
    with pytest.raises(Missing, match="groups are a, b"):
        node_groups.without_group(cluster(groups), "x")
    with pytest.raises(Invalid, match="the only node group"):
        node_groups.without_group(cluster([{"name": "a"}]), "a")


def test_a_row_has_the_size_and_the_nodes() -> None:
    first, second = node_groups.rows(cluster(LIST))
    assert (first["nodes"], first["cpu"], first["memory"]) == ("1/2", 1, "4 GiB")
    assert (second["group"], second["nodes"]) == ("b", "0/1")
    assert node_groups.rows(cluster(MAP))[0]["nodes"] == "1/1..3"
