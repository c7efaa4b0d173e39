"""Node groups are added and removed in the form that the spec has: a list or a map."""

from typing import Any

import pytest

from moxwell.api.cozystack import (
    GroupStatus,
    Kubernetes,
    KubernetesSpec,
    KubernetesStatus,
    read_groups,
)
from moxwell.api.meta import ObjectMeta
from moxwell.cli import node_groups
from moxwell.cli.cluster import changed, scaled
from moxwell.controllers.tenancy.cluster.defaults import groups_of
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


DEFAULT = {"name": "md0", "minReplicas": 0, "maxReplicas": 10, "roles": ["ingress-nginx"]}


@pytest.mark.parametrize("groups", [None, [], {}], ids=["none", "empty list", "empty map"])
def test_the_default_group_stays_when_a_group_is_added_or_it_is_resized(groups: Any) -> None:
    found = cluster(groups)
    added = node_groups.with_group(found, "c", {"replicas": 1})
    assert added == [DEFAULT, {"name": "c", "replicas": 1}]
    assert read_groups(added)[:1] == groups_of(found)  # no node of it is replaced
    resized = changed(found, "md0", instanceType="u1.small")
    assert resized == [DEFAULT | {"instanceType": "u1.small"}]
    assert scaled(found, "md0", 4) == {"nodeGroups": [{"name": "md0", "replicas": 4}]}
    assert [row["group"] for row in node_groups.rows(found)] == ["md0"]
    with pytest.raises(Invalid, match="the only node group"):
        node_groups.without_group(found, "md0")
    with pytest.raises(Missing, match="did you mean md0"):
        node_groups.without_group(found, "mdo")


def test_the_default_number_of_nodes_stays_when_a_group_is_added() -> None:
    found = Kubernetes(metadata=ObjectMeta(name="demo"), spec=KubernetesSpec(replicas=0))
    added = node_groups.with_group(found, "c", {"replicas": 1})
    assert added == [{"name": "md0", "replicas": 0}, {"name": "c", "replicas": 1}]


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
