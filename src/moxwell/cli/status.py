"""``moxwell status``: the instance, its regions and its clusters; what is wrong comes first."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from moxwell.app.config_reload import read_record
from moxwell.app.restarts import read_restarts
from moxwell.app.state_dir import InstanceInfo
from moxwell.cli import cluster_rows, connect, databases, instance, program
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, count, show, show_value

Json = dict[str, Any]


def status(name: Name = DEFAULT_NAME, output: Format = Output.TABLE) -> None:
    """Show the instance and its clusters."""
    info, state = connect.info(name), connect.state(name)
    restarts = read_restarts(state.restarts)
    regions = ask(name, "regions")["rows"]
    clusters = asyncio.run(cluster_rows.clusters(name))
    if output is not Output.TABLE:
        about = msgspec.to_builtins(info) | {"restarts": msgspec.to_builtins(restarts)}
        show_value({"instance": about, "regions": regions, "clusters": clusters}, output)
        return
    for line in lost_lines(regions):
        typer.secho(line, bold=True)
    typer.echo(f"{info.mode} {info.name}, Moxwell {info.version}, since {info.started}")
    if restarts.count:
        typer.echo(f"restarts   {restarts.count}: it {restarts.last_exit} at {restarts.at}")
    for line in read_record(state.config_reload).lines():
        typer.echo(program.current().localize(f"config     {line}"))
    typer.echo(f"regions    {_regions(info)}")
    typer.echo(f"api        {info.api}   KUBECONFIG={state.kubeconfig}")
    typer.echo(f"dashboard  {instance.dashboard_link(name)}   (works once)")
    for alarm in asyncio.run(databases.list_alarms(state)):
        typer.echo(program.current().localize(f"alarm      {alarm}"))
    typer.echo("")
    _show_clusters(clusters)


def lost_lines(regions: list[Json]) -> Iterator[str]:
    """A line for each region that does not answer."""
    for region in regions:
        if not region["reachable"]:
            since = f" since {region['since']}" if region["since"] else ""
            why = f": {region['error']}" if region["error"] else ""
            yield f"✗ region {region['name']} does not answer{since}{why}"


def _regions(info: InstanceInfo) -> str:
    rows = sorted(info.regions.items())
    return ", ".join(f"{name} ({count(len(hosts), 'host')})" for name, hosts in rows)


def _show_clusters(rows: list[Json]) -> None:
    if rows:
        columns = ("namespace", "cluster", "version", "nodes", "regions", "state")
        show(rows, columns, Output.TABLE)
    else:
        create = program.current().command("cluster create demo --nodes 3")
        typer.echo(f"No clusters yet: {create}")
