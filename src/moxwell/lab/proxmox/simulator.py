"""
Running a simulator: world or saved state in, listening sockets out.

``Simulator`` is what programs and tests start and stop; ``run_sim`` is the command, which saves its
state when it is told to end.
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
from moxwell.lab.proxmox import certs, world
from moxwell.lab.proxmox import state_file as save
from moxwell.lab.proxmox.control_api import Control
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import Inside
from moxwell.lab.proxmox.http import application
from moxwell.lab.proxmox.state import Region


@dataclass(slots=True)
class Simulator:
    """An engine with its sockets; urls are known once it is started."""

    regions: dict[str, Region]
    clock: Clock
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    inside: Inside | None = None
    seed: int = 0
    state: Path | None = None
    durable: bool = False  # saved before every answer to a write
    urls: dict[tuple[str, str], str] = field(default_factory=dict)  # (region, node) -> url
    engine: Engine = field(init=False)
    _runners: list[web.AppRunner] = field(default_factory=list)

    def __post_init__(self) -> None:
        keep = self.save if self.durable else lambda: None
        self.engine = Engine(
            self.regions, self.clock, inside=self.inside, seed=self.seed, on_write=keep
        )

    def url(self, region: str | None = None) -> str:
        """The URL of a region's first node."""
        name = region or next(iter(self.regions))
        return self.urls[name, self.regions[name].api_node]

    async def start(self) -> None:
        """Open a port per node of every region (0 in the world: any free one)."""
        control = Control(self.engine, self.save if self.state else None)
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
            for link in links:  # a client that keeps its TLS connection must not keep us
                link.abort()
        self._runners.clear()
        await self.engine.close()
        await asyncio.sleep(0)
        self.save()


def regions_of(world_file: Path, state: Path | None, now: float) -> dict[str, Region]:
    """The saved state if there is one, else the world."""
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
    inside: Inside | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve a world until SIGINT or SIGTERM."""
    clock = SystemClock()
    regions = regions_of(world_file, state, clock.now().timestamp())
    tls = None
    if not plain:
        made = certs.make(certificates or Path(".moxwell-sim"), clock.now())
        tls = made.context()
        say(f"CA certificate {made.ca}, fingerprint {made.fingerprint()}")
    simulator = Simulator(regions, clock, host, tls, inside, seed, state)
    await simulator.start()
    for (region, node), url in simulator.urls.items():
        say(f"{region} {node} {url}")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    try:
        await ended.wait()
    finally:
        await simulator.stop()
