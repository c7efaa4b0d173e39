"""``moxwell render``: prints CRDs as YAML and the reference of kinds as Markdown."""

import typer

app = typer.Typer(help="Print CRDs and the reference of kinds.")


@app.callback()
def root() -> None:
    """Print CRDs and the reference of kinds."""


@app.command()
def crds(
    upstream: bool = typer.Option(
        False,
        "--upstream",
        help="Also the CRDs of Cluster API, its IPAM provider, Kamaji and Karpenter.",
    ),
    service: str = typer.Option(
        "moxwell-webhook-service",
        help="Service of the conversion webhook; empty: no conversion, old versions lose fields.",
    ),
    namespace: str = typer.Option("moxwell-system", help="Namespace of the service."),
    ca: str = typer.Option("", help="CA of the service, base64 of PEM."),
) -> None:
    """Print the CustomResourceDefinitions."""
    from moxwell.api import crd, registry

    webhook = (
        crd.ConversionWebhook(service=service, namespace=namespace, ca=ca) if service else None
    )
    typer.echo(registry.render_crds(upstream=upstream, webhook=webhook), nl=False)


@app.command()
def kinds() -> None:
    """Print the reference of all kinds, as Markdown."""
    from moxwell.api import registry

    typer.echo(registry.render_kinds(), nl=False)
