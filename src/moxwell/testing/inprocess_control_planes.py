"""
Runs the control planes of tenants in the process of the test, on virtual time.

An instance runs them as processes (:mod:`moxwell.embedded.controlplanes.processes`), with the same
folders. A tenant is one folder: its database, its certificates, its port. At zero replicas only the
folder exists.
"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from moxwell import task_group
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controlplanes.addresses import loopback
from moxwell.embedded.controlplanes.hosted_folder import HostedFolder, certificate_is_due
from moxwell.embedded.controlplanes.tenant_api import Extend, TenantApi, no_extension
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """One control plane that runs."""

    spec: HostedControlPlaneSpec
    api: TenantApi
    task: asyncio.Task[None]
    plane: HostedControlPlane


class InProcessControlPlanes:
    """Runs control planes in this process; ``run`` owns their tasks."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        new_port: Callable[[str], int],
        address: Callable[[Path], str] = loopback,
        extend: Extend = no_extension,
    ) -> None:
        """``extend`` adds further controllers for a tenant; ``address`` gives its address."""
        self._root, self._clock, self._new_port = root, clock, new_port
        self._address, self._extend = address, extend
        self._running: dict[Key, _Running] = {}
        self._lock = asyncio.Lock()
        self._tasks = task_group.LongLivedTasks()

    async def run(self) -> None:
        """Own all tasks until cancelled, then stop every control plane."""
        await self._tasks.run(self._stop_all)

    async def _stop_all(self) -> None:
        for key in list(self._running):
            await self._stop(key)

    def caches(self, key: Key) -> Caches | None:
        """The informer caches of a tenant; None while it does not run."""
        found = self._running.get(key)
        return found.api.manager.caches if found else None

    # ControlPlaneRunner

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        await self._tasks.wait_ready()
        async with self._lock:
            found = self._running.get(spec.key)
            if found is not None and same_server(found.spec, spec) and not self._is_due(found):
                return found.plane
            if found is not None:
                await self._stop(spec.key)
            return await self._start(spec)

    async def sleep(self, key: Key) -> None:
        async with self._lock:
            await self._stop(key)

    async def destroy(self, key: Key) -> None:
        async with self._lock:
            await self._stop(key)
            folder = self._folder(key)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()

    # One control plane

    def _folder(self, key: Key) -> Path:
        return self._root / key.namespace / key.name

    def _is_due(self, found: _Running) -> bool:
        return certificate_is_due(found.plane, self._clock)

    async def _start(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        folder = self._folder(spec.key)
        tenant = HostedFolder(folder, self._clock, self._address(folder))
        authority = tenant.authority()
        port = tenant.port(self._new_port)
        api = await TenantApi.start(
            tenant.folder, spec, self._clock, host=tenant.host, port=port, extend=self._extend
        )
        plane = tenant.describe(spec, authority, port)
        task = self._tasks.spawn(api.manager.run())
        self._running[spec.key] = _Running(spec, api, task, plane)
        log.info("control plane started", tenant=str(spec.key), port=port, version=spec.version)
        return plane

    async def _stop(self, key: Key) -> None:
        found = self._running.pop(key, None)
        if found is None:
            return
        await task_group.cancel(found.task)
        await found.api.stop()
        log.info("control plane stopped", tenant=str(key))


def same_server(one: HostedControlPlaneSpec, two: HostedControlPlaneSpec) -> bool:
    """Whether no field differs that needs a restart."""
    return (one.version, one.cert_sans, one.rotation, one.uid) == (
        two.version,
        two.cert_sans,
        two.rotation,
        two.uid,
    )
