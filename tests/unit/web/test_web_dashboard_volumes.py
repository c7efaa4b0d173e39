"""Volumes and addresses on the dashboard, and what it keeps over a restart."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moxwell.api.core.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from moxwell.api.ipam import IPAddress
from moxwell.runtime.key import Key
from moxwell.web import dashboard_volumes, stage_durations
from moxwell.web.history import KEPT_SAMPLES, EventHistory

KEY = Key("t", "c1")
DISK = {"driver": "csi.moxwell.dev", "volumeHandle": "north/pve1/lvm/vm-9999-pvc-1"}


class TenantCache:
    """The caches of volumes of one tenant."""

    def __init__(self, *objects: Any) -> None:
        self._objects = objects

    def of(self, kind: Any, **_: Any) -> "TenantCache":
        return TenantCache(*(o for o in self._objects if isinstance(o, kind)))

    def list(self) -> tuple[Any, ...]:
        return self._objects


def made(kind: Any, name: str, **tree: Any) -> Any:
    meta = {"name": name, "namespace": "default", **tree.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, **tree}, kind, strict=False)


def volume(phase: str = "Bound", **meta: Any) -> Any:
    claim = {"namespace": "default", "name": "data"}
    spec = {"csi": DISK, "capacity": {"storage": "20Gi"}, "claimRef": claim}
    return made(PersistentVolume, "pvc-1", metadata=meta, spec=spec, status={"phase": phase})


def held(attached: bool, **meta: Any) -> Any:
    spec = {"attacher": "x", "nodeName": "m1", "source": {"persistentVolumeName": "pvc-1"}}
    return made(VolumeAttachment, "a", metadata=meta, spec=spec, status={"attached": attached})


GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
TABLE: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "attached": ((volume(), held(True)), "ready", "Attached to m1"),
    "being attached": ((volume(), held(False)), "attaching", "Attaching to m1"),
    "being detached": ((volume(), held(True, **GONE)), "attaching", "Detaching from m1"),
    "used by nobody": ((volume(),), "ready", "Not attached: no pod uses it"),
    "kept": ((volume("Released"),), "ready", "Released and retained"),
    "stuck": ((volume("Failed"),), "trouble", "Its disk could not be deleted"),
    "deleting": ((volume(**GONE),), "deleting", "Deleting its disk"),
}


@pytest.mark.parametrize(("objects", "state", "message"), TABLE.values(), ids=TABLE)
def test_a_volume_says_what_is_with_it(objects: tuple[Any, ...], state: str, message: str) -> None:
    caches: Any = TenantCache(*objects)
    (found,) = dashboard_volumes.volumes_of(KEY, caches)
    assert (found.state, found.claim, found.size_mib) == (state, "default/data", 20 * 1024)
    assert found.message.startswith(message)
    assert (found.cluster, found.storage) == ("t/c1", "north/pve1/lvm")


def test_a_claim_without_a_volume_is_shown_as_a_wish() -> None:
    spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "proxmox-ceph"}
    caches: Any = TenantCache(
        made(PersistentVolumeClaim, "pending", spec=spec),
        made(PersistentVolumeClaim, "had", spec={**spec, "volumeName": "pvc-1"}),
    )
    (found,) = dashboard_volumes.volumes_of(KEY, caches)
    assert (found.name, found.state, found.storage) == ("pending", "waiting", "proxmox-ceph")
    assert "when a pod uses" in found.message
    asked = {"annotations": {dashboard_volumes.PROVISIONER: "csi.moxwell.dev"}}
    caches = TenantCache(made(PersistentVolumeClaim, "pending", spec=spec, metadata=asked))
    (found,) = dashboard_volumes.volumes_of(KEY, caches)
    assert "events of the claim" in found.message


def test_a_tenant_that_sleeps_shows_nothing() -> None:
    assert dashboard_volumes.volumes_of(KEY, None) == ()


def test_addresses_are_counted_by_pool() -> None:
    def given(claim: str, pool: str) -> Any:
        ref = {"kind": "InClusterIPPool", "name": pool}
        spec = {"claimRef": {"name": claim}, "poolRef": ref, "address": "10.0.0.1"}
        return made(IPAddress, claim, spec=spec)

    rows = [given("m1-net0-00-inet", "a"), given("m2-net0-00-inet", "b"), given("x-net0", "a")]
    assert dashboard_volumes.addresses_of(["m1", "m2"], rows) == ("2 allocated", "1 of a, 1 of b")
    assert dashboard_volumes.addresses_of([], rows) == ("", "")


def test_what_is_typical_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "typical.json"
    known = {"north": {"Boot": [float(n) for n in range(40)], "Nonsense": [1.0]}}
    assert stage_durations.write(path, {}, known) == known
    history = EventHistory()
    history.load_durations(stage_durations.read(path))
    assert history.typical("north", "Boot") == 27.5
    assert len(history.dump_durations()["north"]["Boot"]) == KEPT_SAMPLES
    assert history.typical("north", "Nonsense") is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{]", id="not JSON"),
        pytest.param(b'{"a": [1]}', id="another shape"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b" " * (stage_durations.MAX_BYTES + 1), id="much too large"),
    ],
)
def test_a_broken_file_is_as_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "typical.json"
    path.write_bytes(text)
    assert stage_durations.read(path) == {}


def test_where_nothing_can_be_written_the_page_lives_on(tmp_path: Path) -> None:
    assert stage_durations.write(tmp_path / "no" / "folder" / "x", {}, {"a": {}}) in ({}, {"a": {}})
    assert stage_durations.write(None, {}, {"a": {}}) == {}
    assert stage_durations.read(None) == {}
