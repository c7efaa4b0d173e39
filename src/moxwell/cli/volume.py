"""``moxwell volume``: what volumes there are, and moving one to another host."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from moxwell.csi.driver import Driver
    from moxwell.kube.client import Kube

app = typer.Typer(no_args_is_help=True)
CONFIG = typer.Option(..., "--config", help="Regions (YAML).")
KUBECONFIG = typer.Option(None, help="Default: the usual places.")
DRIVER = typer.Option("csi.moxwell.dev", "--driver-name", help="Whose volumes.")


@asynccontextmanager
async def connected(file: Path | None) -> "AsyncIterator[Kube]":
    """A client by a kubeconfig, the pod's account, or the usual places."""
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import HttpTransport

    clock = SystemClock()
    if file is not None:
        access = kubeconfig.load([file]).access(clock, os.environ)
    else:
        access = kubeconfig.find(clock, os.environ)
    async with HttpTransport(access) as transport:
        yield Kube(transport)


@asynccontextmanager
async def _driver(text: str, name: str, kube: "Kube") -> "AsyncIterator[Driver]":
    import asyncio

    from moxwell.clock import SystemClock
    from moxwell.csi import driver as drivers
    from moxwell.csi.book import KubeBook
    from moxwell.csi.running import settings_of
    from moxwell.pve.config import parse
    from moxwell.pve.regions import Regions

    clock = SystemClock()
    regions = Regions(parse(text), clock)
    made = drivers.assemble(
        regions,
        clock,
        settings=settings_of(text, name),
        kube=kube,
        book=KubeBook(kube, "kube-system", name),
    )
    runner = asyncio.create_task(regions.run())
    try:
        yield made
    finally:
        runner.cancel()
        await asyncio.wait([runner])


@app.command("list")
def list_(
    config: Path = CONFIG, kubeconfig: Path | None = KUBECONFIG, driver: str = DRIVER
) -> None:
    """Every disk of the driver, who has it, and whether Kubernetes knows it."""
    import asyncio

    from moxwell.csi import listing

    text = config.read_text()

    async def run() -> None:
        async with connected(kubeconfig) as kube, _driver(text, driver, kube) as made:
            for disk, node in await listing.list_volumes(made):
                known = await made.claims.find_volume(str(disk.id), "")
                ref = ((known or {}).get("spec") or {}).get("claimRef") or {}
                claim = f"{ref.get('namespace')}/{ref.get('name')}" if ref else "no claim"
                typer.echo(f"{disk.id}  {disk.size >> 20} MiB  {node or '-'}  {claim}")

    asyncio.run(run())


@app.command()
def migrate(
    claim: str = typer.Argument(help="The PersistentVolumeClaim."),
    host: str = typer.Argument(help="The Proxmox host to move its disk to."),
    namespace: str = typer.Option("default", "--namespace", help="Of the claim."),
    config: Path = CONFIG,
    kubeconfig: Path | None = KUBECONFIG,
    driver: str = DRIVER,
) -> None:
    """Move a local volume to another host; run it again if it was interrupted."""
    import asyncio

    from moxwell.csi.migrate import Migration

    text = config.read_text()

    async def run() -> str:
        async with connected(kubeconfig) as kube, _driver(text, driver, kube) as made:
            return await Migration(made, kube, typer.echo).run(namespace, claim, host)

    typer.echo(f"{namespace}/{claim} is now {asyncio.run(run())}")
