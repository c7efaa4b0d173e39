"""The commands of ``moxwell cluster``."""

from moxwell.cli import (
    cluster,
    cluster_choices,
    cluster_describe,
    cluster_kubeconfig,
    edit,
    node_groups,
)

app = cluster.app
app.command()(cluster_describe.describe)
app.command("edit")(edit.edit_cluster)
app.command()(cluster_choices.versions)
app.command()(cluster_choices.sizes)
app.command()(cluster_kubeconfig.kubeconfig)
app.command()(cluster_kubeconfig.credential)
app.add_typer(node_groups.app, name="nodegroup", help="Node groups of a cluster.")
