"""The CSI sidecars: when the driver is called, and what is recorded of its answers."""

from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.embedded.controllermanager.storage import labels
from moxwell.embedded.controllermanager.storage.attacher import plan as attacher
from moxwell.embedded.controllermanager.storage.capacity import plan as capacity
from moxwell.embedded.controllermanager.storage.plugin import DriverSnapshot
from moxwell.embedded.controllermanager.storage.provisioner import plan as provisioner
from moxwell.embedded.controllermanager.storage.resizer import plan as resizer
from moxwell.embedded.controllermanager.storage.snapshot import content_plan
from moxwell.embedded.controllermanager.storage.snapshot import plan as snapshot
from moxwell.runtime.move import Done, Wait, is_final
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DRIVER = "csi.moxwell.dev"
ZONE = "topology.kubernetes.io/zone"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def claim(*, node: str = "", size: str = "2Gi", volume: str = "") -> Json:
    annotations = {labels.SELECTED_NODE: node} if node else {}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    meta = {"name": "data", "namespace": "d", "uid": "u1", "resourceVersion": "5"}
    return {
        "metadata": meta | {"annotations": annotations},
        "spec": spec | ({"volumeName": volume} if volume else {}),
    }


def volume(phase: str = "Bound", policy: str = "Delete", **meta: Any) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
        "csi": {"driver": DRIVER, "volumeHandle": "h"},
        "persistentVolumeReclaimPolicy": policy,
    }
    return {"metadata": {"name": "pv1", **meta}, "spec": spec, "status": {"phase": phase}}


CLASS: Json = {"metadata": {"name": "fast", "uid": "c"}, "provisioner": DRIVER}
WAITS = CLASS | {"volumeBindingMode": "WaitForFirstConsumer"}
SEGMENTS = ({ZONE: "a"}, {ZONE: "b"})


def provisioning(**more: Any) -> provisioner.ObservedProvisioning:
    given = {"storage_class": CLASS, "segments": SEGMENTS} | more
    return provisioner.ObservedProvisioning(DRIVER, **given)


@pytest.mark.parametrize(
    ("of", "seen", "expected"),
    [
        pytest.param(claim(), provisioning(storage_class=None), Done, id="no class"),
        pytest.param(claim(), provisioning(storage_class=WAITS), Done, id="no node selected"),
        pytest.param(claim(), provisioning(exists=True), Done, id="the volume exists"),
        pytest.param(claim(), provisioning(segments=()), Wait, id="no node has the driver"),
        pytest.param(
            claim(),
            provisioning(source=provisioner.DataSource(problem="not ready")),
            Wait,
            id="the source is not ready",
        ),
        pytest.param(
            claim(node="n"),
            provisioning(storage_class=WAITS),
            provisioner.ProvisionVolume,
            id="a node is selected",
        ),
        pytest.param(claim(), provisioning(), provisioner.ProvisionVolume, id="immediate"),
    ],
)
def test_next_move_of_an_unbound_claim(
    of: Json, seen: provisioner.ObservedProvisioning, expected: type
) -> None:
    assert isinstance(provisioner.next_move(of, seen), expected)


def test_a_request_has_the_allowed_segments_and_the_source() -> None:
    expression = {"key": ZONE, "values": ["b"]}
    allowed = CLASS | {"allowedTopologies": [{"matchLabelExpressions": [expression]}]}
    source = provisioner.DataSource(snapshot="s1")
    move = provisioner.next_move(claim(), provisioning(storage_class=allowed, source=source))
    assert isinstance(move, provisioner.ProvisionVolume)
    assert move.request.segments == ({ZONE: "b"},)
    assert move.request.from_snapshot == "s1"


@pytest.mark.parametrize(
    ("of", "attached", "expected", "final"),
    [
        pytest.param(volume(), False, Wait, False, id="bound"),
        pytest.param(volume("Released", "Retain"), False, Done, True, id="retained"),
        pytest.param(volume("Released"), True, Wait, False, id="still attached"),
        pytest.param(
            volume("Released"),
            False,
            provisioner.DeleteProvisionedVolume,
            False,
            id="disk, then object",
        ),
        pytest.param(
            volume("Released", **DELETED),
            False,
            provisioner.DeleteProvisionedVolume,
            True,
            id="disk only",
        ),
        pytest.param(
            volume("Available", **DELETED),
            False,
            provisioner.DeleteProvisionedVolume,
            True,
            id="never bound",
        ),
        pytest.param(volume("Available"), False, Wait, False, id="available"),
    ],
)
def test_next_move_of_a_volume(of: Json, attached: bool, expected: type, final: bool) -> None:
    move = provisioner.next_reclaim(of, attached)
    assert isinstance(move, expected)
    assert is_final(move) is final


