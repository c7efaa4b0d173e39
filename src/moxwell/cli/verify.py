"""
``moxwell verify``: the promise checked against the estate. Nothing is changed.

A daemon is asked for its findings; with ``--kubeconfig`` and ``--config`` the same checks run here,
against a genuine Kubernetes. Exit 0: all agrees. 1: the two sides disagree. 75: something did not
answer, so nothing is promised of it.
"""

import asyncio
from typing import Annotated, Any

import typer

from moxwell.cli import direct_access
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, show, show_value

Row = dict[str, Any]
SIGNS = {"ok": "✓", "remark": "·", "unknown": "?", "wrong": "✗"}


def verify(
    name: Name = DEFAULT_NAME,
    kubeconfig: direct_access.Kubeconfig = "",
    context: direct_access.Context = "",
    config: direct_access.Config = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Only what is not as it should be.")
    ] = False,
    output: Format = Output.TABLE,
) -> None:
    """Check that what is there is what the objects say, in Kubernetes and in Proxmox."""
    where = direct_access.Where(kubeconfig, context, config)
    report = asyncio.run(_here(where)) if where.direct else ask(name, "verify", seconds=300)
    rows = [r for r in report["findings"] if not (quiet and r["level"] == "ok")]
    if output is not Output.TABLE:
        show_value({**report, "findings": rows}, output)
    else:
        _tell(rows, report)
    raise typer.Exit(report["exitCode"])


async def _here(where: direct_access.Where) -> Row:
    from moxwell import verify as checks
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import HttpTransport
    from moxwell.verify.collector import Gatherer

    async with direct_access.reach(where) as both:
        gatherer = Gatherer(Kube(both.handler), both.regions, both.clock, HttpTransport)
        try:
            return await checks.report(gatherer.look, both.clock)
        finally:
            await gatherer.close()


def _tell(rows: list[Row], report: Row) -> None:
    table = [{"": SIGNS[r["level"]], "what": r["what"], "what to do": r["do"]} for r in rows]
    columns = ("", "what", "what to do") if any(r["do"] for r in rows) else ("", "what")
    if table:
        show(table, columns, Output.TABLE)
    counts = report["counts"]
    if report["exitCode"] == 0:
        typer.echo(f"\nall agrees: {counts['ok']} checks, {counts['remark']} remarks")
        return
    said = f"{counts['wrong']} disagreements, {counts['unknown']} without an answer"
    typer.echo(f"\n{said}, {counts['remark']} remarks; nothing was changed")
