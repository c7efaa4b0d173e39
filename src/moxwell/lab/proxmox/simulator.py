"""
Runs a simulator from a world file or a saved state, on one port per node.

Programs and tests use ``Simulator``; ``run_sim`` is the command ``moxwell sim``, which saves its
state when it ends.
"""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from moxwell.clock import Clock, SystemClock
from moxwell.lab.group_save import GroupSave
from moxwell.lab.proxmox import certs, world
from moxwell.lab.proxmox import state_file as save
from moxwell.lab.proxmox.control_api import ControlApi
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.http import application
from moxwell.lab.proxmox.state import SimRegion


@dataclass(slots=True)
class Simulator:
    """An engine with its listening sockets; URLs are available after ``start``."""

    regions: dict[str, SimRegion]
    clock: Clock
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    guest_os: GuestOs | None = None
    seed: int = 0
    state: Path | None = None
    durable: bool = False  # save before the response to every write
    urls: dict[tuple[str, str], str] = field(default_factory=dict)  # (region, node) -> url
    engine: Engine = field(init=False)
    _runners: list[web.AppRunner] = field(default_factory=list)

    def __post_init__(self) -> None:
        keep = GroupSave(self.save, self.clock) if self.durable else None
        self.engine = Engine(
            self.regions, self.clock, guest_os=self.guest_os, seed=self.seed, on_write=keep
        )

    def url(self, region: str | None = None) -> str:
        """The URL of a region's first node."""
        name = region or next(iter(self.regions))
        return self.urls[name, self.regions[name].api_node]

    async def start(self) -> None:
        """Listen on a port per node of every region (0 in the world file: any free one)."""
        control = ControlApi(self.engine, self.save if self.state else None)
        for name, region in self.regions.items():
            for host in region.hosts.values():
                app = application(self.engine, name, host.name, control)
                runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
                await runner.setup()
                site = web.TCPSite(runner, self.host, host.port, ssl_context=self.tls)
                await site.start()
                self._runners.append(runner)
                port = runner.addresses[0][1]
                scheme = "https" if self.tls else "http"
                self.urls[name, host.name] = f"{scheme}://{self.host}:{port}"

    def save(self) -> None:
        if self.state is not None:
            save.save_file(self.regions, self.state)

    async def stop(self) -> None:
        for runner in self._runners:
            handlers = runner.server.connections if runner.server else []
            links = [h.transport for h in handlers if h.transport is not None]
            await runner.cleanup()
            for link in links:  # clients with open TLS connections must not delay the shutdown
                link.abort()
        self._runners.clear()
        await self.engine.close()
        await asyncio.sleep(0)
        self.save()


def load_regions(world_file: Path, state: Path | None, now: float) -> dict[str, SimRegion]:
    """The saved state if it exists, else the world file."""
    if state is not None and state.exists():
        return save.load_file(state)
    return world.load_world(world_file, now)


async def run_sim(
    world_file: Path,
    *,
    host: str = "127.0.0.1",
    state: Path | None = None,
    certificates: Path | None = None,
    plain: bool = False,
    seed: int = 0,
    guest_os: GuestOs | None = None,
    echo: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve a world file until SIGINT or SIGTERM."""
    clock = SystemClock()
    regions = load_regions(world_file, state, clock.now().timestamp())
    tls = None
    if not plain:
        made = certs.make(certificates or Path(".moxwell-sim"), clock.now())
        tls = made.context()
        echo(f"CA certificate {made.ca}, fingerprint {made.fingerprint()}")
    simulator = Simulator(regions, clock, host, tls, guest_os, seed, state)
    await simulator.start()
    for (region, node), url in simulator.urls.items():
        echo(f"{region} {node} {url}")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    try:
        await ended.wait()
    finally:
        await simulator.stop()
