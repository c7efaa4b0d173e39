"""
The controllers that this process runs for tenants whose API servers are other processes.

They use the tenant's API over HTTPS and, unlike the tenant's own processes, Proxmox.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from moxwell import task_group
from moxwell.clock import Clock
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controlplanes.tenant_api import Extend
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, assemble
from moxwell.runtime.settings import ManagerSettings

Prepare = Callable[[Kube], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Controllers:
    """The controllers of one tenant, with the kubeconfig they use."""

    kubeconfig: str
    manager: Manager
    transport: KubeTransport
    task: asyncio.Task[None]


class TenantControllers:
    """The controllers of all tenants; ``tasks`` owns what they run."""

    def __init__(self, clock: Clock, extend: Extend, tasks: task_group.LongLivedTasks) -> None:
        self._clock, self._extend, self._tasks = clock, extend, tasks
        self._running: dict[Key, _Controllers] = {}

    def caches(self, key: Key) -> Caches | None:
        """The informer caches of a tenant; None while its controllers do not run."""
        found = self._running.get(key)
        return found.manager.caches if found else None

    def kube(self, key: Key) -> Kube | None:
        """A client of a tenant; None while its controllers do not run."""
        found = self._running.get(key)
        return Kube(found.transport) if found else None

    async def start(self, key: Key, admin: str, prepare: Prepare) -> bool:
        """Run them with this kubeconfig, after ``prepare``; False if they run already."""
        running = self._running.get(key)
        if running is not None and running.kubeconfig == admin and not running.task.done():
            return False
        await self.stop(key)
        transport = KubeTransport(kubeconfig.parse(admin).access(self._clock, {}))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(transport.close)
            await prepare(Kube(transport))
            stack.pop_all()
        runtime = assemble(transport, self._clock, ManagerSettings(elect=False, identity="hosted"))
        runtime.manager.caches.of(resources.PODS)
        self._extend(runtime, key)
        task = self._tasks.spawn(runtime.manager.run())
        self._running[key] = _Controllers(admin, runtime.manager, transport, task)
        return True

    async def stop(self, key: Key) -> None:
        """Stop the controllers of one tenant."""
        found = self._running.pop(key, None)
        if found is None:
            return
        await task_group.cancel(found.task)
        await found.transport.close()

    async def stop_all(self) -> None:
        for key in list(self._running):
            await self.stop(key)
