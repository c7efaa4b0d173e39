"""ClusterResourceSets: what is applied to which cluster, and what the records say."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.addons import (
    RESOURCE_SET_SECRET,
    ClusterResourceRef,
    ClusterResourceSet,
    ClusterResourceSetBinding,
)
from moxwell.embedded.clusterapi.clusterresourceset.controller import manifests_in
from moxwell.embedded.clusterapi.clusterresourceset.plan import (
    ApplyResources,
    DueResource,
    MatchedCluster,
    ObservedResourceSet,
    describe,
    next_move,
    recorded,
)
from moxwell.errors import Invalid
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Delete, Merge, Writes

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CNI = ClusterResourceRef(kind="ConfigMap", name="cni")
KEYS = ClusterResourceRef(kind="Secret", name="keys")
OWNER = {"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet"}
OWNERS = [OWNER | {"name": "s", "uid": "u"}]


def resource_set(
    *refs: ClusterResourceRef, strategy: str = "ApplyOnce", deleting: bool = False
) -> ClusterResourceSet:
    meta = {"name": "s", "namespace": "d", "uid": "u", "generation": 3}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    spec = {
        "clusterSelector": {"matchLabels": {"cni": "x"}},
        "resources": [{"kind": r.kind, "name": r.name} for r in refs or (CNI,)],
        "strategy": strategy,
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, ClusterResourceSet)


def config_map(text: str = "a", *, owned: bool = True) -> dict[str, Any]:
    meta = {"name": "cni", "namespace": "d", "resourceVersion": "7"}
    return {"metadata": meta | ({"ownerReferences": OWNERS} if owned else {}), "data": {"k": text}}


def secret(type_: str) -> dict[str, Any]:
    data = {"k": base64.b64encode(b"a").decode()}
    return {"metadata": {"name": "keys", "ownerReferences": OWNERS}, "type": type_, "data": data}


def binding(*sets: str, hash_: str = "sha256:old", applied: bool = True) -> Any:
    rows = [{"name": "cni", "kind": "ConfigMap", "hash": hash_, "applied": applied}]
    entries = [{"clusterResourceSetName": name, "resources": rows} for name in sets]
    meta = {"name": "c", "namespace": "d", "uid": "b", "resourceVersion": "9"}
    spec = {"clusterName": "c", "bindings": entries}
    return msgspec.convert({"metadata": meta, "spec": spec}, ClusterResourceSetBinding)


def seen(found: Any = None, *, reachable: bool = True, record: Any = None) -> ObservedResourceSet:
    content = config_map() if found is None else found
    return ObservedResourceSet((MatchedCluster("c", reachable, record),), {CNI: content or None})


APPLY = ApplyResources
ONCE, AGAIN = resource_set(), resource_set(strategy="Reconcile")


@pytest.mark.parametrize(
    ("obj", "observed", "expected", "reason"),
    [
        pytest.param(ONCE, seen(), APPLY, "NotApplied", id="a new cluster"),
        pytest.param(ONCE, ObservedResourceSet((), {CNI: config_map()}), Done, None, id="none"),
        pytest.param(ONCE, seen(reachable=False), Wait, "NotApplied", id="no API yet"),
        pytest.param(ONCE, seen({}), Wait, "NotApplied", id="the resource does not exist"),
        pytest.param(
            ONCE, seen(config_map(owned=False)), Writes, "NotApplied", id="it gets an owner first"
        ),
        pytest.param(ONCE, seen(record=binding("s")), Done, "Applied", id="applied once"),
        pytest.param(AGAIN, seen(record=binding("s")), APPLY, "NotApplied", id="it changed"),
        pytest.param(
            ONCE, seen(record=binding("s", applied=False)), APPLY, "NotApplied", id="it failed"
        ),
        pytest.param(ONCE, seen(record=binding("t")), APPLY, "NotApplied", id="another set's"),
        pytest.param(
            resource_set(KEYS),
            ObservedResourceSet((MatchedCluster("c", True),), {KEYS: secret("Opaque")}),
            Wait,
            "WrongSecretType",
            id="a Secret of another type",
        ),
        pytest.param(
            resource_set(KEYS),
            ObservedResourceSet((MatchedCluster("c", True),), {KEYS: secret(RESOURCE_SET_SECRET)}),
            APPLY,
            "NotApplied",
            id="a Secret",
        ),
    ],
)
def test_next_move(
    obj: ClusterResourceSet, observed: ObservedResourceSet, expected: type, reason: str | None
) -> None:
    move = next_move(obj, observed)
    assert isinstance(move, expected)
    status = describe(obj, observed, move)
    assert status is not None
    assert status.observed_generation == 3
    assert (status.conditions[0].reason if status.conditions else None) == reason
    assert all((c.status == "True") is isinstance(move, Done) for c in status.conditions)


def test_a_missing_resource_holds_back_no_other() -> None:
    found = {KEYS: secret(RESOURCE_SET_SECRET), CNI: None}
    observed = ObservedResourceSet((MatchedCluster("c", True),), found)
    move = next_move(resource_set(CNI, KEYS), observed)
    assert isinstance(move, ApplyResources)
    assert [due.ref for due in move.due] == [KEYS]
    assert move.due[0].texts == ("a",)
    assert str(move) == "apply Secret keys to cluster c"


def test_a_change_is_recorded_and_not_due_again() -> None:
    move = next_move(AGAIN, seen(record=binding("t", "s")))
    assert isinstance(move, ApplyResources)
    entries = recorded(binding("t", "s"), "s", {move.due[0]: True}, NOW)
    assert [entry.cluster_resource_set_name for entry in entries] == ["t", "s"]
    after = msgspec.structs.replace(
        binding(), spec=msgspec.structs.replace(binding().spec, bindings=entries)
    )
    assert isinstance(next_move(AGAIN, seen(record=after)), Done)
    failed = recorded(binding("s"), "s", {move.due[0]: False}, NOW)
    assert (failed[0].resources[0].applied, failed[0].resources[0].hash) == (False, "")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(binding("s"), Delete, id="the last entry"),
        pytest.param(binding("s", "t"), Merge, id="one of two"),
        pytest.param(binding("t"), None, id="none"),
    ],
)
def test_a_deleted_set_removes_its_records(found: Any, expected: type | None) -> None:
    move = next_move(resource_set(deleting=True), ObservedResourceSet(bindings=(found,)))
    if expected is None:
        assert isinstance(move, Done)
        return
    assert isinstance(move, Writes)
    assert [type(write) for write in move.writes] == [expected]
    assert describe(resource_set(deleting=True), ObservedResourceSet(), move) is None


LIST = "kind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}]"
ONE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(ONE, ["a"], id="one object and an empty document"),
        pytest.param(ONE + LIST, ["a", "b"], id="a List"),
        pytest.param('{"apiVersion":"v1","kind":"Job","metadata":{"name":"j"}}', ["j"], id="JSON"),
        pytest.param("", [], id="nothing"),
        pytest.param("a: [", None, id="no YAML"),
        pytest.param("kind: ConfigMap", None, id="no object"),
        pytest.param("- 1", None, id="a sequence"),
        pytest.param("kind: List\nitems: 3", None, id="a List of nothing"),
        pytest.param("a: &a [*a]", None, id="a value that contains itself"),
    ],
)
def test_manifests_are_read_or_refused(text: str, names: list[str] | None) -> None:
    due = DueResource(Key("d", "c"), CNI, (text,), "", keep_existing=True)
    if names is None:
        with pytest.raises(Invalid, match="ConfigMap cni"):
            manifests_in(due)
    else:
        assert [obj["metadata"]["name"] for obj in manifests_in(due)] == names
