"""
``moxwell plan``: prints what applying a file changes; also ``--plan`` of other commands.

The daemon computes the plan. With ``--kubeconfig`` and ``--config`` the command computes it itself
from that Kubernetes API and from Proxmox. Nothing is changed.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from moxwell.cli import connect, direct_access, manifests
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.output import Output, show_value
from moxwell.errors import Invalid, Unreachable

if TYPE_CHECKING:  # loaded only when a plan is printed
    from moxwell.plan.report import ManifestPlan

Json = dict[str, Any]
Only = Annotated[bool, typer.Option("--plan", help="Print the plan, change nothing.")]


def plan(
    file: Annotated[list[Path], typer.Option("--file", "-f", help="A manifest; - reads stdin.")],
    name: Name = DEFAULT_NAME,
    delete: Annotated[
        bool, typer.Option("--delete", help="Plan the deletion of the objects in the file.")
    ] = False,
    kubeconfig: direct_access.Kubeconfig = "",
    context: direct_access.Context = "",
    config: direct_access.Config = None,
    output: Format = Output.TABLE,
) -> None:
    """Print what applying a file changes: objects, node groups, hosts and addresses."""
    documents = manifests.in_order(manifests.read(file))
    where = direct_access.DirectFlags(kubeconfig, context, config)
    if delete:
        documents.reverse()
    else:
        manifests.check_fields(documents)
    if where.direct:
        found = asyncio.run(_plan_offline(where, documents, delete=delete))
    else:
        found = request_plan(name, documents, delete=delete)
    show_plan(found, output)


async def _plan_offline(
    where: direct_access.DirectFlags, documents: list[Json], *, delete: bool
) -> "ManifestPlan":
    from moxwell.app.defaults import defaults
    from moxwell.plan.offline import offline_planner

    async with (
        direct_access.connect(where) as both,
        offline_planner(
            both.handler, both.regions, both.clock, lambda: defaults(both.regions, lab=False)
        ) as planner,
    ):
        return await planner.plan(documents, delete=delete)


def request_plan(name: str, documents: list[Json], *, delete: bool = False) -> "ManifestPlan":
    """The plan as the daemon computes it."""
    import urllib.error
    import urllib.request

    from moxwell.plan.report import ManifestPlan

    info, key = connect.info(name), connect.state(name).dashboard_key.read_text()
    request = urllib.request.Request(
        f"{info.dashboard}/api/do/plan{'?delete=1' if delete else ''}",
        data=msgspec.json.encode(documents),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return msgspec.json.decode(answer.read(), type=ManifestPlan)
    except urllib.error.HTTPError as error:
        text = error.read().decode().strip()
        raise Unreachable(text) if error.code == 503 else Invalid(text) from error
    except OSError as error:
        raise Unreachable(f"the daemon does not answer: {error}") from error


def show_plan(found: "ManifestPlan", output: Output) -> None:
    """Print a plan in the requested format."""
    if output is not Output.TABLE:
        show_value(msgspec.to_builtins(found), output)
        return
    for part in found.parts:
        typer.echo(str(part))
