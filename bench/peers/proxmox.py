"""The simulated Proxmox of a run, in a thread, with a record of every request."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from envtest.process import Process
from moxwell.clock import Clock
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.message import SimRequest, SimResponse
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.state import SimRegion
from moxwell.testing.two_regions_world import QUICK
from peers.figures import Exchange, Phase, Run, cpu_seconds, peak_mib
from support.operator_process import Simulated

WORLD = QUICK[: QUICK.index("  - name: south")].replace("bandwidth: 400M", "bandwidth: 4G")


class RecordingEngine(Engine):
    """An engine that keeps every request with the status of its answer."""

    def __init__(self, regions: dict[str, SimRegion], clock: Clock, guest_os: GuestOs) -> None:
        super().__init__(regions, clock, guest_os=guest_os)
        self.exchanges: list[Exchange] = []

    async def handle(self, region: str, request: SimRequest) -> SimResponse:
        answer = await super().handle(region, request)
        self.exchanges.append(Exchange(request.method, request.uri, answer.status))
        return answer


class RecordedProxmox(Simulated):
    """A simulated Proxmox that counts requests."""

    def make_simulator(
        self, regions: dict[str, SimRegion], clock: Clock, tls: ssl.SSLContext, guests: GuestOs
    ) -> Simulator:
        made = super().make_simulator(regions, clock, tls, guests)
        made.engine = RecordingEngine(regions, clock, guests)
        return made

    @property
    def exchanges(self) -> list[Exchange]:
        assert self.simulator is not None
        assert isinstance(self.simulator.engine, RecordingEngine)
        return self.simulator.engine.exchanges

    def contents(self) -> frozenset[str]:
        """Guests and volumes of all regions."""
        found: set[str] = set()
        for name, region in self.regions.items():
            found |= {f"{name}: guest {vmid}" for vmid in list(region.guests)}
            for storage in list(region.storages.values()):
                for volumes in list(storage.volumes.values()):
                    found |= {f"{name}: {storage.name}:{volume}" for volume in list(volumes)}
        return frozenset(found)


class Meter:
    """Measures the phases of one program."""

    def __init__(
        self,
        run: Run,
        proxmox: RecordedProxmox,
        process: Process,
        *,
        before: frozenset[str] | None = None,
    ) -> None:
        self.run, self._proxmox, self._process = run, proxmox, process
        self._before = proxmox.contents() if before is None else before

    @contextmanager
    def phase(self, name: str, count: int) -> Iterator[None]:
        first, began = len(self._proxmox.exchanges), time.monotonic()
        cpu = cpu_seconds(self._process.pid)
        yield
        seconds = time.monotonic() - began
        exchanges = tuple(self._proxmox.exchanges[first:])
        spent = cpu_seconds(self._process.pid) - cpu
        self.run.phases.append(Phase(name, count, seconds, exchanges, spent))
        self.run.peak_mib = peak_mib(self._process.pid)

    def finish(self) -> None:
        """Record what the program left behind."""
        self.run.leftovers = tuple(sorted(self._proxmox.contents() - self._before))