def attachment(*, node_id: str = "", **meta: Any) -> Json:
    annotations = {labels.NODE_ID: node_id} if node_id else {}
    spec = {"nodeName": "n", "source": {"persistentVolumeName": "pv1"}}
    return {"metadata": {"name": "va", "annotations": annotations, **meta}, "spec": spec}


def attaching(**more: Any) -> attacher.ObservedVolumeAttachment:
    given = {"volume": volume(), "node_id": "id"} | more
    return attacher.ObservedVolumeAttachment(NOW, DRIVER, **given)


@pytest.mark.parametrize(
    ("of", "seen", "expected", "error"),
    [
        pytest.param(attachment(), attaching(), attacher.PublishVolume, None, id="attached"),
        pytest.param(attachment(), attaching(attached=True), Done, None, id="attached already"),
        pytest.param(
            attachment(), attaching(volume=None), Wait, "pv1 does not exist", id="no volume"
        ),
        pytest.param(
            attachment(),
            attaching(node_id=""),
            Wait,
            "does not have the CSI driver",
            id="no driver",
        ),
        pytest.param(
            attachment(node_id="id", **DELETED),
            attaching(attached=True),
            attacher.UnpublishVolume,
            None,
            id="detached",
        ),
        pytest.param(attachment(**DELETED), attaching(), Done, None, id="never attached"),
        pytest.param(
            attachment(node_id="id", **DELETED), attaching(volume=None), Done, None, id="no disk"
        ),
    ],
)
def test_next_move_of_an_attachment(
    of: Json, seen: attacher.ObservedVolumeAttachment, expected: type, error: str | None
) -> None:
    move = attacher.next_move(of, seen)
    assert isinstance(move, expected)
    status = attacher.describe(seen, move)
    assert (status is None) is (error is None)
    assert error is None or error in (status or {})["attachError"]["message"]


def test_the_node_id_is_recorded_before_the_driver_is_called() -> None:
    first = attacher.next_move(attachment(), attaching())
    again = attacher.next_move(attachment(node_id="id"), attaching())
    assert isinstance(first, attacher.PublishVolume)
    assert isinstance(again, attacher.PublishVolume)
    assert (first.record_node, again.record_node) == (True, False)


@pytest.mark.parametrize(
    ("size", "seen", "expected"),
    [
        pytest.param("2Gi", resizer.ObservedExpansion(volume(), True), Done, id="large enough"),
        pytest.param("3Gi", resizer.ObservedExpansion(), Done, id="another driver's volume"),
        pytest.param("3Gi", resizer.ObservedExpansion(volume()), Wait, id="not allowed"),
        pytest.param(
            "3Gi", resizer.ObservedExpansion(volume(), True), resizer.ExpandVolume, id="expanded"
        ),
    ],
)
def test_next_move_of_a_bound_claim(
    size: str, seen: resizer.ObservedExpansion, expected: type
) -> None:
    assert isinstance(resizer.next_move(claim(size=size, volume="pv1"), seen), expected)


def test_the_node_finishes_the_expansion_of_a_file_system() -> None:
    assert resizer.claim_status(1 << 30, NOW, node_expands=False) == {
        "capacity": {"storage": "1Gi"}
    }
    (condition,) = resizer.claim_status(1 << 30, NOW, node_expands=True)["conditions"]
    assert condition["type"] == "FileSystemResizePending"


def free(zone: str, amount: int) -> capacity.SegmentCapacity:
    return capacity.SegmentCapacity({ZONE: zone}, amount, amount)


def published(zone: str, amount: int) -> Json:
    created = free(zone, amount)
    name = capacity.object_name(CLASS, created.segment)
    return capacity.new_object(CLASS, name, created, DRIVER)


