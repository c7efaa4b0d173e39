"""
An environment for machine stories in one process: embedded API server, controllers, lab guests.

It runs on virtual time and without sockets. One API is both the management cluster and the cluster
that guests join. Guests authenticate with their bootstrap token, then with the certificate that was
signed for them.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.requests import Handler, Request, Response, UserInfo
from moxwell.bootstrap import kubeadm
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.embedded.apiserver.auth import bootstrap_tokens
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.controlplanes.tenant_api import hosted_controllers
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.proxmox.engine import Engine
from moxwell.pki.folder import CertificateAuthority
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.manager import Manager, assemble
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.testing.cached_worlds import fresh_regions, open_store
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import LoopClock
from moxwell.testing.machine_stories import StoryEnvironment
from moxwell.testing.pve import SimTransport
from moxwell.testing.region_contents import add_foreign_objects
from moxwell.testing.two_regions import SETTINGS, TOKEN, TOKEN_SECRET, WORLD, configs

HOST, PORT = "127.0.0.1", 6443
PATIENCE_SECONDS = 1800.0
ANONYMOUS = UserInfo(name="system:anonymous", groups=("system:unauthenticated",))
KUBECONFIG = f"""
clusters: [{{name: t, cluster: {{server: "https://{HOST}:{PORT}"}}}}]
users: [{{name: u, user: {{token: admin}}}}]
contexts: [{{name: c, context: {{cluster: t, user: u}}}}]
current-context: c
"""


@dataclass(frozen=True)
class AuthenticatedApi:
    """The API as a guest reaches it: every request is authenticated."""

    store: EmbeddedApiServer
    access: ApiAccess

    async def handle(self, request: Request) -> Response:
        return await self.store.handle(replace(request, user=await self._user()))

    async def _user(self) -> UserInfo:
        identity = await self.access.credentials.identity()
        if identity.certificate:
            subject = x509.load_pem_x509_certificate(identity.certificate.encode()).subject
            name = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
            groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            names = tuple(str(g.value) for g in groups)
            return UserInfo(name=str(name), groups=(*names, "system:authenticated"))
        token = identity.authorization.reveal.removeprefix("Bearer ")
        core = self.store.core
        return bootstrap_tokens.authenticate(token, core.cache, core.clock) or ANONYMOUS


@dataclass
class EmbeddedEnvironment:
    """What survives a crash of the program: the API with its nodes, the regions, the guests."""

    clock: LoopClock
    store: EmbeddedApiServer
    engine: Engine
    stage: StoryEnvironment
    tasks: list[asyncio.Task[Any]]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.engine.close()
        await self.store.stop()


async def create_environment(world: str = WORLD) -> EmbeddedEnvironment:
    """A new environment without the program; nothing creates guests yet."""
    clock = LoopClock()
    store = open_store(clock)
    await store.start()
    with tempfile.TemporaryDirectory() as folder:
        authority = CertificateAuthority(Path(folder), clock.now)
        ca, key = authority.certificate, (Path(folder) / "ca.key").read_bytes()
    guests = GuestRunner(lambda access: AuthenticatedApi(store, access), clock)
    engine = Engine(fresh_regions(world), clock, guest_os=guests)
    kube = Kube(store, manager="user")
    for obj in kubeadm.bootstrap_objects(f"https://{HOST}:{PORT}", ca.decode(), "{}"):
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], manager="kubeadm", force=True)
    stage = StoryEnvironment(
        kube, engine, _applier(kube), ca, key, KUBECONFIG.encode(), PORT, PATIENCE_SECONDS
    )
    controllers = hosted_controllers(store, authority, clock)
    tasks = [asyncio.create_task(work) for work in (guests.run(), controllers.run())]
    transport = SimTransport(engine, "north", token=f"{TOKEN}={TOKEN_SECRET}")
    await add_foreign_objects(engine.runtimes["north"].region, transport)
    await asyncio.sleep(60)  # until the simulated regions are quiet
    return EmbeddedEnvironment(clock, store, engine, stage, tasks)


def _applier(kube: Kube) -> Callable[[str], Any]:
    async def apply(text: str) -> None:
        kinds = {(s.resource.api_version, s.resource.kind): s for s in await kube.discover()}
        for tree in yaml.safe_load_all(text):
            resource = kinds[tree["apiVersion"], tree["kind"]].resource
            await kube.apply(tree, resource, manager="user", force=True)

    return apply


def create_program(
    environment: EmbeddedEnvironment, counter: EffectCounter | None = None
) -> Manager:
    """The program under test: the infrastructure provider and the embedded Cluster API."""
    effects, clock = counter or EffectCounter(), environment.clock
    handler: Handler = effects.kube(environment.store)
    runtime = assemble(handler, clock, SETTINGS)
    known = configs(*environment.engine.runtimes)
    token = f"{TOKEN}={TOKEN_SECRET}"
    regions = Regions(
        known,
        clock,
        connect=lambda c: effects.pve(SimTransport(environment.engine, c.region, token=token)),
    )
    add_infra(runtime, clock, regions, Reservations(), registry=RegionRegistry(regions, known))
    for controller in setup.controllers(
        runtime.kube,
        runtime.manager.caches,
        clock,
        TenantClients(runtime.kube, lambda access: handler, clock),
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        runtime.manager.add(controller)
    runtime.manager.add_loop("pve", regions.run)
    return runtime.manager


@asynccontextmanager
async def embedded_environment(world: str = WORLD) -> AsyncIterator[StoryEnvironment]:
    """A new environment with the program running."""
    created = await create_environment(world)
    manager = create_program(created)
    running = asyncio.create_task(manager.run())
    try:
        yield created.stage
    finally:
        manager.stop()
        with suppress(asyncio.CancelledError):
            await running
        await created.close()
