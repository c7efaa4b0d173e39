"""
Who hosts a tenant's control plane: this process, or genuine programs.

A tenant stays with whoever hosted it first, so that changing the choice for new ones moves no
data. The choice is a word of ``moxwell up --genuine-planes`` or of the configuration: ``installed``
(programs are looked for on ``PATH`` and where ``make envtest`` puts them), a folder, or ``no``. Genuine
programs are loaded only where they are chosen or were once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from moxwell.app.state_dir import Home, free_port
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Plane, Wish
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controlplanes.inprocess import EmbeddedPlanes
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime

NO = "no"
Extend = Callable[[Runtime], object]


class HostedPlanes:
    """All hosted control planes of an instance."""

    def __init__(
        self, home: Home, embedded: EmbeddedPlanes, genuine: Any = None, version: str = ""
    ) -> None:
        """``version`` is the one new clusters get; empty: new ones are embedded."""
        self._home, self._embedded, self._genuine = home, embedded, genuine
        self.version = version

    def listen(self, changed: Callable[[Key], None]) -> None:
        """Whom to tell when a control plane is otherwise than it was."""
        if self._genuine is not None:
            self._genuine.changed = changed

    async def run(self) -> None:
        """Hold them; ends only by being cancelled, and their programs with it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._embedded.run())
            if self._genuine is not None:
                group.create_task(self._genuine.run())

    def caches(self, key: Key) -> Caches | None:
        """What our loops have seen of a tenant, while it is up."""
        found: Caches | None = self._of(key).caches(key)
        return found

    def pods_by_node(self, key: Key) -> dict[str, int]:
        """How many pods run on each node of a tenant."""
        caches = self.caches(key)
        pods = caches.of(resources.PODS).list() if caches else ()
        return dict(Counter(p["spec"]["nodeName"] for p in pods if _runs(p)))

    async def ensure(self, wish: Wish) -> Plane:
        plane: Plane = await self._of(wish.key).ensure(wish)
        return plane

    async def sleep(self, key: Key) -> None:
        await self._of(key).sleep(key)

    async def destroy(self, key: Key) -> None:
        await self._of(key).destroy(key)

    def _of(self, key: Key) -> Any:
        here = self._home.planes / key.namespace / key.name
        if self._genuine is None or here.exists():
            return self._embedded
        return self._genuine if self.version or self._genuine.has(key) else self._embedded


async def make(
    home: Home,
    clock: Clock,
    choice: str,
    environ: Mapping[str, str],
    *,
    extend: Extend,
    extend_genuine: Extend,
) -> HostedPlanes:
    """The hosts of this instance; a chosen program that is missing is an error that says which."""
    embedded = EmbeddedPlanes(home.planes, clock, port_of=free_port, extend=extend)
    chosen = bool(choice) and choice != NO
    if not chosen and not home.genuine.exists():
        return HostedPlanes(home, embedded)
    from moxwell.embedded.controlplanes.binaries.control_planes import GenuinePlanes
    from moxwell.embedded.controlplanes.binaries.installed import Installed, folders
    from moxwell.embedded.controlplanes.binaries.process import Processes

    installed = Installed(folders(choice if chosen else "", environ))
    genuine = GenuinePlanes(
        home.genuine,
        clock,
        installed=installed,
        hands=Processes(clock, {"PATH": environ.get("PATH", ""), "HOME": str(home.genuine)}),
        port_of=free_port,
        extend=extend_genuine,
    )
    if not chosen:
        return HostedPlanes(home, embedded, genuine)
    installed.etcd()
    return HostedPlanes(home, embedded, genuine, await installed.newest())


def _runs(pod: dict[str, Any]) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and bool(pod["spec"].get("nodeName"))
