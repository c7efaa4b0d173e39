"""``moxwell cluster kubeconfig`` and ``credential``: how kubectl reaches a tenant cluster."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from moxwell.atomic_file import write_private
from moxwell.cli import cluster as clusters
from moxwell.cli import connect, demo, exec_credential, kubeconfig_file, waiting
from moxwell.cli.cluster import DEFAULT_NAMESPACE, SECRETS, ClusterName
from moxwell.cli.connect import DEFAULT_NAME, Name, Namespace
from moxwell.kube.errors import NotFound


def kubeconfig(
    cluster: ClusterName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Write it to a file (0600) instead of printing it."),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add it to ~/.kube/config (or KUBECONFIG).")
    ] = False,
    plugin: Annotated[
        bool | None,
        typer.Option(
            "--exec/--no-exec",
            help="Let kubectl run moxwell for a client certificate, instead of writing one, which "
            "expires after days. Default with --merge.",
        ),
    ] = None,
) -> None:
    """Print the kubeconfig of a cluster."""
    if merge and file is not None:
        raise typer.BadParameter("--merge and --file exclude each other")
    text = waiting.run(_read(cluster, namespace, name))
    if merge if plugin is None else plugin:
        text = exec_credential.with_exec(text, command(cluster, namespace, name), os.environ)
    if file is not None:
        write_private(file, text)
    elif merge:
        path = kubeconfig_file.default_path(os.environ)
        context = kubeconfig_file.context_name(name, cluster, namespace)
        kubeconfig_file.add(path, text, context)
        typer.echo(f"{path}: {context} is the current context")
    else:
        typer.echo(text.decode(), nl=False)


def credential(
    cluster: ClusterName,
    namespace: Namespace = DEFAULT_NAMESPACE,
    name: Name = DEFAULT_NAME,
) -> None:
    """Print the client certificate of a cluster for kubectl, which runs this as an exec plugin."""
    text = waiting.run(_read(cluster, namespace, name))
    typer.echo(json.dumps(exec_credential.exec_credential(text.decode())))


def command(cluster: str, namespace: str, name: str) -> list[str]:
    """What kubectl runs: this program, by its absolute path."""
    program = str(Path(sys.argv[0]).absolute())
    words = [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "moxwell"]
    found = [*words, "cluster", "credential", cluster, "--namespace", namespace]
    return [*found, "--name", name] if name != DEFAULT_NAME else found


async def _read(cluster: str, namespace: str, name: str) -> bytes:
    async with connect.kube(name) as kube:
        try:
            secret = await kube.get(SECRETS, f"{cluster}-kubeconfig", namespace)
        except NotFound as error:
            await clusters.get(kube, cluster, namespace)
            raise demo.NotReady(
                f"cluster {cluster} has no kubeconfig yet: its control plane is starting"
            ) from error
        return base64.b64decode(secret["data"]["value"])
