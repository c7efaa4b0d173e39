"""``moxwell credentials``: rotates and revokes the client certificates of an instance."""

from pathlib import Path
from typing import Annotated

import typer

from moxwell.cli.connect import DEFAULT_NAME, Name, state
from moxwell.clock import SystemClock

app = typer.Typer(no_args_is_help=True)


@app.command()
def rotate(name: Name = DEFAULT_NAME) -> None:
    """Write a new administrator's kubeconfig and revoke the old one."""
    from moxwell.app.credentials import rotate_kubeconfig

    path = rotate_kubeconfig(state(name), SystemClock())
    typer.echo(f"{path} has a new certificate; the old one is refused from now on")


@app.command()
def revoke(
    file: Annotated[
        Path, typer.Argument(exists=True, help="A kubeconfig, or a certificate in PEM.")
    ],
    name: Name = DEFAULT_NAME,
) -> None:
    """Refuse a client certificate of the instance, or of a tenant, from now on."""
    from moxwell.app.credentials import revoke_certificate

    owner = revoke_certificate(state(name), file, SystemClock())
    typer.echo(f"the certificate of {file} is refused by {owner} from now on")
