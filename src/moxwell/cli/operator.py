"""``moxwell operator``: the controllers on a genuine Kubernetes."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Annotated

import typer


def operator(
    config: Annotated[
        Path,
        typer.Option("--config", "--cloud-config", help="File with the regions (clusters: [...])."),
    ] = Path("/etc/proxmox/config.yaml"),
    controllers: Annotated[
        str, typer.Option("--controllers", help="infra, cloud, tenancy; with commas.")
    ] = "infra,tenancy",
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", help="Whose API; in a pod its own.")
    ] = "",
    context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Work only in these namespaces; with commas.")
    ] = "",
    own_namespace: Annotated[
        str, typer.Option("--leader-elect-resource-namespace", help="Where the Lease lives.")
    ] = "moxwell-system",
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Hold a Lease before working.")
    ] = True,
    lease: Annotated[
        str, typer.Option("--leader-elect-resource-name", help="Name of the Lease.")
    ] = "",
    shards: Annotated[
        bool, typer.Option("--shard-by-region", help="Replicas share the regions among them.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Passes at a time, per region.")
    ] = 4,
    health_port: Annotated[
        int, typer.Option("--health-port", help="/healthz, /readyz and /metrics.")
    ] = 8081,
    webhook_port: Annotated[
        int, typer.Option("--webhook-port", help="Admission and conversion; 0: none.")
    ] = 9443,
    bind: Annotated[str, typer.Option("--bind-address", help="Where to listen.")] = "0.0.0.0",
) -> None:
    """Run the controllers on a Kubernetes cluster. Cluster API and Kamaji are the genuine ones."""
    from moxwell.app import operator as running
    from moxwell.clock import SystemClock
    from moxwell.runtime import log
    from moxwell.runtime.settings import Listen, Settings

    chosen = tuple(c.strip() for c in controllers.split(",") if c.strip())
    alone = chosen == ("cloud",)
    settings = Settings(
        identity=f"{socket.gethostname()}_{os.getpid()}",
        namespace=own_namespace,
        namespaces=tuple(n.strip() for n in namespace.split(",") if n.strip()),
        concurrency=concurrency,
        elect=leader_elect,
        shards=shards,
        lease_name=lease or ("cloud-controller-manager-proxmox" if alone else "moxwell"),
        health=Listen(host=bind, port=health_port),
        webhooks=Listen(host=bind, port=webhook_port) if webhook_port and not alone else None,
    )
    wish = running.Wish(
        config=config,
        settings=settings,
        controllers=chosen,
        kubeconfig=kubeconfig,
        context=context,
    )
    log.configure(form="json")
    asyncio.run(running.run(wish, SystemClock(), os.environ))