@pytest.mark.parametrize(
    ("segments", "objects", "expected"),
    [
        pytest.param((free("a", 1),), (), [Create], id="a new segment"),
        pytest.param((free("a", 1),), (published("a", 1),), [], id="unchanged"),
        pytest.param((free("a", 2),), (published("a", 1),), [Merge], id="another amount"),
        pytest.param((), (published("a", 1),), [Delete], id="no node is left there"),
    ],
)
def test_capacities(segments: Any, objects: Any, expected: list[type]) -> None:
    move = capacity.next_move(CLASS, capacity.ObservedCapacity(DRIVER, segments, objects))
    writes = move.writes if isinstance(move, Writes) else ()
    assert [type(w) for w in writes] == expected
    assert move.requeue_after == capacity.CHECK_SECONDS


SNAPSHOT: Json = {
    "metadata": {"name": "s", "namespace": "d", "uid": "u"},
    "spec": {"source": {"persistentVolumeClaimName": "data"}},
}
SNAPSHOT_CLASS: Json = {
    "metadata": {"name": "k"},
    "driver": DRIVER,
    "deletionPolicy": "Delete",
    "parameters": {"a": "b", "csi.storage.k8s.io/x": "y"},
}


def content(policy: str = "Delete", *, deleting: bool = False, **source: Any) -> Json:
    created = snapshot.new_content(SNAPSHOT, SNAPSHOT_CLASS | {"deletionPolicy": policy}, "h")
    created["metadata"] |= DELETED if deleting else {}
    created["spec"]["source"] = source or {"volumeHandle": "h"}
    return created


GONE = SNAPSHOT | {"metadata": {**SNAPSHOT["metadata"], **DELETED}}


@pytest.mark.parametrize(
    ("of", "seen", "expected", "described"),
    [
        pytest.param(SNAPSHOT, {"problem": "not bound"}, Wait, "error", id="no source"),
        pytest.param(SNAPSHOT, {}, Done, None, id="another driver's"),
        pytest.param(
            SNAPSHOT,
            {"snapshot_class": SNAPSHOT_CLASS, "handle": "h"},
            Writes,
            "boundVolumeSnapshotContentName",
            id="its content is created",
        ),
        pytest.param(SNAPSHOT, {"content": content()}, Done, "readyToUse", id="it has a content"),
        pytest.param(GONE, {"content": content()}, Writes, None, id="the content is deleted"),
        pytest.param(GONE, {"content": content(deleting=True)}, Wait, None, id="and waited for"),
        pytest.param(GONE, {"content": content("Retain")}, Done, None, id="the content is kept"),
        pytest.param(GONE, {}, Done, None, id="nothing is left"),
    ],
)
def test_next_move_of_a_snapshot(
    of: Json, seen: Json, expected: type, described: str | None
) -> None:
    observed = snapshot.ObservedSnapshot(NOW, **seen)
    move = snapshot.next_move(of, observed)
    assert isinstance(move, expected)
    status = snapshot.describe(of, observed, move)
    assert (status is None) is (described is None)
    assert described is None or described in (status or {})


@pytest.mark.parametrize(
    ("of", "seen", "expected"),
    [
        pytest.param(content(), {}, content_plan.CreateSnapshot, id="taken"),
        pytest.param(content(), {"ready": True, "handle": "s"}, Done, id="taken already"),
        pytest.param(content(snapshotHandle="s"), {}, Done, id="it names a snapshot"),
        pytest.param(
            content(deleting=True), {"handle": "s"}, content_plan.DeleteSnapshot, id="deleted"
        ),
        pytest.param(content(deleting=True), {}, Done, id="never taken"),
        pytest.param(content("Retain", deleting=True), {"handle": "s"}, Done, id="retained"),
    ],
)
def test_next_move_of_a_content(of: Json, seen: Json, expected: type) -> None:
    observed = content_plan.ObservedContent(NOW, SNAPSHOT_CLASS, **seen)
    move = content_plan.next_move(of, observed)
    assert isinstance(move, expected)
    if isinstance(move, content_plan.CreateSnapshot):
        assert (move.name, move.parameters) == ("snapshot-u", {"a": "b"})


def test_the_status_of_a_snapshot_is_that_of_its_content() -> None:
    answer = content_plan.answer(DriverSnapshot("s", 1 << 30, 1767225600, ready=True))
    status = snapshot.from_content("c", content() | {"status": answer})
    assert (status["readyToUse"], status["restoreSize"]) == (True, "1Gi")
    assert status["creationTime"] == "2026-01-01T00:00:00Z"
    named = content(snapshotHandle="s")
    described = content_plan.describe(named, content_plan.ObservedContent(NOW))
    assert described == {"snapshotHandle": "s", "readyToUse": True}
