"""
Everything that runs in lab and standalone mode: made here, wired here, stopped in reverse.

One flat list. What has a life of its own runs as a task of one group; what has an end is pushed on
the exit stack in the order in which it must go.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

import moxwell
from moxwell.api import registry
from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.app import defaults as settling
from moxwell.app import embedded_api
from moxwell.app.lab import Lab
from moxwell.app.state_dir import Facts, Home, kept_port
from moxwell.app.tenant_storage import TenantStorage
from moxwell.clock import Clock
from moxwell.controllers.cloud.features import Features
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.setup import Infra, add_infra
from moxwell.controllers.tenancy.cluster.controller import TenantClusters
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.tenant.controller import Tenants as TenantSpaces
from moxwell.controllers.tenancy.tenant.firewall import Walls
from moxwell.embedded.apiserver.auth.ca import Authority, write_private
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import Store
from moxwell.embedded.clusterapi import setup
from moxwell.embedded.clusterapi.controlplane.controller import ControlPlanes
from moxwell.embedded.clusterapi.references import References
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.embedded.clusterapi.tenantcontrolplane.controller import TenantPlanes
from moxwell.embedded.controlplanes import control_planes
from moxwell.embedded.controlplanes.control_planes import HostedPlanes
from moxwell.kube.transport import HttpTransport
from moxwell.lab import templates
from moxwell.plan.manifest_plan import Foresight
from moxwell.plan.placement import Landing
from moxwell.pve import config
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Listen, Settings
from moxwell.web import actions
from moxwell.web.change_log import Ring
from moxwell.web.dashboard_feed import Looking
from moxwell.web.http import Dashboard, Doors
from moxwell.web.views import Views

API_PORT, DASHBOARD_PORT = 6443, 8480


@dataclass(slots=True)
class Moxwell:
    """One running instance."""

    home: Home
    clock: Clock
    mode: str
    config: str
    api: HttpServer
    dashboard: str
    runtime: Runtime
    regions: Regions
    planes: HostedPlanes
    lab: Lab | None
    looking: Looking
    ring: Ring
    views: Views
    infra: Infra
    world: str = ""
    genuine: str = ""

    @classmethod
    async def start(
        cls,
        stack: AsyncExitStack,
        home: Home,
        clock: Clock,
        config_file: str,
        world: str,
        genuine: str = "",
    ) -> "Moxwell":
        """Make and start everything; whoever holds ``stack`` stops it."""
        home.make()
        lab = None if config_file else Lab(home, clock, Path(world) if world else None)
        if lab is not None:
            configs = await lab.start()
            stack.push_async_callback(lab.stop)
        else:
            configs = config.load(Path(config_file))
        store, api = await _serve_api(stack, home, clock)
        settings = Settings(
            elect=False,
            identity=home.name,
            health=Listen(port=kept_port(home.folder / "metrics.port", 0)),
        )
        runtime = assemble(store, clock, settings)
        regions = Regions(configs, clock)
        storage = TenantStorage(regions, clock)

        def tend(tenant: Runtime, *, binding: bool = True) -> None:
            add_cloud(tenant, clock, regions, Features())
            storage.add(tenant, binding=binding)

        planes = await control_planes.make(
            home,
            clock,
            genuine,
            os.environ,
            extend=tend,
            extend_genuine=partial(tend, binding=False),
        )
        planes.listen(lambda key: runtime.manager.wake("upstream.tenantplane", key))
        if lab is not None and planes.version:
            for region in lab.simulator.regions.values():
                templates.add_template(region, planes.version)
        infra = add_infra(runtime, clock, regions, Ledger(), book=RegionBook(regions, configs))

        def defaults() -> Defaults:
            return settling.defaults(regions, lab is not None, planes.version)

        _add_tenancy(runtime, defaults, regions)
        _add_upstream(runtime, clock, planes)
        views, ring = Views(), Ring(clock.now())
        looking = Looking(
            regions,
            runtime.manager.caches,
            clock,
            mode="lab" if lab else "standalone",
            version=moxwell.__version__,
            pods=planes.pods_by_node,
            inside=planes.caches,
            kept=home.folder / "typical.json",
        )
        deeds = actions.make(runtime.kube, infra, regions)
        landing = Landing(runtime.kube, infra.explainer, regions)
        sight = Foresight(runtime.kube, landing, defaults)
        deeds["plan"] = sight.action
        url = await _serve_dashboard(stack, home, ring, deeds)
        await settling.settle(runtime.kube, regions, lab is not None)
        return cls(
            home,
            clock,
            "lab" if lab else "standalone",
            config_file,
            api,
            url,
            runtime,
            regions,
            planes,
            lab,
            looking,
            ring,
            views,
            infra,
            world,
            genuine,
        )

    async def until(self, ended: asyncio.Event) -> None:
        """Run until told to end; controllers finish first."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self.runtime.manager.run())
            rest = [
                group.create_task(self.regions.run()),
                group.create_task(self.planes.run()),
                group.create_task(self.looking.run(self.ring, self.views)),
            ]
            if self.lab is not None:
                rest.append(group.create_task(self.lab.run()))
            await ended.wait()
            self.runtime.manager.stop()
            await work
            for task in rest:
                task.cancel()

    def facts(self, version: str) -> Facts:
        """What commands need to know."""
        ports = self.runtime.manager.ports
        return Facts(
            name=self.home.name,
            mode=self.mode,
            version=version,
            pid=os.getpid(),
            api=self.api.url,
            dashboard=self.dashboard,
            metrics=f"http://127.0.0.1:{ports['health']}" if "health" in ports else "",
            started=self.clock.now().strftime("%Y-%m-%d %H:%M:%S UTC"),
            regions={r.name: list(r.config.urls) for r in self.regions.values()},
            config=self.config,
            world=self.world,
            genuine=self.genuine,
        )


