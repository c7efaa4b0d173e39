"""
Control planes of machines in the lab: what a guest's ``kubeadm init`` has served on loopback.

One store, one set of loops and one listener per cluster, however many control plane machines it
has: they are served for as long as one of them runs, because the database is one and in this
process. So the loss of a quorum cannot be played here. The authority and the key of service
accounts are the cluster's own, taken from its user data.
"""

import asyncio
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from moxwell import task_group
from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth.ca import Authority, write_private
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import Store
from moxwell.embedded.controlplanes.inprocess import hosted_loops
from moxwell.errors import Busy
from moxwell.lab.guests.control_plane import Plane

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Served:
    """A control plane that is up, and the guests that want it."""

    store: Store
    server: HttpServer
    task: asyncio.Task[None]
    members: set[str] = field(default_factory=set)


class MachinePlanes:
    """Serves control planes for guests; ``run`` owns their loops."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._served: dict[str, _Served] = {}
        self._lock = asyncio.Lock()
        self._loops = task_group.Loops()

    async def run(self) -> None:
        """Hold the loops; ends only by being cancelled."""
        await self._loops.run(self._stop_all)

    async def _stop_all(self) -> None:
        for name in list(self._served):
            await self._stop(name)

    # What guests ask for

    async def serve(self, plane: Plane, member: str, /) -> None:
        await self._loops.wait_ready()
        async with self._lock:
            if plane.id not in self._served:
                self._served[plane.id] = await self._start(plane)
            self._served[plane.id].members.add(member)

    async def leave(self, plane: Plane, member: str, /) -> None:
        async with self._lock:
            found = self._served.get(plane.id)
            if found is None:
                return
            found.members.discard(member)
            if not found.members:
                await self._stop(plane.id)

    def keep_only(self, ids: Collection[str], /) -> None:
        for folder in self._root.glob("*"):
            if folder.name not in ids and folder.name not in self._served:
                shutil.rmtree(folder, ignore_errors=True)

    # One control plane

    async def _start(self, plane: Plane) -> _Served:
        folder = self._root / plane.id
        pki = folder / "pki"
        written = {"ca.crt": plane.ca, "ca.key": plane.ca_key, "tokens.key": plane.service_key}
        for name, text in written.items():
            write_private(pki / name, text.encode())
        authority = Authority(pki, self._clock, name="kube-apiserver")
        store = Store(
            path=folder / "store.db",
            clock=self._clock,
            root_ca=plane.ca,
            token_key=authority.token_key,
            version=plane.version,
        )
        await store.start()
        try:
            server = await self._listen(plane, store, authority, pki)
        except Busy:
            await store.stop()
            raise
        task = self._loops.spawn(hosted_loops(store, authority, self._clock))
        log.info("control plane of machines started", at=server.url, version=plane.version)
        return _Served(store, server, task)

    async def _listen(
        self, plane: Plane, store: Store, authority: Authority, pki: Path
    ) -> HttpServer:
        server = HttpServer(
            store, authority, folder=pki, host=plane.host, port=plane.port, names=plane.names
        )
        try:
            await server.start()
        except OSError as error:
            why = error.strerror or "it cannot be listened at"
            raise Busy(
                f"{plane.host}:{plane.port} is not free for a control plane: {why}"
            ) from error
        return server

    async def _stop(self, name: str) -> None:
        found = self._served.pop(name, None)
        if found is None:
            return
        await task_group.end(found.task)
        await found.server.stop()
        await found.store.stop()
        log.info("control plane of machines stopped", at=found.server.url)
