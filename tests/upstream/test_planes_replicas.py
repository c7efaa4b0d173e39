"""
Several genuine API servers and three members of etcd: no change interrupts the tenant's API.

A client reads and writes with a new connection each time, without retries, while certificates are
rotated, the version changes and programs are killed.
"""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from envtest.locate import cache, program
from envtest.plugin import KUBERNETES, require
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controlplanes.binaries.control_planes import BinaryControlPlanes
from moxwell.embedded.controlplanes.binaries.etcd import SharedEtcd
from moxwell.embedded.controlplanes.binaries.etcd_backups import EtcdBackups
from moxwell.embedded.controlplanes.binaries.etcd_restore import restore, snapshots
from moxwell.embedded.controlplanes.binaries.installed import InstalledReleases
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.controlplanes.supervision.supervisor import Supervisor
from moxwell.embedded.ports import free_port
from moxwell.errors import MoxwellError
from moxwell.testing.control_planes_contract import (
    CONFIG_MAPS,
    PATIENCE_SECONDS,
    Stage,
    client,
    config_map,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("control plane binaries"),
]
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    require(*KUBERNETES, "kube-controller-manager", "kube-scheduler", "etcdutl")
    folder = tmp_path_factory.mktemp("replicas")
    yield folder
    assert asyncio.run(process.terminate_all(folder, SystemClock())) == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(root: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()
    release = list((await InstalledReleases([cache()]).releases()).values())[-1]
    newer = re.sub(r"\d+$", "99", release.version)
    for path in (release.apiserver, release.controller_manager, release.scheduler):
        file = root / "more" / newer / path.name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        said = f'[ "$1" = --version ] && {{ echo Kubernetes {newer}; exit 0; }}'
        file.write_text(f'#!/bin/sh\n{said}\nexec {path} "$@"\n')
        file.chmod(0o700)

    def open_() -> BinaryControlPlanes:
        return BinaryControlPlanes(
            root,
            clock,
            installed=InstalledReleases([cache(), root / "more"]),
            processes=Processes(clock, {"PATH": os.environ["PATH"], "HOME": str(root)}),
            new_port=free_port,
            etcd_hosts=(LOOPBACK,) * 3,
        )

    made = Stage(open_, clock, release.version, newer)
    await made.begin()
    yield made
    await made.end()


def planes(stage: Stage) -> BinaryControlPlanes:
    assert isinstance(stage.runner, BinaryControlPlanes)
    return stage.runner


@dataclass
class Requests:
    """What a client saw that reads and writes all the time."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)
    longest: float = 0.0


@asynccontextmanager
async def steady_requests(stage: Stage, plane: HostedControlPlane) -> AsyncIterator[Requests]:
    seen = Requests()

    async def go() -> None:
        while True:
            began = stage.clock.monotonic()
            try:
                async with client(plane, stage.clock) as kube:
                    value = config_map("steady", str(seen.answered))
                    await kube.apply(value, CONFIG_MAPS, force=True)
                    found = await kube.get(CONFIG_MAPS, "steady", "default")
                    assert found["data"]["v"] == str(seen.answered)
            except (MoxwellError, AssertionError) as error:
                seen.failed.append(f"{type(error).__name__}: {error}")
            seen.answered += 1
            seen.longest = max(seen.longest, stage.clock.monotonic() - began)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(go())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled(stage: Stage, spec: HostedControlPlaneSpec) -> HostedControlPlane:
    """Call ensure until every API server runs as specified and answers."""
    deadline = stage.clock.monotonic() + PATIENCE_SECONDS
    while True:
        plane = await stage.runner.ensure(spec)
        if plane.ready and plane.ready_replicas == spec.replicas and plane.version == spec.version:
            return plane
        assert stage.clock.monotonic() < deadline, plane.message
        await asyncio.sleep(0.3)


def pids(root: Path, pattern: str) -> dict[str, int]:
    found = {f.stem: process.find(f) for f in root.rglob(f"{pattern}.run")}
    return {name: running.pid for name, running in found.items() if running is not None}


async def test_replicas_and_members_run(stage: Stage, root: Path) -> None:
    plane = await settled(stage, stage.spec("a", replicas=2))
    assert set(pids(root, "kube-apiserver*")) == {"kube-apiserver-0", "kube-apiserver-1"}
    assert set(pids(root, "etcd*")) == {"etcd", "etcd-1", "etcd-2"}
    async with planes(stage).etcd.connect() as etcd:
        found = {m.name: m.learner for m in await etcd.members()}
    assert found == {"moxwell": False, "moxwell-1": False, "moxwell-2": False}
    assert plane.host == LOOPBACK


async def test_nothing_is_interrupted(stage: Stage, root: Path) -> None:
    spec = stage.spec("a", replicas=2)
    plane = await settled(stage, spec)
    async with steady_requests(stage, plane) as seen:
        before = pids(root, "kube-apiserver*")
        await settled(stage, stage.spec("a", rotation="again"))
        rotated = pids(root, "kube-apiserver*")
        assert not set(before.values()) & set(rotated.values())
        plane = await settled(stage, stage.spec("a", version=stage.newer))
        assert not set(rotated.values()) & set(pids(root, "kube-apiserver*").values())
        await settled(stage, stage.spec("a", replicas=3))
        await settled(stage, stage.spec("a", replicas=2))
    assert seen.answered > 50
    assert seen.failed == []


async def test_a_killed_member_of_etcd_interrupts_for_seconds(stage: Stage, root: Path) -> None:
    """Whichever member was the leader: the other two elect one."""
    plane = await settled(stage, stage.spec("a", replicas=2))
    async with steady_requests(stage, plane) as seen:
        for name in ("etcd", "etcd-1", "etcd-2"):
            killed, failed = pids(root, name)[name], len(seen.failed)
            os.kill(killed, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (
                    pids(root, name).get(name, killed) == killed or not planes(stage).etcd.answers()
                ):
                    await asyncio.sleep(0.1)
                answered = seen.answered + 10
                while seen.answered < answered:
                    await asyncio.sleep(0.1)
            assert len(seen.failed) - failed <= 5


async def test_a_snapshot_is_restored_by_genuine_etcdutl(stage: Stage, root: Path) -> None:
    plane = await settled(stage, stage.spec("a", replicas=2))
    async with client(plane, stage.clock) as kube:
        await kube.apply(config_map("kept", "before"), CONFIG_MAPS, force=True)
        await EtcdBackups(planes(stage).etcd, stage.clock).make()
        await kube.apply(config_map("kept", "after"), CONFIG_MAPS, force=True)
        await kube.apply(config_map("later", "x"), CONFIG_MAPS, force=True)
        before = int(
            (await kube.get(CONFIG_MAPS, "later", "default"))["metadata"]["resourceVersion"]
        )
    folder, chosen = planes(stage).etcd.folder, snapshots(planes(stage).etcd.folder)[-1].path
    with pytest.raises(MoxwellError, match="stop the instance first"):
        restore(folder, chosen, program("etcdutl"), datetime.now(UTC))
    await stage.end()
    kept = restore(folder, chosen, program("etcdutl"), datetime.now(UTC))
    assert {p.name for p in kept.iterdir()} == {"data", "data-1", "data-2"}
    await stage.begin()
    plane = await settled(stage, stage.spec("a"))
    async with client(plane, stage.clock) as kube:
        found = await kube.get(CONFIG_MAPS, "kept", "default")
        assert found["data"] == {"v": "before"}
        assert await kube.find(CONFIG_MAPS, "later", "default") is None
        new = await kube.apply(config_map("new", "x"), CONFIG_MAPS, force=True)
        assert int(new["metadata"]["resourceVersion"]) > before
    assert set(pids(root, "etcd*")) == {"etcd", "etcd-1", "etcd-2"}


async def test_members_move_are_removed_and_get_lost_data_again(tmp_path: Path) -> None:
    """Without tenants; what was written first is there after every change."""
    installed = InstalledReleases([cache()])
    clock, moved = SystemClock(), ("127.0.0.7", "127.0.0.8", "127.0.0.9")
    steps: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("", (LOOPBACK,)),
        ("", (LOOPBACK,) * 3),
        ("data-1", (LOOPBACK,) * 3),
        ("data", (LOOPBACK,) * 3),
        ("", moved),
        ("", (LOOPBACK,)),
    )
    for first, (lost, hosts) in zip((True, *[False] * 5), steps, strict=True):
        if lost:
            shutil.rmtree(tmp_path / lost)
        processes = Processes(clock, {"PATH": os.environ["PATH"]})
        etcd = SharedEtcd(
            tmp_path,
            clock,
            Supervisor(processes, clock),
            program=installed.etcd,
            new_port=free_port,
            hosts=hosts,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (await etcd.ensure()).healthy:
                    await asyncio.sleep(0.2)
            async with etcd.connect() as connected:
                if first:
                    await connected.put("/kept", "x")
                found = {m.peer_url.split("/")[2].split(":")[0] for m in await connected.members()}
                assert (found, len(await connected.members())) == (set(hosts), len(hosts))
                assert await connected.count("/kept") == 1
        finally:
            await etcd.stop()
