"""
An environment for stories of ``moxwell bootstrap``: one process, virtual time, no sockets.

The temporary API, the simulated regions with their guests, and the API that the guests serve
survive a crash of the program: the controllers of the temporary instance.
"""

import asyncio
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from moxwell.api import registry
from moxwell.api.capi.controlplane import KubeadmControlPlane
from moxwell.api.capi.talos import TalosControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.requests import Handler, Request, Response
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.controlplanes.tenant_api import hosted_controllers
from moxwell.errors import Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.kube.transport import ApiServerUnreachable
from moxwell.lab.guests.control_plane import GuestControlPlane
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.guests.talos import DialedTalos, TalosNodes
from moxwell.lab.proxmox.engine import Engine
from moxwell.management import setup as management
from moxwell.management.manifests import ManifestStage
from moxwell.management.objects import CONFIG_MAPS, NAMESPACES
from moxwell.management.observed import OWN_NAMESPACE
from moxwell.management.spec import TALOS, ManagementSpec, ManagementTalos, ManagementZone
from moxwell.pki.folder import CertificateAuthority
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.manager import Manager, assemble
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.testing.cached_worlds import fresh_regions, open_store
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.embedded_environment import AuthenticatedApi
from moxwell.testing.loop import LoopClock
from moxwell.testing.pve import SimTransport
from moxwell.testing.region_contents import add_foreign_objects
from moxwell.testing.two_regions import SETTINGS, TOKEN, TOKEN_SECRET, WORLD, configs

ENDPOINT = "127.40.0.1"
ZONES = (
    ManagementZone(
        region="north", addresses=("10.40.0.10-10.40.0.19",), prefix=24, gateway="10.40.0.1"
    ),
    ManagementZone(
        region="south", addresses=("10.41.0.10-10.41.0.19",), prefix=24, gateway="10.41.0.1"
    ),
)
SPEC = ManagementSpec(kubernetes="v1.34.1", endpoint=ENDPOINT, zones=ZONES, replicas=3)
TALOS_SPEC = msgspec.structs.replace(
    SPEC, bootstrap=TALOS, talos=ManagementTalos(template="ubuntu")
)


