"""
Wires everything that runs in lab and standalone mode and stops it in reverse order.

Everything stateful is created here and passed on. Servers are pushed on the exit stack in the order
they start; :meth:`Instance.run` owns the tasks.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiohttp import web

import moxwell
from moxwell.app import command_line, embedded_api
from moxwell.app import defaults as instance_defaults
from moxwell.app.config_reload import ConfigReload
from moxwell.app.lab_process import LabConfig, LabProcess
from moxwell.app.launch_options import LaunchOptions
from moxwell.app.standalone_controllers import (
    AddedControllers,
    ControllerContext,
    add_controllers,
)
from moxwell.app.state_dir import InstanceInfo, StateDir
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import Infra
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.controlplanes.control_planes import HostedControlPlanes
from moxwell.embedded.ports import remembered_port
from moxwell.json_lines import JsonLinesFile
from moxwell.pki.folder import CertificateAuthority
from moxwell.pve import config
from moxwell.pve.audit import FileAudit
from moxwell.pve.config import RegionConfig
from moxwell.pve.effects import Effects
from moxwell.pve.regions import Regions
from moxwell.pve.write_metrics import export_writes
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.settings import Listen, ManagerSettings
from moxwell.web.change_log import ChangeLog
from moxwell.web.dashboard_feed import DashboardFeed
from moxwell.web.http import Action, Dashboard
from moxwell.web.node_explanation import node_explanation
from moxwell.web.sessions import Sessions
from moxwell.web.views import Views

API_PORT, DASHBOARD_PORT = 6443, 8480
RENEWAL_SECONDS = 3600.0  # how often the kubeconfig is checked


@dataclass(slots=True)
class Instance:
    """One running instance."""

    state: StateDir
    clock: Clock
    options: LaunchOptions
    api: HttpServer
    dashboard: str
    runtime: Runtime
    regions: Regions
    control_planes: HostedControlPlanes
    lab: LabProcess | None
    feed: DashboardFeed
    change_log: ChangeLog
    infra: Infra
    reload: ConfigReload | None  # None in the lab

    @property
    def mode(self) -> str:
        return _mode(self.lab)

    @classmethod
    async def start(
        cls, stack: AsyncExitStack, state: StateDir, clock: Clock, options: LaunchOptions
    ) -> "Instance":
        """Create and start everything; closing ``stack`` stops it."""
        state.create()
        lab, configs = await _open_regions(stack, state, clock, options)
        rules = embedded_api.AdmissionRules()
        store, api = await _serve_api(stack, state, clock, rules)
        runtime = assemble(store, clock, _settings(state))
        regions = Regions(configs, clock, effects=_effects(stack, state, clock))
        export_writes(runtime.metrics.registry, regions.effects)
        made = await add_controllers(
            stack, ControllerContext(state, clock, options, runtime, regions, configs), rules
        )
        change_log = ChangeLog(clock.now())
        feed = _feed(state, clock, regions, runtime, made, mode=_mode(lab))
        dashboard = await _serve_dashboard(
            stack, state, change_log, made.actions() | {"explain-node": node_explanation(feed)}
        )
        if lab is not None:
            await instance_defaults.apply_lab_pools(runtime.kube, regions)
        return cls(
            state, clock, options, api, dashboard, runtime, regions, made.planes, lab, feed,
            change_log, made.infra, _reload(state, clock, options, configs, made.infra.registry),
        )  # fmt: skip

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until ``stopping`` is set; controllers finish their passes first."""
        async with asyncio.TaskGroup() as group:
            controllers = group.create_task(self.runtime.manager.run())
            others = [
                group.create_task(self.regions.run()),
                group.create_task(self.control_planes.run()),
                group.create_task(self._renew_kubeconfig()),
                group.create_task(self.feed.run(self.change_log, Views())),
            ]
            if self.reload is not None:
                others.append(group.create_task(self.reload.run()))
            await stopping.wait()
            self.runtime.manager.stop()
            await controllers
            for task in others:
                task.cancel()

    async def _renew_kubeconfig(self) -> None:
        """The administrator's certificate is valid for days; renew it in the file."""
        while True:
            await self.clock.sleep(RENEWAL_SECONDS)
            self.api.write_kubeconfig(self.state.kubeconfig)

    def info(self, pid: int) -> InstanceInfo:
        """What commands need to reach this instance; ``pid`` is the process that ends it."""
        ports = self.runtime.manager.ports
        return InstanceInfo(
            name=self.state.name,
            mode=self.mode,
            version=moxwell.__version__,
            pid=pid,
            api=self.api.url,
            dashboard=self.dashboard,
            metrics=f"http://127.0.0.1:{ports['health']}" if "health" in ports else "",
            started=self.clock.now().strftime("%Y-%m-%d %H:%M:%S UTC"),
            regions={r.name: list(r.config.urls) for r in self.regions.values()},
            config=self.options.config,
            world=self.options.world,
            control_plane_binaries=self.options.control_plane_binaries,
            autoscaler_mode=self.options.autoscaler_mode,
        )


