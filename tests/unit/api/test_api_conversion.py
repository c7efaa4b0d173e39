"""
Conversions of Cluster API kinds: round trips are lossless and edits in either version survive.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import field

from moxwell.api import conversion, conversion_tables, json_merge, registry
from moxwell.api.conversion import HUB_DATA, KindConversion, NotConvertible, UnknownVersion
from moxwell.api.conversion_tables import ConversionTable, FieldMove
from moxwell.api.kinds import Object, as_dict, kind
from moxwell.api.meta import ObjectMeta, Value
from support.objects import objects

QUICK = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PAIRS = [
    (family, kind_)
    for family in registry.CONVERSIONS
    for kind_ in registry.UPSTREAM
    if (family.group, family.kind) == (kind_.resource.group, kind_.resource.kind)
]


def named(value: object) -> str:
    if isinstance(value, KindConversion):
        return value.kind
    return value.resource.version if isinstance(value, type) else ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("family, here", PAIRS, ids=named)
@QUICK
@given(data=st.data())
def test_a_round_trip_is_the_identity(
    family: KindConversion, here: type[Object], data: st.DataObject
) -> None:
    obj = data.draw(objects(here))
    for version in (family.hub, *(spoke.version for spoke in family.spokes)):
        there = family.convert(obj, version)
        assert there["apiVersion"] == f"{family.group}/{version}"
        back = family.convert(there, here.resource.version)
        assert json_merge.json_equal(json_merge.without_nulls(back), json_merge.without_nulls(obj))


def convert(kind_: str, version: str, spec: Any, **more: Any) -> dict[str, Any]:
    family = next(f for f in registry.CONVERSIONS if f.kind == kind_)
    old = "v1beta1" if version == "v1beta2" else "v1beta2"
    obj = {"apiVersion": f"{family.group}/{old}", "kind": kind_, "metadata": {"name": "x"}}
    return family.convert({**obj, "spec": spec, **more}, version)


REF = {
    "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
    "kind": "ProxmoxCluster",
    "name": "c",
}


def test_references_lose_their_version_in_the_hub() -> None:
    made = convert("Cluster", "v1beta2", {"infrastructureRef": REF})
    assert made["spec"]["infrastructureRef"] == {
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "ProxmoxCluster",
        "name": "c",
    }


def test_a_rolling_update_moves_to_its_new_paths() -> None:
    template = {"spec": {"clusterName": "c", "nodeDrainTimeout": "1h2m3s"}}
    strategy = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0, "deletePolicy": "Oldest"},
        "remediation": {"maxInFlight": 2},
    }
    spec = {"clusterName": "c", "template": template, "strategy": strategy, "minReadySeconds": 7}
    assert convert("MachineDeployment", "v1beta2", spec)["spec"] == {
        "clusterName": "c",
        "template": {
            "spec": {
                "clusterName": "c",
                "minReadySeconds": 7,
                "deletion": {"nodeDrainTimeoutSeconds": 3723},
            }
        },
        "rollout": {
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0},
            }
        },
        "remediation": {"maxInFlight": 2},
        "deletion": {"order": "Oldest"},
    }


def test_kubelet_flags_become_a_list() -> None:
    registration = {"kubeletExtraArgs": {"provider-id": "proxmox://x", "a": "b"}}
    spec = {"joinConfiguration": {"nodeRegistration": registration}}
    made = convert("KubeadmConfig", "v1beta2", spec)
    assert made["spec"]["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"] == [
        {"name": "a", "value": "b"},
        {"name": "provider-id", "value": "proxmox://x"},
    ]


def test_health_check_timeouts_become_seconds() -> None:
    condition = {"type": "Ready", "status": "False", "timeout": "5m"}
    spec = {"clusterName": "c", "unhealthyConditions": [condition], "maxUnhealthy": "40%"}
    made = convert("MachineHealthCheck", "v1beta2", spec)["spec"]
    assert made["checks"]["unhealthyNodeConditions"][0]["timeoutSeconds"] == 300
    assert made["remediation"]["triggerIf"]["unhealthyLessThanOrEqualTo"] == "40%"


def test_unknown_fields_are_kept() -> None:
    made = convert("Cluster", "v1beta2", {"availabilityGates": [{"conditionType": "X"}]})
    assert made["spec"]["availabilityGates"] == [{"conditionType": "X"}]


def test_an_edit_in_the_older_version_keeps_fields_of_the_newer() -> None:
    family = next(f for f in registry.CONVERSIONS if f.kind == "Machine")
    checks = {"unhealthyMachineConditions": [{"type": "A", "status": "False"}]}
    health = next(f for f in registry.CONVERSIONS if f.kind == "MachineHealthCheck")
    new = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "x"},
        "spec": {"clusterName": "c", "checks": checks},
    }
    old = health.convert(new, "v1beta1")
    old["spec"]["maxUnhealthy"] = 3
    again = health.convert(old, "v1beta2")
    assert again["spec"]["checks"] == checks
    assert again["spec"]["remediation"] == {"triggerIf": {"unhealthyLessThanOrEqualTo": 3}}
    assert family.hub == "v1beta2"


class OldSpec(Value, frozen=True, kw_only=True):
    memory: int = 1024
    legacy: str = ""


class NewSpec(Value, frozen=True, kw_only=True):
    memory_gib: int = field(name="memoryGiB", default=1)
    zone: str = ""


@kind(group="toys.example", version="v1", plural="boxes", name="Box", storage=False)
class OldBox(Object, frozen=True, kw_only=True):
    spec: OldSpec = field(default_factory=OldSpec)


@kind(group="toys.example", version="v2", plural="boxes", name="Box")
class NewBox(Object, frozen=True, kw_only=True):
    spec: NewSpec = field(default_factory=NewSpec)


def to_new(obj: dict[str, Any]) -> dict[str, Any]:
    old = conversion.decode_object(OldBox, obj)
    spec = NewSpec(memory_gib=old.spec.memory // 1024)
    return as_dict(NewBox(metadata=old.metadata, spec=spec))


def to_old(obj: dict[str, Any]) -> dict[str, Any]:
    new = conversion.decode_object(NewBox, obj)
    return as_dict(OldBox(metadata=new.metadata, spec=OldSpec(memory=new.spec.memory_gib * 1024)))


BOXES = KindConversion(
    group="toys.example",
    kind="Box",
    hub="v2",
    canonical=conversion.canonical_form(NewBox),
    spokes=(
        conversion.Spoke(
            version="v1",
            to_hub=to_new,
            from_hub=to_old,
            canonical=conversion.canonical_form(OldBox),
        ),
    ),
)


def box(version: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": f"toys.example/{version}", "kind": "Box", "metadata": {"name": "b"}}
    return head | {"spec": spec}


def test_fields_the_older_version_lacks_are_stored_in_an_annotation() -> None:
    old = BOXES.convert(box("v2", memoryGiB=4, zone="a"), "v1")
    assert old["spec"] == {"memory": 4096}
    assert HUB_DATA in old["metadata"]["annotations"]
    assert BOXES.convert(old, "v2") == box("v2", memoryGiB=4, zone="a")


def test_an_edit_is_merged_with_the_annotation() -> None:
    old = BOXES.convert(box("v2", memoryGiB=4, zone="a"), "v1")
    old["spec"] = {"memory": 8192}
    assert BOXES.convert(old, "v2")["spec"] == {"memoryGiB": 8, "zone": "a"}


def test_fields_only_the_older_version_has_come_back() -> None:
    new = BOXES.convert(box("v1", memory=2048, legacy="x"), "v2")
    assert new["spec"] == {"memoryGiB": 2}
    new["spec"] = {"memoryGiB": 3, "zone": "z"}
    old = BOXES.convert(new, "v1")
    assert old["spec"] == {"memory": 3072, "legacy": "x"}


def test_a_plain_object_gets_no_annotation() -> None:
    assert "annotations" not in BOXES.convert(box("v1", memory=2048), "v2")["metadata"]


def test_an_invalid_annotation_is_ignored() -> None:
    old = box("v1", memory=2048)
    old["metadata"]["annotations"] = {HUB_DATA: "{"}
    assert BOXES.convert(old, "v2")["spec"] == {"memoryGiB": 2}


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(UnknownVersion, match=r"v9.*it has v2, v1"):
        BOXES.convert(box("v1"), "v9")


def test_a_malformed_object_is_named() -> None:
    with pytest.raises(NotConvertible, match=r"'b'.*memory"):
        BOXES.convert(box("v1", memory="lots"), "v2")


@pytest.mark.parametrize(
    "text, whole",
    [("0", 0), ("90s", 90), ("1h2m3s", 3723), ("1.5h", 5400), ("500ms", 0), (10**9, 1)],
)
def test_durations_of_go(text: str | int, whole: int) -> None:
    assert conversion_tables.seconds(text) == whole


@pytest.mark.parametrize("text", ["", "5", "1d", "h", "1m junk"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(NotConvertible):
        conversion_tables.seconds(text)


@given(st.integers(0, 10**7))
def test_durations_round_trip(whole: int) -> None:
    assert conversion_tables.seconds(conversion_tables.duration(whole)) == whole


def test_a_move_removes_the_empty_parent_and_keeps_its_input() -> None:
    table = ConversionTable((FieldMove("a.b", "c.d"),))
    tree = {"a": {"b": 1}, "x": 2}
    assert table.to_hub(tree) == {"c": {"d": 1}, "x": 2}
    assert table.from_hub(table.to_hub(tree)) == tree
    assert tree == {"a": {"b": 1}, "x": 2}


def test_metadata_is_not_lost_in_typed_conversions() -> None:
    meta = {"name": "b", "managedFields": [{"manager": "m"}], "labels": {"a": "b"}}
    assert BOXES.convert(box("v1") | {"metadata": meta}, "v2")["metadata"] == meta
    assert ObjectMeta().key == ""