async def _serve_api(stack: AsyncExitStack, home: Home, clock: Clock) -> tuple[Store, HttpServer]:
    authority = Authority(home.pki, clock)
    store = await embedded_api.open_store(clock, home.database, authority)
    stack.push_async_callback(store.stop)
    port = kept_port(home.folder / "api.port", API_PORT)
    server = HttpServer(store, authority, folder=home.pki, port=port)
    await server.start()
    stack.push_async_callback(server.stop)
    if not home.kubeconfig.exists():
        server.write_kubeconfig(home.kubeconfig)
    return store, server


async def _serve_dashboard(stack: AsyncExitStack, home: Home, ring: Ring, deeds: Any) -> str:
    known = home.bearer.read_text() if home.bearer.exists() else None
    doors = Doors(known)
    write_private(home.bearer, doors.bearer.encode())
    page = Dashboard(ring, doors, hosts=("127.0.0.1", "localhost", "::1"), actions=deeds)
    runner = web.AppRunner(page.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    port = kept_port(home.folder / "dashboard.port", DASHBOARD_PORT)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return f"http://127.0.0.1:{port}"


def _add_tenancy(runtime: Runtime, defaults: Callable[[], Defaults], regions: Regions) -> None:
    manager = runtime.manager
    clusters = TenantClusters(runtime.kube, defaults)
    manager.add(Controller(name="tenancy.cluster", reconciler=clusters))
    spaces = TenantSpaces(runtime.kube, Walls(regions))
    manager.add(Controller(name="tenancy.tenant", reconciler=spaces))


def _add_upstream(runtime: Runtime, clock: Clock, planes: HostedPlanes) -> None:
    kube, manager = runtime.kube, runtime.manager
    tenants = Tenants(kube, HttpTransport, clock)
    resources = [k.resource for k in registry.KINDS if k.declared.storage]
    for controller in setup.controllers(
        kube,
        manager.caches,
        clock,
        tenants,
        resources=resources,
        infrastructure=(ProxmoxCluster, ProxmoxMachine),
        control_planes=(KamajiControlPlane,),
    ):
        manager.add(controller)
    refs = References(kube, resources)
    manager.add(
        Controller(
            name="upstream.controlplane", reconciler=ControlPlanes(kube, refs), pausable=True
        )
    )
    hosted = TenantPlanes(kube, planes)
    manager.add(Controller(name="upstream.tenantplane", reconciler=hosted))