def _mode(lab: LabProcess | None) -> str:
    return "lab" if lab else "standalone"


async def _open_regions(
    stack: AsyncExitStack, state: StateDir, clock: Clock, options: LaunchOptions
) -> tuple[LabProcess | None, tuple[RegionConfig, ...]]:
    """The configured regions, or those of a lab that is started here."""
    if options.config:
        return None, config.load(Path(options.config))
    binaries = options.control_plane_binaries
    lab = LabProcess(state, clock, LabConfig(options.name, options.world, binaries))
    stack.push_async_callback(lab.stop)
    return lab, await lab.start()


def _reload(
    state: StateDir,
    clock: Clock,
    options: LaunchOptions,
    configs: tuple[RegionConfig, ...],
    registry: RegionRegistry,
) -> ConfigReload | None:
    if not options.config:
        return None

    def apply(changed: tuple[RegionConfig, ...]) -> None:
        registry.configure(changed)
        if (info := state.info()) is not None:
            regions = {c.region: list(c.urls) for c in changed}
            state.publish(msgspec.structs.replace(info, regions=regions))

    return ConfigReload(options, configs, clock, record=state.config_reload, apply=apply)


def _settings(state: StateDir) -> ManagerSettings:
    return ManagerSettings(
        elect=False,
        identity=state.name,
        health=Listen(port=remembered_port(state.folder / "metrics.port", 0)),
    )


def _effects(stack: AsyncExitStack, state: StateDir, clock: Clock) -> Effects:
    """The writes of all regions, recorded in the instance's audit file."""
    file = JsonLinesFile(state.proxmox_audit)
    stack.callback(file.close)
    return Effects(FileAudit(file, clock), clock=clock)


async def _serve_api(
    stack: AsyncExitStack, state: StateDir, clock: Clock, rules: embedded_api.AdmissionRules
) -> tuple[EmbeddedApiServer, HttpServer]:
    authority = CertificateAuthority(state.pki, clock.now)
    store = await embedded_api.open_store(clock, state.database, authority, rules)
    stack.push_async_callback(store.stop)
    port = remembered_port(state.folder / "api.port", API_PORT)
    server = HttpServer(store, authority, folder=state.pki, port=port)
    await server.start()
    stack.push_async_callback(server.stop)
    server.write_kubeconfig(state.kubeconfig)
    return store, server


def _feed(
    state: StateDir,
    clock: Clock,
    regions: Regions,
    runtime: Runtime,
    made: AddedControllers,
    *,
    mode: str,
) -> DashboardFeed:
    return DashboardFeed(
        regions,
        runtime.manager.caches,
        clock,
        mode=mode,
        version=moxwell.__version__,
        program=command_line.path(),
        instance=command_line.instance_of(state.name),
        pods=made.planes.pods_by_node,
        tenant_caches=made.planes.caches,
        insights=made.autoscaler.insight,
        durations_file=state.folder / "typical.json",
    )


async def _serve_dashboard(
    stack: AsyncExitStack, state: StateDir, change_log: ChangeLog, served: Mapping[str, Action]
) -> str:
    key = state.dashboard_key.read_text() if state.dashboard_key.exists() else None
    sessions = Sessions(key, file=state.folder / "dashboard-sessions.json")
    write_private(state.dashboard_key, sessions.bearer.encode())
    page = Dashboard(
        change_log,
        sessions,
        hosts=("127.0.0.1", "localhost", "::1"),
        actions=served,
        command=command_line.command("status", state.name),
    )
    runner = web.AppRunner(page.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    port = remembered_port(state.folder / "dashboard.port", DASHBOARD_PORT)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return f"http://127.0.0.1:{port}"
