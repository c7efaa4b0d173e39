"""``moxwell render``: what Kubernetes needs to know of us, as YAML on standard output."""

import typer

app = typer.Typer(help="Print manifests: CRDs, and what else an installation needs.")


@app.callback()
def root() -> None:
    """Print manifests: CRDs, and what else an installation needs."""


@app.command()
def crds(
    upstream: bool = typer.Option(
        False,
        "--upstream",
        help="Also those of Cluster API, its IPAM and Kamaji, as we serve them.",
    ),
    service: str = typer.Option(
        "moxwell-webhook-service",
        help="Service of the conversion webhook; empty: none, and old versions lose fields.",
    ),
    namespace: str = typer.Option("moxwell-system", help="Its namespace."),
    ca: str = typer.Option("", help="Its certificate authority, base64 of PEM."),
) -> None:
    """Print the CustomResourceDefinitions."""
    from moxwell.api import crd, registry

    webhook = crd.Webhook(service=service, namespace=namespace, ca=ca) if service else None
    typer.echo(registry.render_crds(upstream=upstream, webhook=webhook), nl=False)


@app.command()
def kinds() -> None:
    """Print the reference of all kinds, as Markdown."""
    from moxwell.api import registry

    typer.echo(registry.render_kinds(), nl=False)
