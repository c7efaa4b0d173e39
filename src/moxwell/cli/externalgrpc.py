"""``moxwell externalgrpc``: the provider for Cluster Autoscaler."""

import asyncio
from pathlib import Path

import typer

from moxwell.errors import Invalid


def externalgrpc(
    cluster: str = typer.Option(
        ..., help="Cluster whose MachineDeployments are scaled: NAMESPACE/NAME."
    ),
    certificate: Path = typer.Option(..., "--cert", help="Certificate of this server (PEM)."),
    key: Path = typer.Option(..., "--key", help="Key of the certificate (PEM)."),
    client_ca: Path = typer.Option(
        ..., "--ca-cert", help="Authority that signed the certificate of Cluster Autoscaler (PEM)."
    ),
    address: str = typer.Option("0.0.0.0:8086", help="host:port to serve on."),
    kubeconfig: Path | None = typer.Option(
        None, help="Kubeconfig of the management cluster; default: the service account of the pod."
    ),
) -> None:
    """Serve Cluster Autoscaler's provider ``externalgrpc`` for the machines of a cluster."""
    from moxwell.cli.kube_connection import connected
    from moxwell.cli.service_process import serve
    from moxwell.externalgrpc.server import ServerFiles, serving
    from moxwell.externalgrpc.service import CloudProviderService

    namespace, _, name = cluster.partition("/")
    if not name:
        raise Invalid(f"--cluster is given as NAMESPACE/NAME, not {cluster!r}")

    async def run() -> None:
        async with connected(kubeconfig) as kube:
            service = CloudProviderService(kube, namespace, name)
            async with serving(address, ServerFiles(certificate, key, client_ca), service):
                await asyncio.Event().wait()

    serve(run())
