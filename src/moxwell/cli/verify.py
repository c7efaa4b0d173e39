"""
``moxwell verify``: compares the objects in Kubernetes with Proxmox; changes nothing.

The daemon runs the checks; with ``--kubeconfig`` and ``--config`` they run in this process. Exits
with 0 if both agree, 1 if they disagree, 75 if something did not answer.
"""

import asyncio
from typing import Annotated, Any

import typer

from moxwell.cli import direct_access
from moxwell.cli.connect import DEFAULT_NAME, Format, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Output, count, show, show_value

Row = dict[str, Any]
SIGNS = {"ok": "✓", "remark": "·", "unknown": "?", "wrong": "✗"}


def verify(
    name: Name = DEFAULT_NAME,
    kubeconfig: direct_access.Kubeconfig = "",
    context: direct_access.Context = "",
    config: direct_access.Config = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only what does not agree.")
    ] = False,
    output: Format = Output.TABLE,
) -> None:
    """Check that Kubernetes and Proxmox agree."""
    flags = direct_access.DirectFlags(kubeconfig, context, config)
    report = asyncio.run(_verify_here(flags)) if flags.direct else ask(name, "verify", seconds=300)
    rows = [r for r in report["findings"] if not (quiet and r["level"] == "ok")]
    if output is not Output.TABLE:
        show_value({**report, "findings": rows}, output)
    else:
        _print(rows, report)
    raise typer.Exit(report["exitCode"])


async def _verify_here(flags: direct_access.DirectFlags) -> Row:
    from moxwell import verify as checks
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import KubeTransport
    from moxwell.verify.collector import ObservationCollector

    async with direct_access.connect(flags) as connection:
        collector = ObservationCollector(
            Kube(connection.handler), connection.regions, connection.clock, KubeTransport
        )
        try:
            return await checks.report(collector.observe, connection.clock)
        finally:
            await collector.close()


def _print(rows: list[Row], report: Row) -> None:
    table = [{"": SIGNS[r["level"]], "what": r["what"], "what to do": r["do"]} for r in rows]
    columns = ("", "what", "what to do") if any(r["do"] for r in rows) else ("", "what")
    if table:
        show(table, columns, Output.TABLE)
    counts = report["counts"]
    remarks = count(counts["remark"], "remark")
    if report["exitCode"] == 0:
        checks = count(counts["ok"], "check")
        typer.echo(f"\nKubernetes and Proxmox agree: {checks}, {remarks}")
        return
    wrong = count(counts["wrong"], "disagreement")
    text = f"{wrong}, {counts['unknown']} without an answer, {remarks}; nothing was changed"
    typer.echo(f"\n{text}")
