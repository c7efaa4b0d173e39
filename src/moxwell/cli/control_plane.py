"""``moxwell control-plane``: manages the programs and the etcd of tenants' control planes."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, show
from moxwell.clock import SystemClock

app = typer.Typer(no_args_is_help=True)
Konnectivity = Annotated[
    bool,
    typer.Option(
        "--konnectivity", help="Also konnectivity-server, for `control_planes.konnectivity`."
    ),
]
ImageRegistry = Annotated[
    str,
    typer.Option(help="Registry with the image of konnectivity-server, not registry.k8s.io."),
]


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
    konnectivity: Konnectivity = False,
    image_registry: ImageRegistry = "",
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
        image_registry or download.IMAGE_REGISTRY,
        konnectivity,
    )
    asyncio.run(download.install(request, typer.echo))
    given = f"={target}" if folder else ""
    typer.echo(f"Next: moxwell up --control-plane-binaries{given}")


@app.command()
def snapshots(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """List the snapshots of the etcd of tenants; one is made every six hours."""
    from moxwell.embedded.controlplanes.binaries import etcd_restore

    folder = connect.state(name).control_plane_binaries / "etcd"
    rows = [
        {
            "time": made.made.isoformat(timespec="seconds"),
            "revision": made.revision,
            "file": str(made.path),
        }
        for made in etcd_restore.snapshots(folder)
    ]
    show(rows, ("time", "revision", "file"), output)


@app.command()
def restore(
    snapshot: Annotated[
        Path | None, typer.Argument(help="A snapshot; default: the newest.", show_default=False)
    ] = None,
    name: Name = DEFAULT_NAME,
    binaries: Annotated[
        Path | None,
        typer.Option(help="Folder with etcdutl; default: where `up` searches."),
    ] = None,
) -> None:
    """Restore the etcd of all tenants from a snapshot, while the instance is down."""
    from moxwell.embedded.controlplanes.binaries import etcd_restore
    from moxwell.embedded.controlplanes.binaries.installed import folders
    from moxwell.errors import Missing
    from moxwell.runtime.binaries import ProgramMissing, Programs

    folder = connect.state(name).control_plane_binaries / "etcd"
    searched = (binaries,) if binaries else folders("", os.environ)
    etcdutl = Programs(searched).find("etcdutl")
    if etcdutl is None:
        raise ProgramMissing("etcdutl", searched)
    known = etcd_restore.snapshots(folder)
    chosen = snapshot or (known[-1].path if known else None)
    if chosen is None:
        raise Missing(f"{folder} has no snapshots: name a file")
    kept = etcd_restore.restore(folder, chosen, etcdutl, SystemClock().now())
    typer.echo(f"restored {chosen}; the data before is in {kept}")
    typer.echo("Next: moxwell up")