class GuestApiServers:
    """Serves the control planes of guests in memory, until their last guest stops."""

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.stores: dict[str, EmbeddedApiServer] = {}  # by URL
        self._members: dict[str, set[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def serve(self, control_plane: GuestControlPlane, member: str, /) -> None:
        url = control_plane.url
        if url not in self.stores:
            self.stores[url] = await self._start(control_plane)
        self._members.setdefault(url, set()).add(member)

    async def _start(self, plane: GuestControlPlane) -> EmbeddedApiServer:
        with tempfile.TemporaryDirectory() as folder:
            files = {"ca.crt": plane.ca, "ca.key": plane.ca_key, "tokens.key": plane.service_key}
            for name, text in files.items():
                (Path(folder) / name).write_text(text)
            authority = CertificateAuthority(Path(folder), self._clock.now, name="kube-apiserver")
            assert authority.certificate
            assert authority.signing_key
            assert authority.token_key
        store = open_store(self._clock, crds=False)
        await store.start()
        controllers = hosted_controllers(store, authority, self._clock)
        self._tasks[plane.url] = asyncio.create_task(controllers.run())
        return store

    async def release(self, control_plane: GuestControlPlane, member: str, /) -> None:
        members = self._members.get(control_plane.url, set())
        members.discard(member)
        if not members and control_plane.url in self.stores:
            self._tasks.pop(control_plane.url).cancel()
            await self.stores.pop(control_plane.url).stop()

    def keep_only(self, ids: Collection[str], /) -> None:
        """The data is in memory and ends with the last member."""

    def dial(self, access: ApiAccess) -> Handler:
        """A connection of a guest, or of the program, to an API by its URL."""
        return _Dialed(self, access)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for store in self.stores.values():
            await store.stop()


@dataclass(frozen=True)
class _Dialed:
    servers: GuestApiServers
    access: ApiAccess

    async def handle(self, request: Request) -> Response:
        store = self.servers.stores.get(self.access.server)
        if store is None:
            raise ApiServerUnreachable(f"nothing listens at {self.access.server}")
        return await AuthenticatedApi(store, self.access).handle(request)


@dataclass(frozen=True)
class _CountedTalos:
    """Talos' API on a machine, whose writes are counted."""

    inner: DialedTalos
    effects: EffectCounter

    async def bootstrap(self) -> None:
        await self.effects.effect(
            f"Talos {self.inner.access.address}: Bootstrap",
            self.inner.bootstrap,
            refused=lambda _: False,
            lost=Unreachable("the connection broke; it may have happened"),
        )


@dataclass
class BootstrapEnvironment:
    """What survives a crash of the program."""

    clock: LoopClock
    store: EmbeddedApiServer
    engine: Engine
    servers: GuestApiServers
    spec: ManagementSpec
    stages: tuple[ManifestStage, ...]
    talos: TalosNodes
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def kube(self) -> Kube:
        return Kube(self.store, manager="test")

    def target(self) -> Kube:
        """The API of the management cluster."""
        (store,) = self.servers.stores.values()
        return Kube(store, manager="test")

    def guests(self) -> dict[tuple[str, int], Any]:
        """The guests that were made."""
        return {
            (name, vmid): guest
            for name, runtime in self.engine.runtimes.items()
            for vmid, guest in runtime.region.guests.items()
            if not guest.conf.get("template") and vmid != 201
        }

    async def request(self, *, undo: bool = False) -> None:
        """Ask for the management cluster, or for its removal."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
        await self.kube.apply(body, NAMESPACES, force=True)
        request = management.request_object(undo=undo)
        await self.kube.apply(request, CONFIG_MAPS, force=True)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.servers.close()
        await self.engine.close()
        await self.store.stop()


def upstream_stage() -> ManifestStage:
    """The CRDs of Cluster API, its providers and Moxwell."""
    return ManifestStage("cluster-api", registry.make_crds(upstream=True))


async def create_bootstrap_environment(
    spec: ManagementSpec = SPEC,
    stages: Sequence[ManifestStage] | None = None,
    world: str = WORLD,
    *,
    foreign: bool = True,
) -> BootstrapEnvironment:
    """A new environment without the program; ``foreign`` objects need an administrator's token."""
    clock = LoopClock()
    store = open_store(clock)
    await store.start()
    servers = GuestApiServers(clock)
    guests = GuestRunner(servers.dial, clock, control_planes=servers)
    engine = Engine(fresh_regions(world), clock, guest_os=guests)
    chosen = tuple(stages) if stages is not None else (upstream_stage(),)
    made = BootstrapEnvironment(clock, store, engine, servers, spec, chosen, guests.talos)
    made.tasks.append(asyncio.create_task(guests.run()))
    if foreign:
        transport = SimTransport(engine, "north", token=f"{TOKEN}={TOKEN_SECRET}")
        await add_foreign_objects(engine.runtimes["north"].region, transport)
    await asyncio.sleep(60)  # until the simulated regions are quiet
    return made


def create_bootstrap_program(
    environment: BootstrapEnvironment, counter: EffectCounter | None = None
) -> Manager:
    """The program under test: infrastructure provider, embedded Cluster API and bootstrap."""
    effects, clock = counter or EffectCounter(), environment.clock
    runtime = assemble(effects.kube(environment.store), clock, SETTINGS)
    known = configs(*environment.engine.runtimes)
    token = f"{TOKEN}={TOKEN_SECRET}"
    regions = Regions(
        known,
        clock,
        connect=lambda c: effects.pve(SimTransport(environment.engine, c.region, token=token)),
    )
    add_infra(runtime, clock, regions, Reservations(), registry=RegionRegistry(regions, known))
    tenants = TenantClients(
        runtime.kube, lambda access: effects.kube(environment.servers.dial(access)), clock
    )
    for controller in setup.controllers(
        runtime.kube,
        runtime.manager.caches,
        clock,
        tenants,
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KubeadmControlPlane, TalosControlPlane),
        dial_talos=lambda access: _CountedTalos(environment.talos.dial(access), effects),
    ):
        runtime.manager.add(controller)
    spec, stages = environment.spec, environment.stages
    runtime.manager.add(management.controller(runtime.kube, spec, stages, tenants))
    runtime.manager.add_loop("pve", regions.run)
    return runtime.manager


def with_fields(spec: ManagementSpec, **fields: Any) -> ManagementSpec:
    """A specification with other fields."""
    return msgspec.structs.replace(spec, **fields)
