"""
Hosted control planes on the embedded API: one store, one CA, one port, one set of loops per tenant.

Everything of a tenant lies in one folder: its database, its keys, the port it was given. A plane
that sleeps is that folder; one that is destroyed is nothing. The loops that a genuine
kube-controller-manager and kube-scheduler would run are the stand-ins of ``controllers.upstream``.
"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509

from moxwell import task_group
from moxwell.app.state_dir import write_whole
from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth.ca import Authority, kubeconfig, write_private
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import Store
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Plane, Wish
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controllermanager.csrsigner.controller import Sign
from moxwell.embedded.controllermanager.nodelifecycle.controller import Evictions, NodeLife, Orphans
from moxwell.embedded.controllermanager.workloads.controller import controllers as workloads
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.embedded.scheduler.controller import Schedule
from moxwell.kube.client import Kube
from moxwell.pki import load_certificate
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Settings

log = structlog.get_logger(__name__)
RENEW_BEFORE_DAYS = 30


@dataclass(slots=True)
class _Running:
    """One plane that is up."""

    wish: Wish
    store: Store
    server: HttpServer
    manager: Manager
    task: asyncio.Task[None]
    plane: Plane


class EmbeddedPlanes:
    """Hosts control planes in this process; ``run`` owns their loops."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        port_of: Callable[[], int],
        host: str = "127.0.0.1",
        extend: Callable[[Runtime], object] = lambda runtime: None,
    ) -> None:
        """``extend`` adds what else should look after a tenant, from outside of it."""
        self._root, self._clock, self._host, self._port_of = root, clock, host, port_of
        self._extend = extend
        self._running: dict[Key, _Running] = {}
        self._lock = asyncio.Lock()
        self._loops = task_group.Loops()

    async def run(self) -> None:
        """Hold the loops of all planes; ends only by being cancelled."""
        await self._loops.run(self._stop_all)

    async def _stop_all(self) -> None:
        for key in list(self._running):
            await self._stop(key)

    def caches(self, key: Key) -> Caches | None:
        """What its loops have seen of a tenant, while it is up."""
        found = self._running.get(key)
        return found.manager.caches if found else None

    # What the controller asks for

    async def ensure(self, wish: Wish) -> Plane:
        await self._loops.wait_ready()
        async with self._lock:
            found = self._running.get(wish.key)
            if found is not None and _same(found.wish, wish) and not self._is_due(found.plane):
                return found.plane
            if found is not None:
                await self._stop(wish.key)
            return await self._start(wish)

    async def sleep(self, key: Key) -> None:
        async with self._lock:
            await self._stop(key)

    async def destroy(self, key: Key) -> None:
        async with self._lock:
            await self._stop(key)
            await asyncio.to_thread(shutil.rmtree, self._folder(key), ignore_errors=True)
            with suppress(OSError):
                self._folder(key).parent.rmdir()

    # One plane

    def _folder(self, key: Key) -> Path:
        return self._root / key.namespace / key.name

    def _is_due(self, plane: Plane) -> bool:
        left = (plane.expires - self._clock.now()).days if plane.expires else RENEW_BEFORE_DAYS
        return left < RENEW_BEFORE_DAYS

    async def _start(self, wish: Wish) -> Plane:
        folder = self._folder(wish.key)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = Authority(folder / "pki", self._clock)
        store = Store(
            path=folder / "store.db",
            clock=self._clock,
            root_ca=authority.certificate.decode(),
            token_key=authority.token_key,
            version=wish.version,
        )
        await store.start()
        port = self._port(folder)
        server = HttpServer(
            store,
            authority,
            folder=folder / "pki",
            host=self._host,
            port=port,
            names=(*wish.sans, f"kubernetes.default.svc.{wish.domain}"),
        )
        await server.start()
        plane = self._described(wish, folder, authority, port)
        await kubeadm_objects.prepare(Kube(store), server.url, plane.ca, wish)
        manager = hosted_loops(store, authority, self._clock, self._extend)
        task = self._loops.spawn(manager)
        self._running[wish.key] = _Running(wish, store, server, manager, task, plane)
        log.info("control plane started", tenant=str(wish.key), port=port, version=wish.version)
        return plane

    def _port(self, folder: Path) -> int:
        """The port the tenant was given, for ever the same."""
        file = folder / "port"
        if not file.exists():
            write_whole(file, str(self._port_of()).encode())
        return int(file.read_text())

    def _described(self, wish: Wish, folder: Path, authority: Authority, port: int) -> Plane:
        admin = folder / "admin.conf"
        mark = folder / "rotation"
        asked = wish.rotation
        known = mark.read_text() if mark.exists() else ""
        url = f"https://{self._host}:{port}"
        if not admin.exists() or known != asked:
            pair = authority.client("kubernetes-admin", ("system:masters",))
            text = kubeconfig(url, authority.certificate, pair, wish.key.name)
            write_private(admin, text.encode())
            mark.write_text(asked)
        serving = x509.load_pem_x509_certificate((folder / "pki" / "server.crt").read_bytes())
        return Plane(
            host=self._host,
            port=port,
            version=wish.version,
            ready=True,
            ca=authority.certificate.decode(),
            ca_key=(folder / "pki" / "ca.key").read_text(),
            admin=admin.read_text(),
            expires=serving.not_valid_after_utc,
        )

    async def _stop(self, key: Key) -> None:
        found = self._running.pop(key, None)
        if found is None:
            return
        await task_group.end(found.task)
        await found.server.stop()
        await found.store.stop()
        log.info("control plane stopped", tenant=str(key))


def hosted_loops(
    store: Store,
    authority: Authority,
    clock: Clock,
    extend: Callable[[Runtime], object] = lambda runtime: None,
) -> Manager:
    """What kube-controller-manager and kube-scheduler do, for one store."""
    runtime = assemble(store, clock, Settings(elect=False, identity="hosted"))
    kube, caches = runtime.kube, runtime.manager.caches
    certificate = load_certificate(authority.certificate)
    pods, nodes = caches.of(resources.PODS), caches.of(resources.NODES)
    loops: dict[str, Any] = {
        "schedule": Schedule(kube, pods),
        "nodelife": NodeLife(kube, clock),
        "evict": Evictions(kube, clock, nodes, pods),
        "orphans": Orphans(kube, nodes, pods),
        "sign": Sign(kube, clock, certificate, authority.signing_key),
    }
    for controller in workloads(kube, caches):
        runtime.manager.add(controller)
    for name, loop in loops.items():
        single = 1 if name == "schedule" else None  # each binding must see the one before
        runtime.manager.add(Controller(name=f"upstream.{name}", reconciler=loop, per_share=single))
    extend(runtime)
    return runtime.manager


def _same(one: Wish, two: Wish) -> bool:
    """Nothing that needs a restart differs."""
    return (one.version, one.sans, one.rotation, one.uid) == (
        two.version,
        two.sans,
        two.rotation,
        two.uid,
    )
