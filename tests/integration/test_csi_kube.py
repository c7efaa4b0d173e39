"""The driver with a Kubernetes API: journal, retained disks, events and volume migration."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.driver import NAME
from moxwell.csi.journal import CONFIG_MAPS, LABEL, ConfigMapJournal, MemoryJournal
from moxwell.csi.migrate import Migration
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.events import EVENTS
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import LoopClock, run_virtual

Scenario = Callable[[CsiEnvironment, Kube], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario, *, root: bool = False) -> None:
    async def run() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as store:
            kube, env = Kube(store), CsiEnvironment(folder)
            env.as_root = root
            async with env.running(kube=kube, journal=ConfigMapJournal(kube, "kube-system", NAME)):
                await scenario(env, kube)
            await env.close()

    run_virtual(run())


def volume_object(volume: csi.Volume, **annotations: str) -> dict[str, Any]:
    name = "pvc-" + volume.volume_id.rpartition("-pvc-")[2]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "x",
            "csi": {"driver": NAME, "volumeHandle": volume.volume_id},
            "claimRef": {"namespace": "default", "name": "data"},
        },
    }


def claim_object(volume_name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "x",
            "volumeName": volume_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def test_an_annotation_retains_the_disk(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        retained, other = [await calls.create(env.controller, f"pvc-{n}") for n in (1, 2)]
        annotations = {"csi.proxmox.sinextra.dev/lifecycle": "keep"}
        await kube.create(volume_object(retained, **annotations), VOLUMES)
        await kube.create(volume_object(other), VOLUMES)
        for volume in (retained, other):
            await calls.delete(env.controller, volume)
        assert env.volumes("ceph") == [retained.volume_id.rpartition("/")[2]]

    run_scenario(tmp_path, scenario)


def test_a_deferred_size_is_in_a_configmap_until_it_is_applied(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        volume = await calls.create(env.controller, "pvc-1")
        assert await calls.expand(env.controller, volume, 4) == 4 * calls.GIB
        assert len((await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items) == 1
        await calls.attach(env.controller, volume)
        assert "size=4G" in str(env.conf(101)["scsi1"])
        assert (await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items == ()

    run_scenario(tmp_path, scenario)


def old_config_map(key: str, entry: dict[str, str]) -> dict[str, Any]:
    """An entry as earlier versions stored it."""
    name = "csi-book-" + hashlib.sha256(f"{NAME}:{key}".encode()).hexdigest()[:20]
    labels = {"csi.moxwell.dev/book": "entry"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "data": {"key": key, "entry": json.dumps(entry)},
    }


def test_an_entry_of_an_earlier_version_is_read_replaced_and_deleted(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        journal = ConfigMapJournal(kube, "kube-system", NAME)
        await kube.create(old_config_map("volume:r1//ceph/x", {"size": "1"}), CONFIG_MAPS)
        await kube.create(old_config_map("birth:abc", {"vmid": "10001"}), CONFIG_MAPS)
        assert await journal.get("volume:r1//ceph/x") == {"size": "1"}
        assert await journal.get("helper-vm:abc") == {"vmid": "10001"}
        await journal.put("volume:r1//ceph/x", {"size": "2"})
        assert await journal.get("volume:r1//ceph/x") == {"size": "2"}
        for key in ("volume:r1//ceph/x", "helper-vm:abc"):
            await journal.delete(key)
            assert await journal.get(key) == {}
        assert (await kube.list(CONFIG_MAPS, "kube-system")).items == ()

    run_scenario(tmp_path, scenario)


def test_a_journal_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    file.write_text(json.dumps({"birth:abc": {"vmid": "10001"}, "copy:x": {"source": "y"}}))
    assert MemoryJournal(file).keys() == ["copy:x", "helper-vm:abc"]


def test_an_error_is_an_event_on_the_claim(tmp_path: Path) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        await kube.create(claim_object(), CLAIMS)
        parameters = {
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "default",
        }
        try:
            await calls.create(env.controller, "pvc-1", "no-such-storage", params=parameters)
        except MoxwellError:
            assert env.driver.persistent_volumes.recorder is not None
            await env.driver.persistent_volumes.recorder.flush()
        (event,) = (await kube.list(EVENTS, "default")).items
        assert event["involvedObject"]["name"] == "data"
        assert "no-such-storage" in event["message"]

    run_scenario(tmp_path, scenario)


@pytest.mark.parametrize("root", [True, False], ids=["by root", "by a token"])
def test_an_interrupted_migration_is_resumed(tmp_path: Path, root: bool) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        volume = await calls.create(env.controller, "pvc-1", "local-lvm", zone="r1-h0")
        content = env.content(volume.volume_id)
        pv = volume_object(volume)
        await kube.create(pv, VOLUMES)
        await kube.create(claim_object(pv["metadata"]["name"]), CLAIMS)
        for seconds in (0.01, 0.1, 0.2):
            task = asyncio.create_task(Migration(env.driver, kube).run("default", "data", "r1-h1"))
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.wait([task])
        found = await kube.get(VOLUMES, pv["metadata"]["name"])
        if found["spec"]["csi"]["volumeHandle"] == volume.volume_id:
            await Migration(env.driver, kube).run("default", "data", "r1-h1")
        found = await kube.get(VOLUMES, pv["metadata"]["name"])
        moved = found["spec"]["csi"]["volumeHandle"]
        assert moved.startswith("r1/r1-h1/local-lvm/vm-")
        assert env.content(moved) == content
        assert (await kube.get(CLAIMS, "data", "default"))["spec"]["volumeName"] == pv["metadata"][
            "name"
        ]
        assert await calls.attach(env.controller, csi.Volume(volume_id=moved), 102)
        assert env.all_disks() == [moved.split("/", 2)[2].replace("/", ":", 1)]
        assert len(env.helper_vms()) == (0 if root else 1)

    run_scenario(tmp_path, scenario, root=root)


@pytest.mark.parametrize(
    ("storage", "how"),
    [("local-lvm", "linked clone"), ("local-zfs", "full clone"), ("ceph", "full clone")],
)
def test_a_restore_is_an_event_on_the_claim(tmp_path: Path, storage: str, how: str) -> None:
    async def scenario(env: CsiEnvironment, kube: Kube) -> None:
        await kube.create(claim_object(), CLAIMS)
        parameters = {
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "default",
        }
        volume = await calls.create(env.controller, "pvc-1", storage, zone="r1-h0")
        taken = await calls.snapshot(env.controller, "snap", volume)
        source = calls.of_snapshot(taken)
        await calls.create(
            env.controller, "pvc-2", storage, zone="r1-h0", params=parameters, source=source
        )
        assert env.driver.persistent_volumes.recorder is not None
        await env.driver.persistent_volumes.recorder.flush()
        (event,) = (await kube.list(EVENTS, "default")).items
        assert event["reason"] == "Restored"
        assert how in event["message"]
        # The journal is empty.
        assert (await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items == ()

    run_scenario(tmp_path, scenario)
