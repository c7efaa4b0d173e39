"""Volume migration killed after every write to Proxmox, Kubernetes and the journal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.driver import NAME
from moxwell.csi.journal import MemoryJournal
from moxwell.csi.migrate import Migration
from moxwell.csi.pvc import CLAIMS, VOLUMES
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.csi_kill import KilledJournal, check_single_attachment
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.loop import LoopClock, run_virtual


def pv(handle: str) -> dict[str, Any]:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": NAME, "volumeHandle": handle},
        "claimRef": {"namespace": "default", "name": "data"},
    }
    meta = {"name": "pvc-1"}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {
        "volumeName": "pvc-1",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


class MigrationRun:
    """One run of a volume migration."""

    def __init__(self, folder: Path, store: EmbeddedApiServer, *, root: bool) -> None:
        self.env, self.store, self.file = CsiEnvironment(folder), store, folder / "journal.json"
        self.env.as_root = root

    async def prepare(self) -> None:
        async with self.env.running(journal=MemoryJournal(self.file), regions=("r1",)):
            volume = await calls.create(self.env.controller, "pvc-1", "local-lvm", zone="r1-h0")
        self.env.write(volume.volume_id, "monday")
        await Kube(self.store).create(pv(volume.volume_id), VOLUMES)
        await Kube(self.store).create(CLAIM, CLAIMS)

    async def process_run(self, effects: EffectCounter) -> bool:
        """Run the migration in one process; returns whether it completed."""
        self.env.effects = effects
        journal = KilledJournal(self.file, effects)
        async with self.env.running(journal=journal, regions=("r1",)):
            kube = Kube(effects.kube(self.store))
            moving = asyncio.create_task(Migration(self.env.driver, kube).run(*WHERE))
            killed = asyncio.create_task(effects.killed.wait())
            await asyncio.wait({moving, killed}, return_when=asyncio.FIRST_COMPLETED)
            ended = moving.done() and not effects.killed.is_set()
            for task in (moving, killed):
                task.cancel()
            await asyncio.wait({moving, killed})
            problem = moving.exception() if ended else None
        await effects.served()
        check_single_attachment(self.env)
        if problem is not None and not isinstance(problem, MoxwellError):
            raise problem
        return ended and problem is None

    async def moved(self) -> bool:
        found = await Kube(self.store).find(VOLUMES, "pvc-1")
        claim = await Kube(self.store).find(CLAIMS, "data", "default")
        handle = (found or {}).get("spec", {}).get("csi", {}).get("volumeHandle", "")
        return claim is not None and "/r1-h1/" in handle and MemoryJournal(self.file).keys() == []

    async def check(self) -> None:
        found = await Kube(self.store).get(VOLUMES, "pvc-1")
        handle = found["spec"]["csi"]["volumeHandle"]
        assert self.env.content(handle) == "monday"
        assert self.env.all_disks() == [handle.split("/", 2)[2].replace("/", ":", 1)]
        assert len(self.env.helper_vms()) == ("-disk-0" in handle)


WHERE = ("default", "data", "r1-h1")


async def run_once(folder: Path, *, root: bool, number: int | None, ending: Ending) -> list[str]:
    async with EmbeddedApiServer(clock=LoopClock()) as store:
        migration_run = MigrationRun(folder, store, root=root)
        await migration_run.prepare()
        first = EffectCounter(kill_after=number, ending=ending)
        done = await migration_run.process_run(first)
        for _ in range(20):
            if done or await migration_run.moved():
                break
            await asyncio.sleep(10)
            done = await migration_run.process_run(EffectCounter())
        assert await migration_run.moved()
        await migration_run.check()
        await migration_run.env.close()
        return first.effects


@pytest.mark.parametrize("ending", ["killed", "lost"])
@pytest.mark.parametrize("root", [False, True], ids=["by a token", "by root"])
def test_a_migration_recovers_from_a_kill_after_any_write(
    tmp_path: Path, root: bool, ending: Ending
) -> None:
    def fresh(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    plain = run_virtual(run_once(fresh("plain"), root=root, number=None, ending=ending))
    assert len(plain) > 8
    for number in range(1, len(plain) + 1):
        run_virtual(run_once(fresh(str(number)), root=root, number=number, ending=ending))
