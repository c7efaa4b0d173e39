"""Hosted control planes of genuine programs: the promises of all hosts, and what only they have."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import pytest_asyncio

from envtest.locate import cache
from envtest.plugin import KUBERNETES, require
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlane
from moxwell.embedded.controlplanes.addresses import loopback
from moxwell.embedded.controlplanes.binaries.control_planes import BinaryControlPlanes
from moxwell.embedded.controlplanes.binaries.etcd import prefix_of
from moxwell.embedded.controlplanes.binaries.etcd_backups import EtcdBackups
from moxwell.embedded.controlplanes.binaries.etcd_client import EtcdClient, EtcdDenied
from moxwell.embedded.controlplanes.binaries.installed import (
    InstalledReleases,
    Release,
    ReleaseMissing,
)
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.ports import free_port
from moxwell.errors import Unreachable
from moxwell.runtime.key import Key
from moxwell.testing.control_planes_contract import (
    PATIENCE_SECONDS,
    ControlPlanesContract,
    Stage,
    client,
)

Address = Callable[[Path], str]
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("control plane binaries"),
]
Opened = Callable[[Address], BinaryControlPlanes]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of which nothing runs any more at the end, whatever happened."""
    require(*KUBERNETES, "kube-controller-manager", "kube-scheduler")
    folder = tmp_path_factory.mktemp("control-plane-binaries")
    yield folder
    left = asyncio.run(process.terminate_all(folder, SystemClock()))
    assert left == 0


@pytest.fixture(scope="module")
def opened(root: Path) -> Opened:
    def open_(address: Address = loopback) -> BinaryControlPlanes:
        clock = SystemClock()
        return BinaryControlPlanes(
            root,
            clock,
            installed=InstalledReleases([cache(), root / "more"]),
            processes=Processes(clock, {"PATH": os.environ["PATH"], "HOME": str(root)}),
            new_port=free_port,
            address=address,
        )

    return open_


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(root: Path, opened: Opened) -> AsyncIterator[Stage]:
    release = list((await InstalledReleases([cache()]).releases()).values())[-1]
    newer = re.sub(r"\d+$", "99", release.version)
    another_build(root / "more", release, newer)
    made = Stage(lambda: opened(made.address), SystemClock(), release.version, newer)
    await made.begin()
    yield made
    await made.end()


def another_build(folder: Path, release: Release, version: str) -> None:
    """The same programs under another version, in a folder of their own beside the others."""
    for path in (release.apiserver, release.controller_manager, release.scheduler):
        file = folder / version / path.name
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        said = f'[ "$1" = --version ] && {{ echo Kubernetes {version}; exit 0; }}'
        file.write_text(f'#!/bin/sh\n{said}\nexec {path} "$@"\n')
        file.chmod(0o700)


def planes(stage: Stage) -> BinaryControlPlanes:
    assert isinstance(stage.runner, BinaryControlPlanes)
    return stage.runner


def tenant_folder(root: Path, name: str) -> Path:
    return root / "tenants" / "team" / name


class TestGenuinePlanes(ControlPlanesContract):
    @pytest.fixture(autouse=True)
    def _remember(self, root: Path) -> None:
        self._root = root

    async def check_destroyed(self, stage: Stage, plane: HostedControlPlane) -> None:
        folder = tenant_folder(self._root, "d")
        assert not folder.exists()
        async with planes(stage).etcd.connect() as etcd:
            assert "uid-d" not in await etcd.users()
            assert "uid-d" not in await etcd.roles()
            assert await etcd.count(prefix_of("uid-d")) == 0
            assert await etcd.count(prefix_of("uid-a")) > 0
        assert not _commands_with(str(folder))


async def test_a_tenant_cannot_reach_into_another_ones_prefix(stage: Stage, root: Path) -> None:
    await stage.up(stage.spec("a"))
    await stage.up(stage.spec("b"))
    pki, endpoint = tenant_folder(root, "a") / "pki", planes(stage).etcd.members()[0].endpoint
    async with _as_tenant(pki, endpoint) as etcd:
        assert await etcd.count(prefix_of("uid-a")) > 0
        await etcd.put(f"{prefix_of('uid-a')}mine", "x")
        for there in (prefix_of("uid-b"), "/tenants/", "/", ""):
            with pytest.raises(EtcdDenied):
                await etcd.count(there)
        with pytest.raises(EtcdDenied):
            await etcd.put(f"{prefix_of('uid-b')}mine", "x")
        with pytest.raises(EtcdDenied):
            await etcd.delete_prefix_user("uid-b", prefix_of("uid-b"))
        with pytest.raises(EtcdDenied):
            await etcd.add_user("uid-x")
        with pytest.raises(EtcdDenied):
            await etcd.users()


