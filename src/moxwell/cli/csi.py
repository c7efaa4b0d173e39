"""``moxwell csi controller`` and ``moxwell csi node``: the driver's two programs."""

from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True)
NAME = "csi.moxwell.dev"


@app.command()
def controller(
    config: Path = typer.Option(..., "--cloud-config", "--config", help="Regions (YAML)."),
    address: str = typer.Option("unix:///csi/csi.sock", "--csi-address", help="Socket."),
    name: str = typer.Option(
        NAME, "--driver-name", help="csi.proxmox.sinextra.dev serves existing volumes."
    ),
    kubeconfig: Path | None = typer.Option(
        None, help="Of the cluster that is served: a tenant's, from outside."
    ),
    namespace: str = typer.Option("kube-system", help="Where the driver keeps its book."),
    standalone: bool = typer.Option(
        False, "--standalone", help="Without Kubernetes; the book is a file."
    ),
    book: Path | None = typer.Option(None, help="That file."),
) -> None:
    """Serve the Identity and Controller services."""
    import asyncio

    from moxwell.csi.running import Files, run_controller

    files = Files(config.read_text(), address, name, namespace, book)

    async def run() -> None:
        if standalone:
            await run_controller(files, None)
            return
        async with _kube(kubeconfig) as kube:
            await run_controller(files, kube)

    asyncio.run(run())


@app.command()
def node(
    name: str = typer.Option(..., "--node-id", envvar="NODE_NAME", help="Name of the Node."),
    address: str = typer.Option("unix:///csi/csi.sock", "--csi-address", help="Socket."),
    driver: str = typer.Option(NAME, "--driver-name", help="As the controller's."),
    kubeconfig: Path | None = typer.Option(None, help="Default: that of the pod."),
) -> None:
    """Serve the Identity and Node services."""
    import asyncio

    from moxwell.csi.running import run_node

    async def run() -> None:
        async with _kube(kubeconfig) as kube:
            await run_node(address, name, driver, kube)

    asyncio.run(run())


def _kube(file: Path | None):  # type: ignore[no-untyped-def]
    from moxwell.cli.volume import connected

    return connected(file)
