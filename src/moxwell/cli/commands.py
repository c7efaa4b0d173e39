"""The list of all commands."""

import typer

import moxwell
from moxwell.cli import (
    bootstrap,
    cluster,
    cluster_choices,
    cluster_describe,
    cluster_kubeconfig,
    cni,
    control_plane,
    credentials,
    csi,
    database,
    doctor,
    edit,
    events,
    explain,
    export,
    externalgrpc,
    get,
    go_flags,
    init,
    instance,
    lab,
    logs,
    node_groups,
    objects,
    operator,
    optional_values,
    plan,
    render,
    sim,
    status,
    template,
    verify,
    volume,
)

app = typer.Typer(
    name="moxwell",
    help="Proxmox VE clusters as a Kubernetes cloud.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moxwell {moxwell.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Proxmox VE clusters as a Kubernetes cloud."""


app.command(cls=optional_values.OptionalValueCommand)(instance.up)
app.command()(init.init)
app.command()(bootstrap.bootstrap)
app.command()(instance.down)
app.command()(status.status)
app.command(hidden=True)(instance.daemon)
cluster.app.command()(cluster_describe.describe)
cluster.app.command("edit")(edit.edit_cluster)
cluster.app.command()(cluster_choices.versions)
cluster.app.command()(cluster_choices.sizes)
cluster.app.command()(cluster_kubeconfig.kubeconfig)
cluster.app.command()(cluster_kubeconfig.credential)
cluster.app.add_typer(node_groups.app, name="nodegroup", help="Node groups of a cluster.")
app.add_typer(cluster.app, name="cluster", help="Tenant clusters.")
app.command()(plan.plan)
app.command()(explain.explain)
app.command()(doctor.doctor)
app.command()(verify.verify)
app.command()(database.backup)
app.command()(database.restore)
app.command()(database.repair)
app.command()(objects.apply)
app.command()(get.get)
app.command()(objects.delete)
app.command()(edit.edit)
app.command()(events.events)
app.command()(logs.logs)
app.command(cls=go_flags.GoStyleCommand)(operator.operator)
app.command()(cni.cni)
app.command()(externalgrpc.externalgrpc)
app.command()(sim.sim)
app.add_typer(lab.app, name="lab", help="The simulated Proxmox clusters of the lab.")
app.add_typer(control_plane.app, name="control-plane", help="Programs of control planes.")
app.add_typer(credentials.app, name="credentials", help="Client certificates of an instance.")
app.add_typer(csi.app, name="csi", help="The storage driver's controller and node plugin.")
app.add_typer(template.app, name="template", help="Proxmox templates from cloud images.")
app.add_typer(volume.app, name="volume", help="Kubernetes volumes on Proxmox.")
app.command("export")(export.export)
app.command("import")(export.import_)
app.add_typer(render.app, name="render", help="Print CRDs and manifests.")
