"""
Runs the embedded control planes of tenants as processes, one for each, and supervises them.

``ensure`` never waits for a process: it returns the present state, and ``changed`` is called when
that changes. A tenant is one folder: its database, its certificates, its port; at zero replicas
only the folder exists. A process that ends is started again with backoff, and the control planes of
other tenants keep running. The processes end with this one.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import structlog

from moxwell import task_group
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controlplanes.addresses import loopback
from moxwell.embedded.controlplanes.hosted_folder import HostedFolder, certificate_is_due
from moxwell.embedded.controlplanes.processes.child import ChildConfig
from moxwell.embedded.controlplanes.processes.limits import ProcessLimits
from moxwell.embedded.controlplanes.supervision.probes import HttpProbe
from moxwell.embedded.controlplanes.supervision.supervisor import (
    ProcessControl,
    Program,
    ProgramState,
    Supervisor,
)
from moxwell.embedded.controlplanes.tenant_api import Extend, no_extension
from moxwell.embedded.controlplanes.tenant_controllers import TenantControllers
from moxwell.embedded.ports import PortTaken, is_free
from moxwell.kube.client import Kube
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key

log = structlog.get_logger(__name__)
PROGRAM = "apiserver"
MODULE = "moxwell.embedded.controlplanes.processes.child"


class ProcessControlPlanes:
    """Runs control planes as processes, which are stopped when ``run`` is cancelled."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        processes: ProcessControl,
        new_port: Callable[[str], int],
        address: Callable[[Path], str] = loopback,
        extend: Extend = no_extension,
        changed: Callable[[Key], None] = lambda key: None,
        limits: ProcessLimits | None = None,
        kubelets: Path | None = None,
    ) -> None:
        """
        ``new_port`` gives a free port of an address, ``address`` the address of a tenant's folder.

        ``extend`` adds controllers to this process; ``changed`` is called on a change; ``kubelets``
        is the file that says how to reach simulated kubelets.
        """
        self._root, self._clock = root, clock
        self._address, self._new_port = address, new_port
        self._limits, self.changed = limits or ProcessLimits(), changed
        self._kubelets = str(kubelets or "")
        self._supervisor = Supervisor(processes, clock)
        self._tasks = task_group.LongLivedTasks()
        self._controllers = TenantControllers(clock, extend, self._tasks)
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Own all tasks until cancelled, then stop every process."""
        await self._tasks.run(self._stop_all)

    async def _stop_all(self) -> None:
        await self._controllers.stop_all()
        await asyncio.gather(*map(self._supervisor.stop, self._supervisor.programs()))

    def caches(self, key: Key) -> Caches | None:
        """The informer caches of a tenant; None while its controllers do not run."""
        return self._controllers.caches(key)

    def state(self, key: Key) -> ProgramState:
        """The state of a tenant's process."""
        return self._supervisor.state(self._folder(key) / PROGRAM)

    # ControlPlaneRunner

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        await self._tasks.wait_ready()
        async with self._lock(spec.key):
            return await self._ensure(spec)

    async def sleep(self, key: Key) -> None:
        async with self._lock(key):
            await self._stop(key)

    async def destroy(self, key: Key) -> None:
        async with self._lock(key):  # until the folder is deleted: a waiting ensure starts anew
            await self._stop(key)
            folder = self._folder(key)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()

    # One control plane

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _folder(self, key: Key) -> Path:
        return self._root / key.namespace / key.name

    async def _ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        folder = self._folder(spec.key)
        tenant = HostedFolder(folder, self._clock, self._address(folder))
        authority = tenant.authority()
        port = tenant.port(self._new_port)
        self._check_port(tenant, port)
        plane = tenant.describe(spec, authority, port)
        program = self._program(tenant, spec, port)
        if self._supervisor.state(program.key).healthy and certificate_is_due(plane, self._clock):
            await self._supervisor.stop(program.key)
        state = await self._supervisor.keep(program, lambda: self.changed(spec.key))
        if state.healthy:
            await self._controllers.start(spec.key, plane.admin_kubeconfig, _nothing_to_prepare)
            tenant.remember_ready()
        return tenant.describe(
            spec,
            authority,
            port,
            ready=state.healthy,
            message=state.message,
            last_exit=f"{PROGRAM} {state.last_exit}" if state.last_exit else "",
        )

    def _check_port(self, tenant: HostedFolder, port: int) -> None:
        runs = self._supervisor.has(tenant.folder / PROGRAM)
        if not runs and not is_free(port, tenant.host):
            raise PortTaken(
                f"port {port} on {tenant.host}, which this cluster's nodes use, is taken by "
                "another program: stop that program"
            )

    def _program(self, tenant: HostedFolder, spec: HostedControlPlaneSpec, port: int) -> Program:
        served = replace(spec, replicas=1, address="", port=port)  # what needs no restart
        config = ChildConfig(served, tenant.host, port, self._limits, self._kubelets)
        return Program(
            name=PROGRAM,
            argv=(sys.executable, "-P", "-m", MODULE, str(tenant.folder), str(os.getpid())),
            folder=tenant.folder,
            probe=HttpProbe(
                PROGRAM, tenant.host, port, "/readyz", tenant.folder / "pki" / "ca.crt"
            ),
            files=(config.write(tenant.folder),),
            memory_limit=self._limits.memory,
        )

    async def _stop(self, key: Key) -> None:
        await self._controllers.stop(key)
        await self._supervisor.stop(self._folder(key) / PROGRAM)


async def _nothing_to_prepare(_: Kube) -> None:
    """The process has applied what joining nodes need."""
