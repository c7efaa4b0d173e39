"""
The process of one embedded control plane: ``python -m …processes.child FOLDER PARENT``.

Reads ``process.json`` of the folder, serves until SIGTERM, and is killed when its parent ends. It
has no Proxmox credentials: the controllers that use Proxmox run in the daemon.
"""

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
import structlog

from moxwell import task_group
from moxwell.atomic_file import write_private
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controllermanager.storage.setup import add_binding
from moxwell.embedded.controlplanes import simulated_addons
from moxwell.embedded.controlplanes.processes import heap, limits
from moxwell.embedded.controlplanes.processes.limits import ProcessLimits
from moxwell.embedded.controlplanes.tenant_api import TenantApi
from moxwell.embedded.ports import https_url
from moxwell.kube.client import Kube

CONFIG = "process.json"
log = structlog.get_logger(__name__)


class ChildConfig(msgspec.Struct, frozen=True):
    """What one process serves."""

    spec: HostedControlPlaneSpec
    host: str
    port: int
    limits: ProcessLimits = ProcessLimits()
    kubelets: str = ""  # the file that says how to reach simulated kubelets; empty: none

    def write(self, folder: Path) -> Path:
        """Store it for the process; an unchanged file is not written again."""
        file, data = folder / CONFIG, msgspec.json.encode(self)
        if not file.exists() or file.read_bytes() != data:
            write_private(file, data)
        return file


def read(folder: Path) -> ChildConfig:
    """The stored configuration."""
    return msgspec.json.decode((folder / CONFIG).read_bytes(), type=ChildConfig)


async def serve(folder: Path, config: ChildConfig, clock: Clock, stopping: asyncio.Event) -> None:
    """Serve until ``stopping`` is set; raises what ends the controllers."""
    api = await TenantApi.start(
        folder,
        config.spec,
        clock,
        host=config.host,
        port=config.port,
        extend=lambda runtime, _: add_binding(runtime),
        kubelets=Path(config.kubelets) if config.kubelets else None,
    )
    log.info("control plane started", tenant=str(config.spec.key), port=config.port)
    heap.settle()
    controllers = asyncio.create_task(_run_controllers(api, config, clock))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((controllers, stopped), return_when=asyncio.FIRST_COMPLETED)
        if controllers.done():
            controllers.result()
    finally:
        await task_group.cancel(controllers)
        stopped.cancel()
        await api.stop()


async def _run_controllers(api: TenantApi, config: ChildConfig, clock: Clock) -> None:
    """Run the controllers, and add what a tenant with simulated nodes has besides."""
    async with asyncio.TaskGroup() as group:
        group.create_task(api.manager.run())
        if config.kubelets:
            url = https_url(config.host, config.port)
            group.create_task(
                simulated_addons.apply_with_first_node(Kube(api.store), clock, config.spec, url)
            )


async def _main(folder: Path, config: ChildConfig) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await serve(folder, config, SystemClock(), stopping)


def main(argv: list[str]) -> None:
    """Run until SIGTERM."""
    folder, parent = Path(argv[1]), int(argv[2])
    limits.end_with_parent(parent)
    config = read(folder)
    limits.apply(config.limits)
    from moxwell.runtime import log as logging

    logging.configure(form="console")
    asyncio.run(_main(folder, config))


if __name__ == "__main__":
    main(sys.argv)
