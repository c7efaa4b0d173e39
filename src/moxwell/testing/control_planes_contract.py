"""
The tests that every runner of control planes must pass: in-process and from binaries.

A test module subclasses :class:`ControlPlanesContract` and provides a ``stage``: a runner over one
folder that can be opened again as after an orderly stop. The tests share a stage and pass in any
order: each first starts the tenants it uses.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    ControlPlaneRunner,
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.ports import is_free
from moxwell.errors import Denied, MoxwellError, Terminal, Unreachable
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.runtime.key import Key

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PATIENCE_SECONDS = 180


class OwnedRunner(ControlPlaneRunner, Protocol):
    """A runner that owns its control planes while ``run`` runs."""

    async def run(self) -> None: ...


@dataclass
class Stage:
    """A runner, and how to open it again; ``address`` is passed to it."""

    open: Callable[[], OwnedRunner]
    clock: Clock
    version: str
    newer: str  # one to upgrade to
    specs: dict[str, HostedControlPlaneSpec] = field(
        default_factory=dict
    )  # of each tenant, as last changed
    host: str = "127.0.0.1"  # where control planes listen after the next begin
    runner: OwnedRunner = field(init=False)
    _task: "asyncio.Task[None]" = field(init=False)

    def address(self, _: Path) -> str:
        """The address of every tenant."""
        return self.host

    async def begin(self) -> None:
        self.runner = self.open()
        self._task = asyncio.create_task(self.runner.run())

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def spec(self, name: str, **changes: Any) -> HostedControlPlaneSpec:
        """The spec of a tenant, from now on with these changes."""
        new = HostedControlPlaneSpec(
            key=Key("team", name), uid=f"uid-{name}", version=self.version, replicas=1
        )
        spec = replace(self.specs.get(name, new), **changes)
        self.specs[name] = spec
        return spec

    async def up(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        """Call ensure until the control plane is ready."""
        deadline = self.clock.monotonic() + PATIENCE_SECONDS
        while not (plane := await self.runner.ensure(spec)).ready:
            assert self.clock.monotonic() < deadline, plane.message
            await self.clock.sleep(0.2)
        return plane


@asynccontextmanager
async def client(
    plane: HostedControlPlane, clock: Clock, *, admin: str = ""
) -> AsyncIterator[Kube]:
    """A client of a control plane with its own or another kubeconfig."""
    access = kubeconfig.parse(admin or plane.admin_kubeconfig).access(clock, {})
    url = f"https://{plane.host}:{plane.port}"
    async with KubeTransport(replace(access, server=url)) as transport:
        yield Kube(transport)


def config_map(name: str, value: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"v": value}}


class ControlPlanesContract:
    """The tests."""

    async def test_a_control_plane_answers_with_its_kubeconfig(self, stage: Stage) -> None:
        plane = await stage.up(stage.spec("a"))
        assert plane.version == stage.spec("a").version
        assert not is_free(plane.port, plane.host)
        assert plane.expires is not None
        assert plane.expires > stage.clock.now()
        async with client(plane, stage.clock) as kube:
            assert (await kube.version()).git_version.startswith(stage.version)
            await kube.apply(config_map("hello", "world"), CONFIG_MAPS, force=True)
            info = await kube.get(CONFIG_MAPS, "cluster-info", "kube-public")
            assert f"{plane.host}:{plane.port}" in info["data"]["kubeconfig"]

    async def test_ensure_is_idempotent(self, stage: Stage) -> None:
        first = await stage.up(stage.spec("a"))
        assert await stage.up(stage.spec("a")) == first

    async def test_repr_omits_secrets(self, stage: Stage) -> None:
        plane = await stage.up(stage.spec("a"))
        assert "PRIVATE" not in repr(plane)
        assert "client-key" not in repr(plane)

    async def test_tenants_are_isolated(self, stage: Stage) -> None:
        one, two = await stage.up(stage.spec("a")), await stage.up(stage.spec("b"))
        assert one.port != two.port
        assert one.ca != two.ca
        async with client(one, stage.clock) as kube:
            await kube.apply(config_map("mine", "a"), CONFIG_MAPS, force=True)
        async with client(two, stage.clock) as kube:
            assert await kube.find(CONFIG_MAPS, "mine", "default") is None
        crossed = kubeconfig.parse(one.admin_kubeconfig).access(stage.clock, {})
        url = f"https://{two.host}:{two.port}"
        async with KubeTransport(replace(crossed, server=url, ca=two.ca)) as transport:
            with_wrong_key = await _refusal(Kube(transport))
        assert with_wrong_key  # a certificate of one tenant is invalid for the other

    async def test_sleep_keeps_objects_port_and_kubeconfig(self, stage: Stage) -> None:
        before = await stage.up(stage.spec("a"))
        async with client(before, stage.clock) as kube:
            await kube.apply(config_map("dream", "kept"), CONFIG_MAPS, force=True)
        await stage.runner.sleep(key := stage.spec("a").key)
        await stage.runner.sleep(key)  # idempotent
        assert is_free(before.port, before.host)
        async with client(before, stage.clock) as kube:
            assert isinstance(await _refusal(kube), Unreachable)
        after = await stage.up(stage.spec("a"))
        assert (after.port, after.admin_kubeconfig, after.ca) == (
            before.port,
            before.admin_kubeconfig,
            before.ca,
        )
        async with client(after, stage.clock) as kube:
            assert (await kube.get(CONFIG_MAPS, "dream", "default"))["data"] == {"v": "kept"}

    async def test_rotation_creates_a_new_kubeconfig_with_the_same_ca(self, stage: Stage) -> None:
        before = await stage.up(stage.spec("b"))
        after = await stage.up(stage.spec("b", rotation=f"after {stage.clock.monotonic()}"))
        assert after.admin_kubeconfig != before.admin_kubeconfig
        assert (after.ca, after.port) == (before.ca, before.port)
        async with client(after, stage.clock) as kube:
            assert (await kube.version()).git_version
        assert (
            await stage.up(stage.spec("b"))
        ).admin_kubeconfig == after.admin_kubeconfig  # once for each request

    async def test_a_restart_keeps_everything(self, stage: Stage) -> None:
        before = await stage.up(stage.spec("a"))
        async with client(before, stage.clock) as kube:
            await kube.apply(config_map("past", "kept"), CONFIG_MAPS, force=True)
        await stage.end()
        assert is_free(before.port, before.host)
        await stage.begin()
        after = await stage.up(stage.spec("a"))
        assert (after.port, after.admin_kubeconfig) == (before.port, before.admin_kubeconfig)
        async with client(after, stage.clock) as kube:
            assert (await kube.get(CONFIG_MAPS, "past", "default"))["data"] == {"v": "kept"}

    async def test_a_new_address_is_in_certificate_and_kubeconfig(self, stage: Stage) -> None:
        before = await stage.up(stage.spec("a"))
        async with client(before, stage.clock) as kube:
            await kube.apply(config_map("moved", "kept"), CONFIG_MAPS, force=True)
        for host in ("127.0.0.2", "127.0.0.1"):
            stage.host = host
            await stage.end()
            await stage.begin()
            after = await stage.up(stage.spec("a"))
            assert (after.host, after.port, after.ca) == (stage.host, before.port, before.ca)
            assert f"https://{stage.host}:{after.port}" in after.admin_kubeconfig
            async with client(after, stage.clock) as kube:
                assert (await kube.get(CONFIG_MAPS, "moved", "default"))["data"] == {"v": "kept"}
                info = await kube.get(CONFIG_MAPS, "cluster-info", "kube-public")
            assert f"{stage.host}:{after.port}" in info["data"]["kubeconfig"]

    async def test_an_upgrade_keeps_objects(self, stage: Stage) -> None:
        before = await stage.up(stage.spec("b"))
        async with client(before, stage.clock) as kube:
            await kube.apply(config_map("old", "kept"), CONFIG_MAPS, force=True)
        after = await stage.up(stage.spec("b", version=stage.newer))
        assert after.version == stage.newer
        assert (after.port, after.admin_kubeconfig) == (before.port, before.admin_kubeconfig)
        async with client(after, stage.clock) as kube:
            assert (await kube.get(CONFIG_MAPS, "old", "default"))["data"] == {"v": "kept"}

    async def test_destroy_deletes_everything(self, stage: Stage) -> None:
        other = await stage.up(stage.spec("a"))
        gone = await stage.up(stage.spec("d"))
        async with client(gone, stage.clock) as kube:
            await kube.apply(config_map("last", "word"), CONFIG_MAPS, force=True)
        await stage.runner.destroy(stage.spec("d").key)
        await stage.runner.destroy(stage.spec("d").key)  # idempotent
        assert is_free(gone.port, gone.host)
        async with client(other, stage.clock) as kube:
            assert (await kube.version()).git_version
        await self.check_destroyed(stage, gone)

    async def check_destroyed(self, stage: Stage, plane: HostedControlPlane) -> None:
        """Check what only this kind of runner can check."""
        raise NotImplementedError


async def _refusal(kube: Kube) -> MoxwellError | None:
    try:
        await kube.list(CONFIG_MAPS, "default")
    except (Denied, Terminal, Unreachable) as error:
        return error
    return None
