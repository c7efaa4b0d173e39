"""
Runs the lab in a process of its own: ``python -m moxwell.app.lab_process FILE PARENT``.

The daemon writes :class:`LabConfig` to FILE, starts the process and reads the addresses of the
simulated hosts from ``lab-regions.json``. A lab that crashes is started again from its saved state,
with the same addresses; meanwhile its regions do not answer.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from moxwell.app.lab import Lab
from moxwell.app.region_access import TOKEN, TOKEN_SECRET
from moxwell.app.state_dir import StateDir
from moxwell.atomic_file import write_private
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.controlplanes.control_planes import binaries_version, python_environ
from moxwell.embedded.controlplanes.processes import heap, limits
from moxwell.embedded.controlplanes.supervision.probes import HttpProbe
from moxwell.embedded.controlplanes.supervision.process import Processes
from moxwell.embedded.controlplanes.supervision.supervisor import Program, Supervisor
from moxwell.errors import Missing, Unreachable
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.values import SecretValue

PROGRAM, MODULE = "lab", "moxwell.app.lab_process"
START_SECONDS, POLL_SECONDS = 120.0, 0.05
ANSWERED = (200, 401)  # the version of Proxmox needs a ticket
log = structlog.get_logger(__name__)


class LabConfig(msgspec.Struct, frozen=True):
    """What one lab process serves."""

    name: str  # of the instance
    world: str = ""
    control_plane_binaries: str = ""


class LabRegions(msgspec.Struct, frozen=True):
    """The addresses of the simulated hosts by region, and their CA."""

    urls: dict[str, list[str]]
    ca: str

    def configs(self) -> tuple[RegionConfig, ...]:
        """How the daemon reaches them."""
        auth = TokenAuth(TOKEN, SecretValue(TOKEN_SECRET))
        return tuple(
            RegionConfig(region=name, urls=tuple(urls), auth=auth, ca_pem=self.ca)
            for name, urls in self.urls.items()
        )


class LabUnavailable(Unreachable):
    """The process of the lab does not answer."""

    reason = "LabUnavailable"


class LabProcess:
    """The lab as seen by the daemon; ``start`` must be called in the main thread."""

    def __init__(self, state: StateDir, clock: Clock, config: LabConfig) -> None:
        self._state, self._clock, self._config = state, clock, config
        self._probes: dict[str, HttpProbe] = {}
        self._supervisor = Supervisor(Processes(clock, python_environ(os.environ)), clock)

    @property
    def _key(self) -> Path:
        return self._state.folder / PROGRAM

    async def start(self) -> tuple[RegionConfig, ...]:
        """Start the process and wait until its hosts answer; returns how to reach them."""
        self._state.lab_regions.unlink(missing_ok=True)
        file = self._state.folder / "lab.json"
        write_private(file, msgspec.json.encode(self._config))
        program = Program(
            name=PROGRAM,
            argv=(sys.executable, "-P", "-m", MODULE, str(file), str(os.getpid())),
            folder=self._state.folder,
            probe=self.probe,
            files=(file,),
        )
        await self._supervisor.keep(program)
        deadline = self._clock.monotonic() + START_SECONDS
        while not self._supervisor.state(self._key).healthy:
            state = self._supervisor.state(self._key)
            if state.restarts or self._clock.monotonic() > deadline:
                await self.stop()
                raise LabUnavailable(f"the lab did not start: {state.message}")
            await self._clock.sleep(POLL_SECONDS)
        return self.regions().configs()

    def regions(self) -> LabRegions:
        """The addresses that the process has published."""
        return msgspec.json.decode(self._state.lab_regions.read_bytes(), type=LabRegions)

    async def probe(self) -> str:
        """An empty text if the first host answers, else why not."""
        if not self._state.lab_regions.exists():
            return "the lab is starting"
        url = next(iter(self.regions().urls.values()))[0]
        if url not in self._probes:
            host, _, port = url.removeprefix("https://").partition(":")
            ca, path = self._state.folder / "simulator" / "ca.pem", "/api2/json/version"
            self._probes = {url: HttpProbe(PROGRAM, host, int(port), path, ca, ANSWERED)}
        return await self._probes[url]()

    async def stop(self) -> None:
        """Stop the process, which saves its state."""
        await self._supervisor.stop(self._key)


async def serve(state: StateDir, config: LabConfig, clock: Clock, stopping: asyncio.Event) -> None:
    """Run a lab until ``stopping`` is set."""
    version = ""
    with suppress(Missing):  # the daemon refuses to start and says why
        version = await binaries_version(config.control_plane_binaries, os.environ)
    lab = Lab(state, clock, Path(config.world) if config.world else None, version=version)
    regions = await lab.start()
    await lab.save()  # the ports of the hosts
    found = LabRegions({r.region: list(r.urls) for r in regions}, regions[0].ca_pem)
    write_private(state.lab_regions, msgspec.json.encode(found))
    heap.settle()
    running = asyncio.create_task(lab.run())
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        running.cancel()
        stopped.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lab.stop()


async def _main(state: StateDir, config: LabConfig) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await serve(state, config, SystemClock(), stopping)


def main(argv: list[str]) -> None:
    """Run until SIGTERM."""
    limits.end_with_parent(int(argv[2]))
    from moxwell.runtime import log as logging

    logging.configure(form="console")
    file = Path(argv[1])
    config = msgspec.json.decode(file.read_bytes(), type=LabConfig)
    state = StateDir(config.name, {"XDG_STATE_HOME": str(file.parent.parent.parent)})
    asyncio.run(_main(state, config))


if __name__ == "__main__":
    main(sys.argv)
