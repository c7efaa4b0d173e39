"""
Runs the control planes of tenants in this process: an embedded apiserver and controllers for each.

A tenant is one folder: its database, its certificates, its port. At zero replicas only the folder
exists. :mod:`moxwell.embedded.controllermanager` and :mod:`moxwell.embedded.scheduler` replace
kube-controller-manager and kube-scheduler.
"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from moxwell import task_group
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controllermanager import setup as controllermanager
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.embedded.scheduler.controller import scheduler
from moxwell.kube import kubeconfig_writer
from moxwell.kube.client import Kube
from moxwell.pki.certificates import expires, load_certificate
from moxwell.pki.folder import CertificateAuthority
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.settings import ManagerSettings

log = structlog.get_logger(__name__)
RENEW_BEFORE = timedelta(days=30)


@dataclass(slots=True)
class _Running:
    """One control plane that runs."""

    spec: HostedControlPlaneSpec
    store: EmbeddedApiServer
    server: HttpServer
    manager: Manager
    task: asyncio.Task[None]
    plane: HostedControlPlane


class InProcessControlPlanes:
    """Runs control planes in this process; ``run`` owns their tasks."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        new_port: Callable[[], int],
        host: str = "127.0.0.1",
        extend: Callable[[Runtime], object] = lambda runtime: None,
    ) -> None:
        """``extend`` adds further controllers for a tenant."""
        self._root, self._clock, self._host, self._new_port = root, clock, host, new_port
        self._extend = extend
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
        return found.manager.caches if found else None

    # ControlPlaneRunner

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        await self._tasks.wait_ready()
        async with self._lock:
            found = self._running.get(spec.key)
            if found is not None and _same(found.spec, spec) and not self._is_due(found.plane):
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
            await asyncio.to_thread(shutil.rmtree, self._folder(key), ignore_errors=True)
            with suppress(OSError):
                self._folder(key).parent.rmdir()

    # One control plane

    def _folder(self, key: Key) -> Path:
        return self._root / key.namespace / key.name

    def _is_due(self, plane: HostedControlPlane) -> bool:
        """Whether the serving certificate is renewed, by a restart."""
        return plane.expires is not None and plane.expires - self._clock.now() < RENEW_BEFORE

    async def _start(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        folder = self._folder(spec.key)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = CertificateAuthority(folder / "pki", self._clock.now)
        store = EmbeddedApiServer(
            path=folder / "store.db",
            clock=self._clock,
            root_ca=authority.certificate.decode(),
            token_key=authority.token_key,
            version=spec.version,
        )
        await store.start()
        port = self._port(folder)
        server = HttpServer(
            store,
            authority,
            folder=folder / "pki",
            host=self._host,
            port=port,
            names=(*spec.cert_sans, f"kubernetes.default.svc.{spec.cluster_domain}"),
        )
        await server.start()
        plane = self._describe(spec, folder, authority, port)
        await kubeadm_objects.apply(Kube(store), server.url, plane.ca, spec)
        manager = hosted_controllers(store, authority, self._clock, self._extend)
        task = self._tasks.spawn(manager.run())
        self._running[spec.key] = _Running(spec, store, server, manager, task, plane)
        log.info("control plane started", tenant=str(spec.key), port=port, version=spec.version)
        return plane

    def _port(self, folder: Path) -> int:
        """The port of the tenant; it never changes."""
        file = folder / "port"
        if not file.exists():
            write_private(file, str(self._new_port()).encode())
        return int(file.read_text())

    def _describe(
        self, spec: HostedControlPlaneSpec, folder: Path, authority: CertificateAuthority, port: int
    ) -> HostedControlPlane:
        admin, rotation = folder / "admin.conf", folder / "rotation"
        rotated = rotation.read_text() if rotation.exists() else ""
        url = f"https://{self._host}:{port}"
        if not admin.exists() or rotated != spec.rotation:
            pair = authority.client("kubernetes-admin", ("system:masters",))
            text = kubeconfig_writer.render(url, authority.certificate, pair, spec.key.name)
            write_private(admin, text.encode())
            rotation.write_text(spec.rotation)
        return HostedControlPlane(
            host=self._host,
            port=port,
            version=spec.version,
            ready=True,
            ca=authority.certificate.decode(),
            ca_key=(folder / "pki" / "ca.key").read_text(),
            admin_kubeconfig=admin.read_text(),
            expires=expires((folder / "pki" / "server.crt").read_bytes()),
        )

    async def _stop(self, key: Key) -> None:
        found = self._running.pop(key, None)
        if found is None:
            return
        await task_group.cancel(found.task)
        await found.server.stop()
        await found.store.stop()
        log.info("control plane stopped", tenant=str(key))


def hosted_controllers(
    store: EmbeddedApiServer,
    authority: CertificateAuthority,
    clock: Clock,
    extend: Callable[[Runtime], object] = lambda runtime: None,
) -> Manager:
    """The controllers of kube-controller-manager and the scheduler, for one apiserver."""
    runtime = assemble(store, clock, ManagerSettings(elect=False, identity="hosted"))
    kube, caches = runtime.kube, runtime.manager.caches
    ca = load_certificate(authority.certificate)
    for controller in controllermanager.controllers(kube, caches, clock, ca, authority.signing_key):
        runtime.manager.add(controller)
    runtime.manager.add(scheduler(kube, caches))
    extend(runtime)
    return runtime.manager


def _same(one: HostedControlPlaneSpec, two: HostedControlPlaneSpec) -> bool:
    """Whether no field differs that needs a restart."""
    return (one.version, one.cert_sans, one.rotation, one.uid) == (
        two.version,
        two.cert_sans,
        two.rotation,
        two.uid,
    )
