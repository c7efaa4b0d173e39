"""
The embedded stage for stories of machines: our API, the stand-ins and lab guests, no sockets.

In: a world text. Out: a :class:`Stage` on virtual time. One API is both the management cluster and
the one that guests join, as on the genuine stage; guests come in as strangers and must prove
themselves with their bootstrap token, then with the certificate that was signed for them.
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
from moxwell.api.requests import Handler, Request, Response, User
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.setup import add_infra
from moxwell.embedded.apiserver.auth import bootstrap_tokens
from moxwell.embedded.apiserver.auth.ca import Authority
from moxwell.embedded.apiserver.server import Store
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.embedded.controlplanes.inprocess import hosted_loops
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import Access
from moxwell.lab.guests import kubeadm
from moxwell.lab.guests.guest_runner import Guests
from moxwell.lab.proxmox.engine import Engine
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.runtime.manager import Manager, assemble
from moxwell.testing.cached_worlds import fresh_regions, open_store
from moxwell.testing.loop import LoopClock
from moxwell.testing.machine_stories import Stage
from moxwell.testing.pve import SimTransport
from moxwell.testing.reconcile import Wires
from moxwell.testing.region_contents import furnish
from moxwell.testing.two_regions import SETTINGS, TOKEN, TOKEN_SECRET, WORLD, configs

HOST, PORT = "127.0.0.1", 6443
PATIENCE_SECONDS = 1800.0
ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
KUBECONFIG = f"""
clusters: [{{name: t, cluster: {{server: "https://{HOST}:{PORT}"}}}}]
users: [{{name: u, user: {{token: admin}}}}]
contexts: [{{name: c, context: {{cluster: t, user: u}}}}]
current-context: c
"""


@dataclass(frozen=True)
class _Door:
    """The API as somebody from outside meets it: nobody is believed without proof."""

    store: Store
    access: Access

    async def handle(self, request: Request) -> Response:
        return await self.store.handle(replace(request, user=await self._user()))

    async def _user(self) -> User:
        identity = await self.access.credentials.identity()
        if identity.certificate:
            subject = x509.load_pem_x509_certificate(identity.certificate.encode()).subject
            name = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
            groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
            said = tuple(str(g.value) for g in groups)
            return User(name=str(name), groups=(*said, "system:authenticated"))
        token = identity.authorization.reveal.removeprefix("Bearer ")
        core = self.store.core
        return bootstrap_tokens.prove(token, core.state, core.clock) or ANONYMOUS


@dataclass
class EmbeddedWorld:
    """What survives the death of the program: the API with its nodes, the regions, the guests."""

    clock: LoopClock
    store: Store
    engine: Engine
    stage: Stage
    tasks: list[asyncio.Task[Any]]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.engine.close()
        await self.store.stop()


async def make_world(world: str = WORLD) -> EmbeddedWorld:
    """A fresh world, with guests that can live in it and nobody who makes any."""
    clock = LoopClock()
    store = open_store(clock)
    await store.start()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder), clock)
        ca, key = authority.certificate, (Path(folder) / "ca.key").read_bytes()
    guests = Guests(lambda access: _Door(store, access), clock)
    engine = Engine(fresh_regions(world), clock, inside=guests)
    kube = Kube(store, manager="user")
    for obj in kubeadm.bootstrap_objects(f"https://{HOST}:{PORT}", ca.decode(), "{}"):
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], manager="kubeadm", force=True)
    stage = Stage(
        kube, engine, _applier(kube), ca, key, KUBECONFIG.encode(), PORT, PATIENCE_SECONDS
    )
    loops = hosted_loops(store, authority, clock)
    tasks = [asyncio.create_task(work) for work in (guests.run(), loops.run())]
    transport = SimTransport(engine, "north", token=f"{TOKEN}={TOKEN_SECRET}")
    await furnish(engine.desks["north"].region, transport)
    await asyncio.sleep(60)  # the regions' own loops come to rest
    return EmbeddedWorld(clock, store, engine, stage, tasks)


def _applier(kube: Kube) -> Callable[[str], Any]:
    async def apply(text: str) -> None:
        kinds = {(s.resource.api_version, s.resource.kind): s for s in await kube.discover()}
        for tree in yaml.safe_load_all(text):
            resource = kinds[tree["apiVersion"], tree["kind"]].resource
            await kube.apply(tree, resource, manager="user", force=True)

    return apply


def make_program(world: EmbeddedWorld, wires: Wires | None = None) -> Manager:
    """One life of ours: the infrastructure and the stand-ins for Cluster API."""
    cut, clock = wires or Wires(), world.clock
    handler: Handler = cut.kube(world.store)
    runtime = assemble(handler, clock, SETTINGS)
    known = configs(*world.engine.desks)
    token = f"{TOKEN}={TOKEN_SECRET}"
    regions = Regions(
        known,
        clock,
        connect=lambda c: cut.pve(SimTransport(world.engine, c.region, token=token)),
    )
    add_infra(runtime, clock, regions, Ledger(), book=RegionBook(regions, known))
    for controller in setup.controllers(
        runtime.kube,
        runtime.manager.caches,
        clock,
        Tenants(runtime.kube, lambda access: handler, clock),
        resources=[k.resource for k in registry.KINDS if k.declared.storage],
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        runtime.manager.add(controller)
    runtime.manager.also("pve", regions.run)
    return runtime.manager


@asynccontextmanager
async def embedded_stage(world: str = WORLD) -> AsyncIterator[Stage]:
    """A fresh stage with everything running."""
    made = await make_world(world)
    manager = make_program(made)
    running = asyncio.create_task(manager.run())
    try:
        yield made.stage
    finally:
        manager.stop()
        with suppress(asyncio.CancelledError):
            await running
        await made.close()
