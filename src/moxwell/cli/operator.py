"""``moxwell operator``: the controllers on a genuine Kubernetes."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from moxwell.cli.go_flags import duration


def operator(
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "--cloud-config",
            help="File with the regions (clusters: [...]). Without cloud controllers there may be "
            "none in it, and the default file may be missing.",
        ),
    ] = Path("/etc/proxmox/config.yaml"),
    controllers: Annotated[
        str,
        typer.Option(
            "--controllers",
            help="infra, tenancy, cloud (or cloud-node, cloud-node-lifecycle, service); "
            "with commas. Default: infra,tenancy, or cloud with --cloud-provider.",
        ),
    ] = "",
    kubeconfig: Annotated[
        str, typer.Option("--kubeconfig", help="Whose API; in a pod its own.")
    ] = "",
    context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Work only in these namespaces; with commas.")
    ] = "",
    own_namespace: Annotated[
        str, typer.Option("--leader-elect-resource-namespace", help="Where the Lease lives.")
    ] = "",
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
    # As cloud controller managers have them
    provider: Annotated[
        str, typer.Option("--cloud-provider", help="proxmox; runs the cloud controllers.")
    ] = "",
    secure_port: Annotated[
        int, typer.Option("--secure-port", help="Health and metrics over HTTPS; 0: not so.")
    ] = 0,
    refresh: Annotated[
        str,
        typer.Option("--node-status-update-frequency", help="Addresses are looked at so often."),
    ] = "5m",
    monitor: Annotated[
        str, typer.Option("--node-monitor-period", help="Nodes not Ready are looked at so often.")
    ] = "5s",
    syncs: Annotated[
        int, typer.Option("--concurrent-node-syncs", min=0, help="Nodes at a time; 0: as others.")
    ] = 0,
    lease_duration: Annotated[
        str, typer.Option("--leader-elect-lease-duration", help="A Lease runs out after this.")
    ] = "15s",
    renew_deadline: Annotated[
        str,
        typer.Option("--leader-elect-renew-deadline", help="Who cannot renew stops after this."),
    ] = "10s",
    retry_period: Annotated[
        str, typer.Option("--leader-elect-retry-period", help="Between two tries.")
    ] = "2s",
    verbosity: Annotated[int, typer.Option("--verbosity", "-v", help="4 and more: debug.")] = 2,
    _accounts: Annotated[
        bool,
        typer.Option(
            "--use-service-account-credentials/--no-use-service-account-credentials", hidden=True
        ),
    ] = False,
    _lock: Annotated[str, typer.Option("--leader-elect-resource-lock", hidden=True)] = "leases",
    _paths: Annotated[str, typer.Option("--authorization-always-allow-paths", hidden=True)] = "",
    _cidrs: Annotated[
        bool, typer.Option("--allocate-node-cidrs/--no-allocate-node-cidrs", hidden=True)
    ] = False,
    _routes: Annotated[
        bool, typer.Option("--configure-cloud-routes/--no-configure-cloud-routes", hidden=True)
    ] = False,
    _profiling: Annotated[bool, typer.Option("--profiling/--no-profiling", hidden=True)] = False,
    _name: Annotated[str, typer.Option("--cluster-name", hidden=True)] = "",
) -> None:
    """Run the controllers on a Kubernetes cluster. Cluster API and Kamaji are the genuine ones."""
    from moxwell.app import controller_selection
    from moxwell.app import operator as running
    from moxwell.clock import SystemClock
    from moxwell.controllers.cloud.setup import Pace
    from moxwell.runtime import log
    from moxwell.runtime.settings import LeaseTimes, Listen, Settings

    if provider not in {"", "proxmox"}:
        raise typer.BadParameter(f"{provider!r} is another's cloud; this one is proxmox")
    text = controllers or ("cloud" if provider else "infra,tenancy")
    names = tuple(c.strip() for c in text.split(",") if c.strip())
    alone = controller_selection.choose(names).only_cloud
    times = LeaseTimes(
        lease_duration=int(duration(lease_duration)),
        renew_deadline=duration(renew_deadline),
        retry_period=duration(retry_period),
    )
    times.check()
    settings = Settings(
        identity=f"{socket.gethostname()}_{os.getpid()}",
        namespace=own_namespace or ("kube-system" if alone else "moxwell-system"),
        namespaces=tuple(n.strip() for n in namespace.split(",") if n.strip()),
        concurrency=concurrency,
        elect=leader_elect,
        shards=shards,
        lease_name=lease or ("cloud-controller-manager-proxmox" if alone else "moxwell"),
        lease_times=times,
        health=Listen(host=bind, port=secure_port or health_port, tls=bool(secure_port)),
        webhooks=Listen(host=bind, port=webhook_port) if webhook_port and not alone else None,
    )
    wish = running.Wish(
        config=config,
        settings=settings,
        controllers=names,
        kubeconfig=kubeconfig,
        context=context,
        pace=Pace(
            refresh_seconds=duration(refresh),
            monitor_seconds=duration(monitor),
            at_a_time=syncs or None,
        ),
    )
    log.configure(form="json", level="debug" if verbosity >= 4 else "info")
    asyncio.run(running.run(wish, SystemClock(), os.environ))