async def test_a_snapshot_of_etcd_is_complete(stage: Stage, root: Path) -> None:
    """The file is a database and its checksum, which ``etcdutl snapshot restore`` requires."""
    await stage.up(stage.spec("a"))
    made = await EtcdBackups(planes(stage).etcd, SystemClock()).make()
    data = made.path.read_bytes()
    assert made.revision > 1
    assert len(data) % 512 == 32
    assert sha256(data[:-32]).digest() == data[-32:]


async def test_etcd_hears_nobody_without_its_certificate(stage: Stage, root: Path) -> None:
    await stage.up(stage.spec("a"))
    pki, endpoint = tenant_folder(root, "a") / "pki", planes(stage).etcd.members()[0].endpoint
    admin = [(pki / f"admin-client.{end}").read_bytes() for end in ("crt", "key")]
    ca = (pki / "etcd-ca.crt").read_bytes()
    async with EtcdClient([endpoint], ca=ca, certificate=admin[0], key=admin[1]) as etcd:
        with pytest.raises(Unreachable):  # the tenant's own authority is none here
            await etcd.count("/")


async def test_no_secret_is_in_a_command_line_and_files_are_ones_own(
    stage: Stage, root: Path
) -> None:
    await stage.up(stage.spec("a"))
    folder = tenant_folder(root, "a")
    for path in [p for p in _all_files(root) if p.parent.name != "member"]:
        with suppress(FileNotFoundError):  # a draft that has its name by now
            assert path.stat().st_mode & 0o077 == 0, path
    words = " ".join(_commands_with(str(folder)))
    assert words.count(str(folder)) > 10
    assert "PRIVATE" not in words
    assert not re.search(r"token=|password|client-key-data", words)


async def test_a_killed_program_is_restarted_and_reported(stage: Stage, root: Path) -> None:
    changed: list[Key] = []
    plane = await stage.up(stage.spec("a"))
    planes(stage).changed = changed.append
    for name in ("kube-apiserver", "kube-scheduler"):
        killed = process.find(tenant_folder(root, "a") / f"{name}.run")
        assert killed is not None
        os.kill(killed.pid, signal.SIGKILL)
        reported = await _reported(stage, root, name, killed)
        assert reported is None or reported.initialized  # not ready any more, but not new
        await _restarted(root, name, killed)
        again = await stage.up(stage.spec("a"))
        assert replace(again, last_exit=plane.last_exit) == plane
        # others may be named too: kube-controller-manager can exit when kube-apiserver is killed
        assert f"{name} was killed by SIGKILL" in again.last_exit
    assert Key("team", "a") in changed


def _pid(root: Path, name: str) -> int:
    running = process.find(tenant_folder(root, "a") / f"{name}.run")
    return running.pid if running is not None else 0


async def _reported(
    stage: Stage, root: Path, name: str, killed: process.RunningProcess
) -> HostedControlPlane | None:
    """
    The first state that names the killed program; None if it was restarted before we looked.

    On a busy machine other programs may be reported first, because their probes fail or time out.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _pid(root, name) in (0, killed.pid):
            found = await stage.runner.ensure(stage.spec("a"))
            if not found.ready and name in found.message:
                return found
            await asyncio.sleep(0.05)
    return None


async def _restarted(root: Path, name: str, killed: process.RunningProcess) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _pid(root, name) in (0, killed.pid):
            await asyncio.sleep(0.1)


async def test_a_version_that_is_not_installed_is_refused_and_what_runs_runs_on(
    stage: Stage,
) -> None:
    plane = await stage.up(stage.spec("a"))
    major, minor, _ = stage.version.split(".")
    newer = f"{major}.{int(minor) + 1}.0"
    with pytest.raises(ReleaseMissing) as refused:
        await stage.runner.ensure(replace(stage.spec("a"), version=newer))
    assert f"Kubernetes {newer} is not installed (installed: {stage.version}, " in str(
        refused.value
    )
    assert f"into {cache()}/{newer}" in str(refused.value)
    async with client(plane, stage.clock) as kube:
        assert (await kube.version()).git_version == stage.version


def _as_tenant(pki: Path, endpoint: str) -> EtcdClient:
    return EtcdClient(
        [endpoint],
        ca=(pki / "etcd-ca.crt").read_bytes(),
        certificate=(pki / "etcd-client.crt").read_bytes(),
        key=(pki / "etcd-client.key").read_bytes(),
    )


def _all_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _commands_with(text: str) -> list[str]:
    """Command lines of living processes that name a text."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words and str(os.getpid()) != file.parent.name:
            found.append(words)
    return found
