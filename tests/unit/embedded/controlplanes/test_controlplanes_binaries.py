"""Control planes from binaries that cannot start: states and errors before they are ready."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries.control_planes import BinaryControlPlanes
from moxwell.embedded.controlplanes.binaries.installed import PROGRAMS, InstalledReleases
from moxwell.embedded.controlplanes.binaries.tenant_folder import TenantFolder
from moxwell.embedded.ports import PortTaken, free_port
from moxwell.errors import Unreachable
from moxwell.runtime.key import Key
from moxwell.testing.processes import FakeProcesses

KEY = Key("team", "c1")
TENANT = HostedControlPlaneSpec(key=KEY, uid="u1", version="v1.36.3", replicas=1)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in (*PROGRAMS, "etcd"):
        (folder / name).write_text("#!/bin/sh\necho Kubernetes v1.36.3\n")
        (folder / name).chmod(0o755)
    return folder


def hosts(
    tmp_path: Path,
    programs: Path,
    processes: FakeProcesses,
    new_port: Callable[[str], int] = free_port,
) -> BinaryControlPlanes:
    return BinaryControlPlanes(
        tmp_path / "root",
        SystemClock(),
        installed=InstalledReleases([programs]),
        processes=processes,
        new_port=new_port,
    )


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_store_comes_first_and_all_is_ended(tmp_path: Path, programs: Path) -> None:
    processes = FakeProcesses()
    planes = hosts(tmp_path, programs, processes)
    task = asyncio.create_task(planes.run())
    plane = await planes.ensure(TENANT)
    assert (plane.ready, plane.initialized, plane.driver) == (False, False, "etcd")
    assert plane.message.startswith("etcd: ")
    assert plane.admin_kubeconfig == plane.ca_key == ""
    await asyncio.sleep(0.05)
    assert [job.name for job in processes.started] == ["etcd"]
    assert list(planes.keys()) == [KEY]
    assert planes.has(KEY)
    assert not planes.has(Key("team", "c2"))
    await ended(task)
    assert processes.running == {}


async def test_ports_are_remembered_and_all_differ(tmp_path: Path, programs: Path) -> None:
    seen = []
    for _ in range(2):
        planes = hosts(tmp_path, programs, FakeProcesses())
        task = asyncio.create_task(planes.run())
        await planes.ensure(TENANT)
        record = TenantFolder(tmp_path / "root" / "tenants" / "team" / "c1", SystemClock()).find()
        assert record is not None
        etcd = planes.etcd.members()[0].ports
        ports = (record.port, record.manager_port, record.scheduler_port)
        seen.append((*ports, etcd.client, etcd.peer))
        await ended(task)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 5


async def test_who_waits_for_an_end_begins_anew(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planes = hosts(tmp_path, programs, FakeProcesses())

    begun, may_end = asyncio.Event(), asyncio.Event()

    async def removed(uid: str) -> None:  # an etcd on paper never answers
        begun.set()
        await may_end.wait()

    monkeypatch.setattr(planes.etcd, "remove", removed)
    task = asyncio.create_task(planes.run())
    await planes.ensure(TENANT)
    end = asyncio.create_task(planes.destroy(KEY))
    await begun.wait()
    anew = asyncio.create_task(planes.ensure(TENANT))  # waits until the end is complete
    await asyncio.sleep(0.05)
    assert not anew.done()
    may_end.set()
    await asyncio.gather(end, anew)
    assert list(planes.keys()) == [KEY]
    await ended(task)


async def test_a_port_that_nodes_know_is_not_exchanged(tmp_path: Path, programs: Path) -> None:
    planes = hosts(tmp_path, programs, FakeProcesses())
    task = asyncio.create_task(planes.run())
    port = (await planes.ensure(TENANT)).port
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        with pytest.raises(PortTaken, match=f"port {port} .* is taken by another program"):
            await planes.ensure(TENANT)
    assert (await planes.ensure(TENANT)).port == port
    await ended(task)


async def test_a_port_of_one_asleep_is_not_given_away(tmp_path: Path, programs: Path) -> None:
    ports = [free_port()]
    planes = hosts(
        tmp_path, programs, FakeProcesses(), lambda host: ports.pop() if ports else free_port()
    )
    task = asyncio.create_task(planes.run())
    first = await planes.ensure(TENANT)
    await planes.sleep(KEY)
    ports += [first.port, first.port]
    second = await planes.ensure(replace(TENANT, key=Key("team", "c2"), uid="u2"))
    assert second.port != first.port
    await ended(task)


async def test_a_port_of_no_interest_is(tmp_path: Path, programs: Path) -> None:
    planes = hosts(tmp_path, programs, FakeProcesses())
    task = asyncio.create_task(planes.run())
    await planes.ensure(TENANT)
    tenant = TenantFolder(tmp_path / "root" / "tenants" / "team" / "c1", SystemClock())
    before = tenant.find()
    assert before is not None
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", before.scheduler_port))
        stranger.listen()
        await planes.ensure(TENANT)
        after = tenant.find()
        assert after is not None
        assert after.scheduler_port != before.scheduler_port
        assert (after.port, after.manager_port) == (before.port, before.manager_port)
    await ended(task)


async def test_nothing_is_forgotten_while_the_store_is_away(tmp_path: Path, programs: Path) -> None:
    """A tenant's folder goes last: until etcd has forgotten it, the next try knows of it."""
    planes = hosts(tmp_path, programs, FakeProcesses())
    task = asyncio.create_task(planes.run())
    await planes.ensure(TENANT)
    with pytest.raises(Unreachable, match="etcd"):
        await planes.destroy(KEY)
    assert planes.has(KEY)
    await planes.destroy(Key("team", "never"))  # harmless
    await planes.sleep(Key("team", "never"))
    await ended(task)
