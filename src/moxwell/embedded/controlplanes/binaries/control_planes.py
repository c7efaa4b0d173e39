"""
Hosted control planes of genuine programs, behind the seam that the embedded ones have.

``ensure`` never waits for a program: it says how things are, and ``changed`` is called when they
are otherwise. A tenant is a folder, a prefix in etcd and three processes; asleep it is a folder and
a prefix; destroyed it is nothing. What a cloud does for a tenant runs in this process, as it does
for embedded ones; controllers and scheduling are the genuine programs' own.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
import structlog

from moxwell import task_group
from moxwell.app.state_dir import PortTaken, is_free
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Plane, Wish
from moxwell.embedded.controllermanager import resources
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.embedded.controlplanes.binaries import certificates as keys
from moxwell.embedded.controlplanes.binaries import csr_approval, flags
from moxwell.embedded.controlplanes.binaries.etcd import SharedEtcd, prefix_of
from moxwell.embedded.controlplanes.binaries.files import Record, Tenant, steady_port
from moxwell.embedded.controlplanes.binaries.installed import Installed, Release, ReleaseMissing
from moxwell.embedded.controlplanes.binaries.probes import HttpProbe
from moxwell.embedded.controlplanes.binaries.supervisor import Hands, Program, State, Supervisor
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import HttpTransport
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.settings import Settings

STEMS = ("kube-scheduler", "kube-controller-manager", "kube-apiserver")  # in order of their end
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Loops:
    """What this process does for a tenant: bound to the kubeconfig it was begun with."""

    admin: str
    manager: Manager
    transport: HttpTransport
    task: asyncio.Task[None]


class GenuinePlanes:
    """Hosts control planes as processes; ``run`` owns them, and ends them with itself."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        installed: Installed,
        hands: Hands,
        port_of: Callable[[], int],
        host: str = "127.0.0.1",
        extend: Callable[[Runtime], object] = lambda runtime: None,
        changed: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """``extend`` adds what looks after a tenant from outside; ``changed`` wakes who asks."""
        self._root, self._clock, self._host, self._port_of = root, clock, host, port_of
        self._installed, self._extend, self.changed = installed, extend, changed
        self._supervisor = Supervisor(hands, clock)
        self.etcd = SharedEtcd(
            root / "etcd",
            clock,
            self._supervisor,
            program=installed.etcd,
            port_of=port_of,
            changed=self._tell_all,
        )
        self._confined: set[str] = set()
        self._loops: dict[Key, _Loops] = {}
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._held = task_group.Loops()

    async def run(self) -> None:
        """Hold the loops of all planes; ends only by being cancelled, and the programs with it."""
        await self._held.run(self._end_all)

    async def _end_all(self) -> None:
        for key in list(self._loops):
            await self._stop_loops(key)
        folders = {program.parent for program in self._supervisor.kept()} - {self.etcd.folder}
        await asyncio.gather(*(self._end_programs(folder) for folder in folders))
        await self.etcd.end()

    def _tell_all(self) -> None:
        for key in self.keys():
            self.changed(key)

    # What is known from outside

    def has(self, key: Key) -> bool:
        """Whether a tenant lives here, awake or asleep."""
        return self._tenant(key).find() is not None

    def keys(self) -> Iterator[Key]:
        """Every tenant that lives here."""
        for file in sorted(self._root.glob("tenants/*/*/tenant.json")):
            yield Key(file.parent.parent.name, file.parent.name)

    def caches(self, key: Key) -> Caches | None:
        """What our loops have seen of a tenant, while it is up."""
        found = self._loops.get(key)
        return found.manager.caches if found else None

    # What the controller asks for

    async def ensure(self, wish: Wish) -> Plane:
        await self._held.wait_ready()
        async with self._lock(wish.key):
            try:
                release = await self._installed.get(wish.version)
            except ReleaseMissing:
                await self._keep_old(wish)
                raise
            return await self._raise(wish, release)

    async def sleep(self, key: Key) -> None:
        async with self._lock(key):
            await self._still(key)

    async def _still(self, key: Key) -> None:
        await self._stop_loops(key)
        await self._end_programs(self._tenant(key).folder)

    async def destroy(self, key: Key) -> None:
        async with self._lock(key):  # to the end: who waits meanwhile finds nothing, not half of it
            await self._still(key)
            tenant = self._tenant(key)
            record = tenant.find()
            if record is not None:
                await self.etcd.remove(record.uid)
                self._confined.discard(record.uid)
            await asyncio.to_thread(shutil.rmtree, tenant.folder, ignore_errors=True)
            with suppress(OSError):
                tenant.folder.parent.rmdir()
        if next(self.keys(), None) is None:
            await self.etcd.end()
            with suppress(OSError):
                (self._root / "tenants").rmdir()
        log.info("control plane destroyed", tenant=str(key))

    # One plane

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _tenant(self, key: Key) -> Tenant:
        return Tenant(self._root / "tenants" / key.namespace / key.name, self._clock)

    async def _keep_old(self, wish: Wish) -> None:
        """A version that is not there changes nothing: what ran runs on."""
        record = self._tenant(wish.key).find()
        if record is not None:
            old = await self._installed.get(record.version)
            await self._raise(replace(wish, version=record.version), old)

    async def _raise(self, wish: Wish, release: Release) -> Plane:
        """One step nearer to a plane as it is wished, and how it is."""
        tenant = self._tenant(wish.key)
        below = await self.etcd.ensure()
        record = self._settle(tenant, wish)
        seat = self._seat(tenant, record)
        if not below.well:
            return self._describe(tenant, record, seat, [("etcd", below)], release)
        if record.uid not in self._confined:
            await self.etcd.add(record.uid)
            self._confined.add(record.uid)
        fresh = record.rotation != wish.rotation
        tenant.write(wish, seat, self.etcd.authority, fresh=fresh)
        record = tenant.remember(
            msgspec.structs.replace(record, rotation=wish.rotation, version=release.version)
        )
        states = await self._start(wish, seat, release)
        if all(state.well for _, state in states):
            record = await self._welcome(tenant, record, wish, seat)
        return self._describe(tenant, record, seat, states, release)

    def _settle(self, tenant: Tenant, wish: Wish) -> Record:
        """The tenant's own facts, with ports that it can really have."""
        tenant.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = tenant.begin(wish, self._new_port)
        runs = {stem: self._supervisor.has(tenant.folder / stem) for stem in STEMS}
        if not runs["kube-apiserver"] and not is_free(record.port, self._host):
            raise PortTaken(
                f"port {record.port} on {self._host}, which this cluster's nodes know, is taken "
                "by another program: stop that program"
            )
        return tenant.remember(
            msgspec.structs.replace(
                record,
                manager_port=steady_port(
                    record.manager_port, self._new_port, ours=runs["kube-controller-manager"]
                ),
                scheduler_port=steady_port(
                    record.scheduler_port, self._new_port, ours=runs["kube-scheduler"]
                ),
            )
        )

    def _new_port(self) -> int:
        """A free port that no tenant remembers, also none that sleeps."""
        records = (self._tenant(key).find() for key in self.keys())
        known = {p for r in records if r for p in (r.port, r.manager_port, r.scheduler_port)}
        while (port := self._port_of()) in known:
            continue
        return port

    def _seat(self, tenant: Tenant, record: Record) -> flags.Seat:
        return flags.Seat(
            folder=tenant.folder,
            host=self._host,
            port=record.port,
            manager_port=record.manager_port,
            scheduler_port=record.scheduler_port,
            etcd_port=self.etcd.ports.client,
            prefix=prefix_of(record.uid),
        )

    async def _start(
        self, wish: Wish, seat: flags.Seat, release: Release
    ) -> list[tuple[str, State]]:
        """The API first, the others when it answers."""

        def changed() -> None:
            self.changed(wish.key)

        server, *others = programs(wish, seat, release)
        if self._supervisor.differs(server):  # first those who hang on it
            await self._stop_loops(wish.key)
            for program in reversed(others):
                await self._supervisor.end(program.key)
        states = [(server.stem, await self._supervisor.keep(server, changed))]
        if not states[0][1].well:
            return states  # the others bear its absence, but could not start now
        for program in others:
            states.append((program.stem, await self._supervisor.keep(program, changed)))
        return states

    async def _welcome(
        self, tenant: Tenant, record: Record, wish: Wish, seat: flags.Seat
    ) -> Record:
        """Everything runs: let nodes join, and do the cloud's part."""
        admin = tenant.read("admin.conf")
        running = self._loops.get(wish.key)
        if running is not None and running.admin == admin and not running.task.done():
            return record
        await self._stop_loops(wish.key)
        transport = HttpTransport(kubeconfig.parse(admin).access(self._clock, {}))
        url, ca = f"https://{seat.host}:{seat.port}", tenant.read("pki/ca.crt")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(transport.close)
            await kubeadm_objects.prepare(Kube(transport), url, ca, wish)
            await csr_approval.allow(Kube(transport))
            stack.pop_all()
        runtime = assemble(transport, self._clock, Settings(elect=False, identity="hosted"))
        runtime.manager.caches.of(resources.PODS)
        self._extend(runtime)
        task = self._held.spawn(runtime.manager)
        self._loops[wish.key] = _Loops(admin, runtime.manager, transport, task)
        log.info("control plane ready", tenant=str(wish.key), port=seat.port)
        return tenant.remember(msgspec.structs.replace(record, welcomed=True))

    def _describe(
        self,
        tenant: Tenant,
        record: Record,
        seat: flags.Seat,
        states: list[tuple[str, State]],
        release: Release,
    ) -> Plane:
        ready = len(states) == len(STEMS) and all(state.well for _, state in states)
        says = "; ".join(f"{name}: {state.says}" for name, state in states if not state.well)
        written = (seat.pki("apiserver.crt")).exists()
        return Plane(
            host=seat.host,
            port=seat.port,
            version=release.version,
            ready=ready,
            known=record.welcomed,
            says=says or ("" if ready else "waits for kube-apiserver"),
            ca=tenant.read("pki/ca.crt") if written else "",
            ca_key=tenant.read("pki/ca.key") if written else "",
            admin=tenant.read("admin.conf") if written else "",
            expires=keys.expires(seat.pki("apiserver.crt").read_bytes()) if written else None,
            driver="etcd",
        )

    async def _stop_loops(self, key: Key) -> None:
        found = self._loops.pop(key, None)
        if found is None:
            return
        await task_group.end(found.task)
        await found.transport.close()

    async def _end_programs(self, folder: Path) -> None:
        for stem in STEMS:
            await self._supervisor.end(folder / stem)


def programs(wish: Wish, seat: flags.Seat, release: Release) -> tuple[Program, ...]:
    """The three programs of a tenant, the API first."""
    pki = tuple(sorted((seat.folder / "pki").iterdir()))
    ca = seat.pki("ca.crt")
    rows = (
        ("kube-apiserver", flags.apiserver(release, wish, seat), seat.host, seat.port, "/readyz"),
        (
            "kube-controller-manager",
            flags.manager(release, wish, seat),
            flags.LOOPBACK,
            seat.manager_port,
            "/healthz",
        ),
        (
            "kube-scheduler",
            flags.scheduler(release, seat),
            flags.LOOPBACK,
            seat.scheduler_port,
            "/healthz",
        ),
    )
    return tuple(
        Program(
            stem=stem,
            argv=argv,
            folder=seat.folder,
            probe=HttpProbe(stem, host, port, path, ca),
            reads=pki,
        )
        for stem, argv, host, port, path in rows
    )
