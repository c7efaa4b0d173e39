"""
The lab: simulated Proxmox clusters with simulated guests, kept over restarts.

Out flow region configurations like anybody's: addresses, a token, a CA. What the simulator and the
guests know is saved every few seconds and at the end, so that a killed lab goes on where it was.
"""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import structlog

from moxwell.app.region_access import TOKEN, TOKEN_SECRET
from moxwell.app.state_dir import Home, free_port, is_free
from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth.ca import write_private
from moxwell.embedded.controlplanes.machine_control_planes import MachinePlanes
from moxwell.kube.transport import HttpTransport
from moxwell.lab.guests.guest_runner import Guests
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve
from moxwell.lab.proxmox import state_file as save
from moxwell.lab.proxmox.state import Guest, Host
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.values import Secret

SAVE_SECONDS = 3.0
log = structlog.get_logger(__name__)


class Lab:
    """A simulated estate in this process."""

    def __init__(self, home: Home, clock: Clock, world: Path | None = None) -> None:
        self._home, self._clock = home, clock
        self._world = world or Path(str(resources.files("moxwell.lab") / "lab.yaml"))
        self._planes = MachinePlanes(home.folder / "machine-planes", clock)
        self.guests = Guests(HttpTransport, clock, self._keep_guests, planes=self._planes)
        self._simulator: serve.Simulator | None = None

    @property
    def simulator(self) -> serve.Simulator:
        """The running simulator."""
        assert self._simulator is not None, "the lab has not been started"
        return self._simulator

    async def start(self) -> tuple[RegionConfig, ...]:
        """Open the simulated estate and say how to reach it."""
        home, now = self._home, self._clock.now()
        regions = serve.regions_of(self._world, home.simulator, now.timestamp())
        save.mend(regions)
        _keep_ports([host for region in regions.values() for host in region.hosts.values()])
        if home.guests.exists() and home.simulator.exists():
            self.guests.load(home.guests.read_bytes())
        made = certs.make(home.folder / "simulator", now)
        self._simulator = serve.Simulator(
            regions,
            self._clock,
            tls=made.context(),
            inside=self.guests,
            state=home.simulator,
            durable=True,
        )
        await self._simulator.start()
        ca = made.ca.read_text()
        return tuple(self._config(name, ca) for name in regions)

    def _config(self, region: str, ca: str) -> RegionConfig:
        urls = tuple(url for (name, _), url in self.simulator.urls.items() if name == region)
        auth = TokenAuth(TOKEN, Secret(TOKEN_SECRET))
        return RegionConfig(region=region, urls=urls, auth=auth, ca_pem=ca)

    async def run(self) -> None:
        """Keep the guests alive and the state saved; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._planes.run())
            group.create_task(self.guests.run())
            while True:
                await self._clock.sleep(SAVE_SECONDS)
                await self.save()

    async def save(self) -> None:
        """What changed without a request: tasks that ended, guests that booted or are gone."""
        with self._forgiving():
            self.simulator.save()
        there = [str(g.conf.get("smbios1", "")) for g in self._each_guest()]
        if self.guests.keep_only(there):
            self._keep_guests()

    def _each_guest(self) -> Iterator[Guest]:
        for region in self.simulator.regions.values():
            yield from region.guests.values()

    def _keep_guests(self) -> None:
        with self._forgiving():
            write_private(self._home.guests, self.guests.save())

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """A full disk ends nothing: what could not be saved is saved a few seconds later."""
        try:
            yield
        except OSError as error:
            log.error("lab not saved", error=error.strerror, folder=str(self._home.folder))

    async def stop(self) -> None:
        """Save and close."""
        self._keep_guests()
        await self.simulator.stop()

    def forget(self) -> None:
        """Begin anew at the next start."""
        self._home.simulator.unlink(missing_ok=True)
        self._home.guests.unlink(missing_ok=True)
        for name in ("simulator", "machine-planes"):
            shutil.rmtree(self._home.folder / name, ignore_errors=True)


def _keep_ports(hosts: list[Host]) -> None:
    """A host answers where it always did, so that Secrets with its address go on working."""
    taken = {host.port for host in hosts}
    for host in hosts:
        while not host.port or not is_free(host.port):
            found = free_port()
            if found not in taken:
                taken.add(found)
                host.port = found
