"""
Commands without a daemon: straight to a Kubernetes API and to Proxmox, as the operator goes.

In flow ``--kubeconfig`` and ``--config``; out flow a client and the regions, each region listed
once. Nothing runs in the background; whoever needs more starts it.
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
    from moxwell.kube.transport import HttpTransport
    from moxwell.pve.regions import Regions

Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", help="Operator mode: whose API, instead of a daemon's.")
]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="Operator mode: file with the regions (clusters: [...])."),
]


@dataclass(frozen=True, slots=True)
class Where:
    """Which API and which Proxmox a command is about."""

    kubeconfig: str = ""
    context: str = ""
    config: Path | None = None

    @property
    def direct(self) -> bool:
        """Asked past the daemon."""
        if (self.kubeconfig or self.context) and self.config is None:
            raise typer.BadParameter("say where Proxmox is, too: --config FILE with the regions")
        return self.config is not None


@dataclass(frozen=True, slots=True)
class Direct:
    """Both sides, open."""

    handler: "HttpTransport"
    regions: "Regions"
    clock: Clock


@asynccontextmanager
async def reach(where: Where) -> AsyncIterator[Direct]:
    """Both sides, for as long as the command takes."""
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import HttpTransport
    from moxwell.pve import config
    from moxwell.pve.regions import Regions

    clock = SystemClock()
    assert where.config is not None
    configs = config.load(where.config)
    access = kubeconfig.find(clock, os.environ, where.kubeconfig, where.context)
    regions = Regions(configs, clock)
    try:
        async with HttpTransport(access) as handler:
            for region in regions.values():
                await region.inventory.refresh()
            yield Direct(handler, regions, clock)
    finally:
        await regions.close()
