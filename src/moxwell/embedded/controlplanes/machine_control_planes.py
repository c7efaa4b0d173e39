"""
Serves the control planes of ``kubeadm init`` in simulated guests: one apiserver for each cluster.

All control plane machines of a cluster share one embedded apiserver, which runs while at least one
of them runs; so the loss of etcd quorum cannot be simulated. The CA and the service account key are
the cluster's own, from its user data.
"""

import asyncio
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from moxwell import task_group
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.apiserver.audit.audit_log import open_audit
from moxwell.embedded.apiserver.encryption.envelope import open_encryption
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.controlplanes.tenant_api import hosted_controllers
from moxwell.errors import Busy
from moxwell.pki.folder import CertificateAuthority

log = structlog.get_logger(__name__)


class MachineControlPlane(Protocol):
    """What is served for a cluster: its address, version, CA and service account key."""

    @property
    def id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def ca(self) -> str: ...
    @property
    def ca_key(self) -> str: ...
    @property
    def service_key(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...


@dataclass(slots=True)
class _Served:
    """A control plane that runs, and the guests it runs for."""

    store: EmbeddedApiServer
    server: HttpServer
    task: asyncio.Task[None]
    members: set[str] = field(default_factory=set)


class MachineControlPlanes:
    """Serves control planes for guests; ``run`` owns their tasks."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._served: dict[str, _Served] = {}
        self._lock = asyncio.Lock()
        self._tasks = task_group.LongLivedTasks()

    async def run(self) -> None:
        """Own all tasks until cancelled, then stop every control plane."""
        await self._tasks.run(self._stop_all)

    async def _stop_all(self) -> None:
        for name in list(self._served):
            await self._stop(name)

    # Called for guests

    async def serve(self, plane: MachineControlPlane, member: str, /) -> None:
        await self._tasks.wait_ready()
        async with self._lock:
            if plane.id not in self._served:
                self._served[plane.id] = await self._start(plane)
            self._served[plane.id].members.add(member)

    async def release(self, plane: MachineControlPlane, member: str, /) -> None:
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

    async def _start(self, plane: MachineControlPlane) -> _Served:
        folder = self._root / plane.id
        pki = folder / "pki"
        written = {"ca.crt": plane.ca, "ca.key": plane.ca_key, "tokens.key": plane.service_key}
        for name, text in written.items():
            write_private(pki / name, text.encode())
        authority = CertificateAuthority(pki, self._clock.now, name="kube-apiserver")
        store = EmbeddedApiServer(
            path=folder / "store.db",
            encryption=open_encryption(folder / "keys", self._clock.now()),
            audit=open_audit(folder, self._clock),
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
        task = self._tasks.spawn(hosted_controllers(store, authority, self._clock).run())
        log.info("control plane of machines started", at=server.url, version=plane.version)
        return _Served(store, server, task)

    async def _listen(
        self,
        plane: MachineControlPlane,
        store: EmbeddedApiServer,
        authority: CertificateAuthority,
        pki: Path,
    ) -> HttpServer:
        server = HttpServer(
            store, authority, folder=pki, host=plane.host, port=plane.port, names=plane.names
        )
        try:
            await server.start()
        except OSError as error:
            why = error.strerror or "cannot listen"
            raise Busy(
                f"{plane.host}:{plane.port} is not free for a control plane: {why}"
            ) from error
        return server

    async def _stop(self, name: str) -> None:
        found = self._served.pop(name, None)
        if found is None:
            return
        await task_group.cancel(found.task)
        await found.server.stop()
        await found.store.stop()
        log.info("control plane of machines stopped", at=found.server.url)
