"""
Runs the control planes of tenants as processes: kube-apiserver and its companions, one etcd.

``ensure`` never waits for a program: it returns the current state, and ``changed`` is called when
that changes. A tenant is a folder, an etcd prefix and three processes; at zero replicas it is the
folder and the prefix. The cloud controllers of a tenant run in this process; all other controllers
and the scheduler are the programs'.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
import structlog

from moxwell import task_group
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.embedded.controlplanes.addons.built_in import AddonSettings
from moxwell.embedded.controlplanes.addons.sources import AddonSources
from moxwell.embedded.controlplanes.addons.state import apply_addons, describe_addons
from moxwell.embedded.controlplanes.addresses import API_PORT, loopback
from moxwell.embedded.controlplanes.binaries import csr_approval
from moxwell.embedded.controlplanes.binaries.etcd import SharedEtcd, prefix_of
from moxwell.embedded.controlplanes.binaries.etcd_backups import EtcdBackups
from moxwell.embedded.controlplanes.binaries.flags import LOOPBACK, TenantLayout
from moxwell.embedded.controlplanes.binaries.installed import (
    InstalledReleases,
    Release,
    ReleaseMissing,
)
from moxwell.embedded.controlplanes.binaries.konnectivity import (
    KonnectivityLayout,
    KonnectivityPorts,
    KonnectivitySettings,
    tenant_objects,
)
from moxwell.embedded.controlplanes.binaries.replica_hosts import with_replica_hosts
from moxwell.embedded.controlplanes.binaries.tenant_folder import TenantFolder, TenantRecord
from moxwell.embedded.controlplanes.binaries.tenant_programs import (
    TenantPrograms,
    TenantProgramStates,
)
from moxwell.embedded.controlplanes.supervision.supervisor import ProcessControl, Supervisor
from moxwell.embedded.controlplanes.tenant_api import Extend, no_extension
from moxwell.embedded.controlplanes.tenant_controllers import TenantControllers
from moxwell.embedded.ports import PortTaken, https_url, is_free, same_or_new_port
from moxwell.kube.client import Kube
from moxwell.pki import certificates
from moxwell.runtime.caches import Caches
from moxwell.runtime.key import Key

log = structlog.get_logger(__name__)


class BinaryControlPlanes:
    """Runs control planes as processes, which are stopped when ``run`` is cancelled."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        installed: InstalledReleases,
        processes: ProcessControl,
        new_port: Callable[[str], int],
        address: Callable[[Path], str] = loopback,
        extend: Extend = no_extension,
        changed: Callable[[Key], None] = lambda key: None,
        konnectivity: KonnectivitySettings | None = None,
        addons: AddonSettings | None = None,
        etcd_hosts: Sequence[str] = (LOOPBACK,),
    ) -> None:
        """
        ``new_port`` gives a free port of an address, ``address`` the address of a tenant's folder.

        ``extend`` adds controllers for a tenant; ``changed`` is called on a change of state. etcd
        has a member for each host.
        """
        self._konnectivity, self._root, self._clock = konnectivity, root, clock
        self._addons = AddonSources(addons or AddonSettings(), root / "addons")
        self._address, self._free_port = address, new_port
        self._installed, self.changed = installed, changed
        self._supervisor = Supervisor(processes, clock)
        self.etcd = SharedEtcd(
            root / "etcd",
            clock,
            self._supervisor,
            program=installed.etcd,
            new_port=new_port,
            hosts=etcd_hosts,
            changed=self._all_changed,
        )
        self._etcd_users: set[str] = set()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._tasks = task_group.LongLivedTasks()
        self._controllers = TenantControllers(clock, extend, self._tasks)
        self._programs = TenantPrograms(self._supervisor, self._controllers)

    async def run(self) -> None:
        """Own all tasks until cancelled, then stop every program."""
        backups = asyncio.create_task(EtcdBackups(self.etcd, self._clock).run())
        members = asyncio.create_task(self.etcd.run())
        try:
            await self._tasks.run(self._stop_all)
        finally:
            await task_group.cancel(backups)
            await task_group.cancel(members)

    async def _stop_all(self) -> None:
        await self._controllers.stop_all()
        folders = {program.parent for program in self._supervisor.programs()} - {self.etcd.folder}
        await asyncio.gather(*(self._programs.stop(folder) for folder in folders))
        await self.etcd.stop()

    def _key_changed(self, key: Key) -> None:
        self.changed(key)

    def _all_changed(self) -> None:
        for key in self.keys():
            self.changed(key)

    # Reads

    def has(self, key: Key) -> bool:
        """Whether a tenant exists here, with or without replicas."""
        return self._folder(key).find() is not None

    def keys(self) -> Iterator[Key]:
        """Every tenant that exists here."""
        for file in sorted(self._root.glob("tenants/*/*/tenant.json")):
            yield Key(file.parent.parent.name, file.parent.name)

    def caches(self, key: Key) -> Caches | None:
        """The informer caches of a tenant; None while its controllers do not run."""
        return self._controllers.caches(key)

    # ControlPlaneRunner

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        await self._tasks.wait_ready()
        async with self._lock(spec.key):
            try:
                release = await self._installed.get(spec.version)
            except ReleaseMissing:
                await self._ensure_old_version(spec)
                raise
            return await self._ensure(spec, release)

    async def sleep(self, key: Key) -> None:
        async with self._lock(key):
            await self._stop(key)

    async def _stop(self, key: Key) -> None:
        await self._controllers.stop(key)
        await self._programs.stop(self._folder(key).folder)

    async def destroy(self, key: Key) -> None:
        async with self._lock(key):  # until the folder is deleted: a waiting ensure starts anew
            await self._stop(key)
            tenant = self._folder(key)
            record = tenant.find()
            if record is not None:
                await self.etcd.remove(record.uid)
                self._etcd_users.discard(record.uid)
            await asyncio.to_thread(shutil.rmtree, tenant.folder, ignore_errors=True)
            with suppress(OSError):
                tenant.folder.parent.rmdir()
        if next(self.keys(), None) is None:
            await self.etcd.stop()
            with suppress(OSError):
                (self._root / "tenants").rmdir()
        log.info("control plane destroyed", tenant=str(key))

    # One control plane

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def _folder(self, key: Key) -> TenantFolder:
        return TenantFolder(self._root / "tenants" / key.namespace / key.name, self._clock)

    async def _ensure_old_version(self, spec: HostedControlPlaneSpec) -> None:
        """A version that is not installed changes nothing: the old one keeps running."""
        record = self._folder(spec.key).find()
        if record is not None:
            old = await self._installed.get(record.version)
            await self._ensure(replace(spec, version=record.version), old)

    async def _ensure(self, spec: HostedControlPlaneSpec, release: Release) -> HostedControlPlane:
        tenant = self._folder(spec.key)
        etcd = await self.etcd.ensure()
        host = self._address(tenant.folder)
        record = self._check_ports(tenant, spec, host)
        layout = self._layout(tenant, record, host, spec.replicas)
        if not etcd.healthy:
            states = TenantProgramStates(others=(("etcd", etcd),))
            return _describe(tenant, record, layout, states, release)
        if record.uid not in self._etcd_users:
            await self.etcd.add(record.uid)
            self._etcd_users.add(record.uid)
        rotate = record.rotation != spec.rotation
        tenant.write(spec, layout, self.etcd.ca, rotate=rotate)
        record = tenant.remember(msgspec.structs.replace(record, rotation=spec.rotation))
        changed = partial(self._key_changed, spec.key)
        states = await self._programs.start(spec, layout, release, changed)
        if states.current:
            record = tenant.remember(msgspec.structs.replace(record, version=release.version))
        if not states.ready:
            return _describe(tenant, record, layout, states, release)
        record = await self._start_controllers(tenant, record, spec, layout)
        kube = self._controllers.kube(spec.key)
        plane = _describe(tenant, record, layout, states, release)
        return replace(plane, addons=await describe_addons(kube)) if kube else plane

    def _check_ports(
        self, tenant: TenantFolder, spec: HostedControlPlaneSpec, host: str
    ) -> TenantRecord:
        """The record with usable ports; the API server's port cannot change."""
        tenant.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = tenant.find_or_create(spec, host, self._new_port)
        if not self._programs.listens(tenant.folder) and not is_free(record.port, host):
            raise PortTaken(
                f"port {record.port} on {host}, which this cluster's nodes use, is taken "
                "by another program: stop that program"
            )
        record = self._with_konnectivity(record, host)
        others = (found for key in self.keys() if (found := self._folder(key).find()))
        record = with_replica_hosts(record, spec.replicas, others)
        new, folder = partial(self._new_port, LOOPBACK), tenant.folder
        manager, scheduler = (
            same_or_new_port(port, new, ours=self._supervisor.has(folder / f"kube-{name}"))
            for port, name in (
                (record.manager_port, "controller-manager"),
                (record.scheduler_port, "scheduler"),
            )
        )
        return tenant.remember(
            msgspec.structs.replace(record, manager_port=manager, scheduler_port=scheduler)
        )

    def _with_konnectivity(self, record: TenantRecord, host: str) -> TenantRecord:
        """The record with the ports of konnectivity, which nodes remember."""
        if self._konnectivity is None or record.konnectivity is not None:
            return record
        ports: list[int] = []
        for at in (self._konnectivity.address or host, LOOPBACK, LOOPBACK, LOOPBACK):
            while (port := self._new_port(at)) in (*ports, record.port):
                continue
            ports.append(port)
        agent, server, admin, health = ports
        found = KonnectivityPorts(agent=agent, server=server, admin=admin, health=health)
        return msgspec.structs.replace(record, konnectivity=found)

    def _new_port(self, host: str) -> int:
        """A free port that no tenant uses, including those at zero replicas."""
        records = (self._folder(key).find() for key in self.keys())
        used = {p for r in records if r for p in (r.port, r.manager_port, r.scheduler_port)}
        while (port := self._free_port(host)) in used - {API_PORT}:  # of an address of its own
            continue
        return port

    def _layout(
        self, tenant: TenantFolder, record: TenantRecord, host: str, replicas: int
    ) -> TenantLayout:
        return TenantLayout(
            folder=tenant.folder,
            host=host,
            port=record.port,
            manager_port=record.manager_port,
            scheduler_port=record.scheduler_port,
            etcd_urls=self.etcd.urls,
            etcd_prefix=prefix_of(record.uid),
            konnectivity=self._proxy(tenant, record, host),
            replicas=record.replica_hosts[:replicas],
            replica_hosts=record.replica_hosts,
        )

    def _proxy(
        self, tenant: TenantFolder, record: TenantRecord, host: str
    ) -> KonnectivityLayout | None:
        if self._konnectivity is None or record.konnectivity is None:
            return None
        return KonnectivityLayout(
            folder=tenant.folder,
            host=self._konnectivity.address or host,
            ports=record.konnectivity,
            program=self._installed.konnectivity(),
            image=self._konnectivity.image,
        )

    async def _start_controllers(
        self,
        tenant: TenantFolder,
        record: TenantRecord,
        spec: HostedControlPlaneSpec,
        layout: TenantLayout,
    ) -> TenantRecord:
        """Apply the objects that joining nodes need and start this process's controllers."""
        url, ca = https_url(layout.host, layout.port), tenant.read("pki/ca.crt")

        async def prepare(kube: Kube) -> None:
            await kubeadm_objects.apply(kube, url, ca, spec)
            await csr_approval.apply(kube)
            outer = f"https://{spec.external}" if spec.external else url
            agents = tenant_objects(layout.konnectivity) if layout.konnectivity else ()
            await apply_addons(kube, (*agents, *await self._addons.objects(spec, outer)))

        if not await self._controllers.start(spec.key, tenant.read("admin.conf"), prepare):
            return record
        log.info("control plane ready", tenant=str(spec.key), port=layout.port)
        return tenant.remember(msgspec.structs.replace(record, initialized=True))


def _describe(
    tenant: TenantFolder,
    record: TenantRecord,
    layout: TenantLayout,
    states: TenantProgramStates,
    release: Release,
) -> HostedControlPlane:
    ready, ready_servers = states.ready, states.ready_servers
    unhealthy = [f"{name}: {state.message}" for name, state in states.all if not state.healthy]
    exits = [f"{name} {state.last_exit}" for name, state in states.all if state.last_exit]
    certificate = layout.pki("apiserver.crt")
    written = certificate.exists()
    return HostedControlPlane(
        host=layout.host,
        port=layout.port,
        version=release.version if states.current else record.version,
        ready=ready,
        ready_replicas=ready_servers,
        initialized=record.initialized,
        message="; ".join(unhealthy) or ("" if ready else "waiting for kube-apiserver"),
        last_exit="; ".join(exits),
        ca=tenant.read("pki/ca.crt") if written else "",
        ca_key=tenant.read("pki/ca.key") if written else "",
        admin_kubeconfig=tenant.read("admin.conf") if written else "",
        expires=certificates.expires(certificate.read_bytes()) if written else None,
        driver="etcd",
    )
