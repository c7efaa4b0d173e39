"""``moxwell cni``: the network of pods on a node."""

from pathlib import Path

import typer


def cni(
    name: str = typer.Option(..., "--node-id", envvar="NODE_NAME", help="Name of the Node."),
    cluster: str = typer.Option(
        ..., "--cluster-cidr", help="Pod addresses of the cluster, which are not translated."
    ),
    folder: Path = typer.Option(
        Path("/etc/cni/net.d"), "--cni-conf-dir", help="Folder of CNI configurations."
    ),
    kubeconfig: Path | None = typer.Option(
        None, help="Kubeconfig; default: the service account of the pod."
    ),
) -> None:
    """Connect the pods of a node with those of other nodes by routes; nodes share one network."""
    from moxwell.cli import service_process
    from moxwell.cni.main import CniOptions

    options = CniOptions(name, cluster, folder)
    service_process.replace_by(service_process.CNI, options, kubeconfig)
