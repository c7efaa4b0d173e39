"""
Lets commands call a Kubernetes API and Proxmox themselves, without a daemon.

``--kubeconfig`` and ``--config`` select both. The inventory of each region is read once; nothing
runs in the background.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.clock import Clock

if TYPE_CHECKING:
    from moxwell.kube.transport import KubeTransport
    from moxwell.pve.regions import Regions

Kubeconfig = Annotated[
    str,
    typer.Option("--kubeconfig", help="Operator mode: kubeconfig of the API, instead of a daemon."),
]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="Operator mode: file with the regions (clusters: [...])."),
]


@dataclass(frozen=True, slots=True)
class DirectFlags:
    """The flags that select an API and Proxmox regions."""

    kubeconfig: str = ""
    context: str = ""
    config: Path | None = None

    @property
    def direct(self) -> bool:
        """Whether to work without a daemon; BadParameter if only half is given."""
        if (self.kubeconfig or self.context) and self.config is None:
            raise typer.BadParameter("also give the Proxmox regions: --config FILE")
        return self.config is not None


@dataclass(frozen=True, slots=True)
class DirectConnection:
    """Open connections to the API and to the regions."""

    handler: "KubeTransport"
    regions: "Regions"
    clock: Clock


@asynccontextmanager
async def connect(flags: DirectFlags) -> AsyncIterator[DirectConnection]:
    """Open both connections while the block runs."""
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import KubeTransport
    from moxwell.pve import config
    from moxwell.pve.regions import Regions

    clock = SystemClock()
    assert flags.config is not None
    configs = config.load(flags.config)
    access = kubeconfig.find(clock, os.environ, flags.kubeconfig, flags.context)
    regions = Regions(configs, clock)
    try:
        async with KubeTransport(access) as handler:
            for region in regions.values():
                await region.inventory.refresh()
            yield DirectConnection(handler, regions, clock)
    finally:
        await regions.close()
