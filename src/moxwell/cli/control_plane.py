"""``moxwell control-plane``: the programs that control planes of tenants are run from."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def root() -> None:
    """Programs of control planes."""


@app.command()
def install(
    version: Annotated[str, typer.Argument(help="Kubernetes version: v1.36.3.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where they are installed; default: where `up` searches first."),
    ] = None,
    kubernetes_mirror: Annotated[
        str, typer.Option(help="Server with Kubernetes releases, instead of https://dl.k8s.io.")
    ] = "",
    etcd_mirror: Annotated[
        str, typer.Option(help="Server with etcd releases, instead of its GitHub page.")
    ] = "",
    etcd_version: Annotated[str, typer.Option(help="Version of etcd.")] = "",
) -> None:
    """Download kube-apiserver, kube-controller-manager, kube-scheduler and etcd, verified."""
    from moxwell.embedded.controlplanes.binaries import download
    from moxwell.embedded.controlplanes.binaries.installed import folders

    target = folder or folders("", os.environ)[0]
    request = download.DownloadRequest(
        version,
        target,
        kubernetes_mirror or download.KUBERNETES_MIRROR,
        etcd_mirror or download.ETCD_MIRROR,
        etcd_version or download.ETCD_VERSION,
    )
    asyncio.run(download.install(request, typer.echo))
    given = f"={target}" if folder else ""
    typer.echo(f"Next: moxwell up --control-plane-binaries{given}")
