"""
Runs the lab: simulated Proxmox clusters and guests, saved so that they survive a restart.

The state of the simulator and the guests is saved every few seconds and at the end. Returns region
configurations as a configuration file would.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path

import structlog

from moxwell.app.lab_identity import LabIdentities
from moxwell.app.region_access import TOKEN, TOKEN_SECRET
from moxwell.app.state_dir import StateDir
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.controlplanes.machine_control_planes import MachineControlPlanes
from moxwell.embedded.ports import free_port, is_free
from moxwell.kube.transport import KubeTransport
from moxwell.lab import templates
from moxwell.lab.group_save import GroupSave
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.guests.kubelet_http import KubeletServer
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve
from moxwell.lab.proxmox import state_file as save
from moxwell.lab.proxmox.state import SimGuest, SimHost
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.values import SecretValue

SAVE_SECONDS = 3.0
MOST_SHARE = 0.01  # of the time, for saving what changes without a request
GUEST_CONNECTIONS = 16  # of all guests of a cluster
log = structlog.get_logger(__name__)


class Lab:
    """Simulated Proxmox clusters in this process."""

    def __init__(
        self, state: StateDir, clock: Clock, world: Path | None = None, *, version: str = ""
    ) -> None:
        """``version`` is a Kubernetes version that every region gets a template for."""
        self._state, self._clock, self._version = state, clock, version
        self._world = world or Path(str(resources.files("moxwell.lab") / "lab.yaml"))
        self._control_planes = MachineControlPlanes(state.machine_control_planes, clock)
        self.guests = GuestRunner(
            partial(KubeTransport, connections=GUEST_CONNECTIONS),
            clock,
            GroupSave(self._save_guests, clock),
            control_planes=self._control_planes,
            proxy=LabIdentities(state.control_planes, clock).find,
        )
        self._kubelets = KubeletServer(self.guests.kubelets, clock)
        self._simulator: serve.Simulator | None = None

    @property
    def simulator(self) -> serve.Simulator:
        """The running simulator."""
        assert self._simulator is not None, "the lab has not been started"
        return self._simulator

    async def start(self) -> tuple[RegionConfig, ...]:
        """Start the simulator; returns how to reach its regions."""
        state, now = self._state, self._clock.now()
        regions = serve.load_regions(self._world, state.simulator, now.timestamp())
        save.clean_interrupted(regions)
        if self._version:
            for region in regions.values():
                templates.add_template(region, self._version)
        _assign_ports([host for region in regions.values() for host in region.hosts.values()])
        if state.guests.exists() and state.simulator.exists():
            self.guests.load(state.guests.read_bytes())
        certificates = certs.make(state.folder / "simulator", now)
        self._simulator = serve.Simulator(
            regions,
            self._clock,
            tls=certificates.context(),
            guest_os=self.guests,
            state=state.simulator,
            durable=True,
        )
        await self._simulator.start()
        await self._kubelets.start(state.lab_kubelets)
        ca = certificates.ca.read_text()
        return tuple(self._config(name, ca) for name in regions)

    def _config(self, region: str, ca: str) -> RegionConfig:
        urls = tuple(url for (name, _), url in self.simulator.urls.items() if name == region)
        auth = TokenAuth(TOKEN, SecretValue(TOKEN_SECRET))
        return RegionConfig(region=region, urls=urls, auth=auth, ca_pem=ca)

    async def run(self) -> None:
        """Run the guests and save the state until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._control_planes.run())
            group.create_task(self.guests.run())
            pause = SAVE_SECONDS
            while True:
                await self._clock.sleep(pause)
                began = self._clock.monotonic()
                await self.save()
                took = self._clock.monotonic() - began
                pause = max(SAVE_SECONDS, took / MOST_SHARE)

    async def save(self) -> None:
        """Save what changes without a request: finished tasks, booted and deleted guests."""
        with self._logged_errors():
            self.simulator.save()
        existing = [str(g.conf.get("smbios1", "")) for g in self._sim_guests()]
        if self.guests.keep_only(existing):
            self._save_guests()

    def _sim_guests(self) -> Iterator[SimGuest]:
        for region in self.simulator.regions.values():
            yield from region.guests.values()

    def _save_guests(self) -> None:
        with self._logged_errors():
            write_private(self._state.guests, self.guests.save())

    @contextmanager
    def _logged_errors(self) -> Iterator[None]:
        """A full disk stops nothing: the next save tries again."""
        try:
            yield
        except OSError as error:
            log.error("lab not saved", error=error.strerror, folder=str(self._state.folder))

    async def stop(self) -> None:
        """Save the guests and stop the simulator, which saves itself."""
        self._save_guests()
        await self._kubelets.stop()
        await self.simulator.stop()


def _assign_ports(hosts: list[SimHost]) -> None:
    """Keep the ports of hosts, because Secrets hold their addresses; replace taken ones."""
    used = {host.port for host in hosts}
    for host in hosts:
        while not host.port or not is_free(host.port):
            found = free_port()
            if found not in used:
                used.add(found)
                host.port = found
