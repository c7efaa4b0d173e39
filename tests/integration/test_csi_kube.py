"""The driver with a Kubernetes API: its book, what is kept, who is told, and moving a volume."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.driver import NAME
from moxwell.csi.journal import CONFIG_MAPS, LABEL, ConfigMapJournal
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

Story = Callable[[CsiEnvironment, Kube], Awaitable[None]]


def play(folder: Path, story: Story, *, root: bool = False) -> None:
    async def run() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as store:
            kube, stage = Kube(store), CsiEnvironment(folder)
            stage.as_root = root
            async with stage.running(
                kube=kube, journal=ConfigMapJournal(kube, "kube-system", NAME)
            ):
                await story(stage, kube)
            await stage.close()

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


def test_a_disk_that_a_person_keeps_outlives_its_volume(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, kube: Kube) -> None:
        kept, gone = [await calls.create(stage.controller, f"pvc-{n}") for n in (1, 2)]
        marks = {"csi.proxmox.sinextra.dev/lifecycle": "keep"}
        await kube.create(volume_object(kept, **marks), VOLUMES)
        await kube.create(volume_object(gone), VOLUMES)
        for volume in (kept, gone):
            await calls.delete(stage.controller, volume)
        assert stage.volumes("ceph") == ["vm-9999-pvc-1"]

    play(tmp_path, story)


def test_a_promise_is_in_the_api_until_it_is_kept(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, kube: Kube) -> None:
        volume = await calls.create(stage.controller, "pvc-1")
        assert await calls.expand(stage.controller, volume, 4) == 4 * calls.GIB
        assert len((await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items) == 1
        await calls.attach(stage.controller, volume)
        assert "size=4G" in str(stage.conf(101)["scsi1"])
        assert (await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items == ()

    play(tmp_path, story)


def test_a_claim_is_told_what_is_wrong(tmp_path: Path) -> None:
    async def story(stage: CsiEnvironment, kube: Kube) -> None:
        await kube.create(claim_object(), CLAIMS)
        told = {
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "default",
        }
        try:
            await calls.create(stage.controller, "pvc-1", "no-such-storage", params=told)
        except MoxwellError:
            assert stage.driver.persistent_volumes.recorder is not None
            await stage.driver.persistent_volumes.recorder.flush()
        (event,) = (await kube.list(EVENTS, "default")).items
        assert event["involvedObject"]["name"] == "data"
        assert "no-such-storage" in event["message"]

    play(tmp_path, story)


@pytest.mark.parametrize("root", [True, False], ids=["by root", "by a token"])
def test_a_local_volume_moves_to_another_host_even_if_interrupted(
    tmp_path: Path, root: bool
) -> None:
    async def story(stage: CsiEnvironment, kube: Kube) -> None:
        volume = await calls.create(stage.controller, "pvc-1", "local-lvm", zone="r1-h0")
        content = stage.content(volume.volume_id)
        pv = volume_object(volume)
        await kube.create(pv, VOLUMES)
        await kube.create(claim_object(pv["metadata"]["name"]), CLAIMS)
        for seconds in (0.01, 0.1, 0.2):
            task = asyncio.create_task(
                Migration(stage.driver, kube).run("default", "data", "r1-h1")
            )
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.wait([task])
        found = await kube.get(VOLUMES, pv["metadata"]["name"])
        if found["spec"]["csi"]["volumeHandle"] == volume.volume_id:
            await Migration(stage.driver, kube).run("default", "data", "r1-h1")
        found = await kube.get(VOLUMES, pv["metadata"]["name"])
        moved = found["spec"]["csi"]["volumeHandle"]
        assert moved.startswith("r1/r1-h1/local-lvm/vm-")
        assert stage.content(moved) == content
        assert (await kube.get(CLAIMS, "data", "default"))["spec"]["volumeName"] == "pvc-1"
        assert await calls.attach(stage.controller, csi.Volume(volume_id=moved), 102)
        assert stage.all_disks() == [moved.split("/", 2)[2].replace("/", ":", 1)]
        assert len(stage.helper_vms()) == (0 if root else 1)

    play(tmp_path, story, root=root)


@pytest.mark.parametrize(
    ("storage", "how"),
    [("local-lvm", "linked clone"), ("local-zfs", "full clone"), ("ceph", "full clone")],
)
def test_a_claim_is_told_how_it_was_restored(tmp_path: Path, storage: str, how: str) -> None:
    async def story(stage: CsiEnvironment, kube: Kube) -> None:
        await kube.create(claim_object(), CLAIMS)
        told = {
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "default",
        }
        volume = await calls.create(stage.controller, "pvc-1", storage, zone="r1-h0")
        taken = await calls.snapshot(stage.controller, "snap", volume)
        source = calls.of_snapshot(taken)
        await calls.create(
            stage.controller, "pvc-2", storage, zone="r1-h0", params=told, source=source
        )
        assert stage.driver.persistent_volumes.recorder is not None
        await stage.driver.persistent_volumes.recorder.flush()
        (event,) = (await kube.list(EVENTS, "default")).items
        assert event["reason"] == "Restored"
        assert how in event["message"]
        # Nothing under way is left in the book.
        assert (await kube.list(CONFIG_MAPS, "kube-system", labels=LABEL)).items == ()

    play(tmp_path, story)
