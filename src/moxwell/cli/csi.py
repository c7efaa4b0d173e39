"""``moxwell csi controller`` and ``moxwell csi node``: run the CSI driver."""

from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True)
NAME = "csi.moxwell.dev"
ADDRESS = typer.Option(
    "unix:///csi/csi.sock", "--csi-address", envvar="CSI_ENDPOINT", help="Unix socket to serve on."
)
METRICS = typer.Option(
    "", "--metrics-address", help="host:port for /metrics, /healthz and /readyz; empty: disabled."
)
STANDALONE = typer.Option(False, "--standalone", help="Run without a Kubernetes API.")

ENDPOINT = typer.Option(
    "",
    "--kubelet-registration-path",
    help="Path of the CSI socket on the node: the plugin registers itself with the kubelet; "
    "empty: node-driver-registrar does.",
)
REGISTRY = typer.Option(
    Path("/registration"),
    "--plugin-registration-path",
    help="Directory plugins_registry of the kubelet.",
)


@app.command()
def controller(
    config: Path = typer.Option(
        ...,
        "--cloud-config",
        "--config",
        help="File with the regions (clusters: [...]).",
    ),
    address: str = ADDRESS,
    name: str = typer.Option(
        NAME,
        "--driver-name",
        help="Name of the driver; csi.proxmox.sinextra.dev serves volumes of proxmox-csi-plugin.",
    ),
    kubeconfig: Path | None = typer.Option(
        None, help="Kubeconfig of the served cluster; default: the service account of the pod."
    ),
    namespace: str = typer.Option("kube-system", help="Namespace of the driver's journal."),
    standalone: bool = STANDALONE,
    journal: Path | None = typer.Option(None, help="File for the journal, with --standalone."),
    metrics: str = METRICS,
) -> None:
    """Serve the CSI Identity and Controller services for the CSI sidecars."""
    from moxwell.cli import service_process
    from moxwell.csi.main import ControllerOptions

    options = ControllerOptions(config, address, name, namespace, journal, metrics)
    service_process.replace_by(service_process.CSI_CONTROLLER, options, standalone, kubeconfig)


@app.command()
def node(
    name: str = typer.Option(..., "--node-id", envvar="NODE_NAME", help="Name of the Node."),
    address: str = ADDRESS,
    driver: str = typer.Option(NAME, "--driver-name", help="Name of the CSI driver."),
    kubeconfig: Path | None = typer.Option(
        None, help="Kubeconfig; default: the service account of the pod."
    ),
    standalone: bool = STANDALONE,
    region: str = typer.Option("", help="Region of this node, with --standalone."),
    zone: str = typer.Option("", help="Zone of this node, with --standalone."),
    metrics: str = METRICS,
    endpoint: str = ENDPOINT,
    registry: Path = REGISTRY,
    sysfs: Path = typer.Option(Path("/sys"), hidden=True),
) -> None:
    """Serve the CSI Identity and Node services on a node."""
    from moxwell.cli import service_process
    from moxwell.csi.main import NodeOptions
    from moxwell.csi.registration import KubeletRegistration

    if standalone and not (region and zone):
        raise typer.BadParameter("--standalone needs --region and --zone")
    registration = KubeletRegistration(endpoint, registry)
    options = NodeOptions(name, address, driver, metrics, region, zone, sysfs, registration)
    service_process.replace_by(service_process.CSI_NODE, options, standalone, kubeconfig)
