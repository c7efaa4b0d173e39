"""Prints the checks of regions and clusters, for ``up``, ``init`` and ``cluster create``."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import typer

from moxwell.cli.output import Progress
from moxwell.errors import Terminal

Skip = Annotated[
    bool, typer.Option("--skip-checks", help="Create it although a check of the regions fails.")
]
CHECK_SECONDS = 120


class ChecksFailed(Terminal):
    """A check failed; its advice says what to do."""

    reason = "ChecksFailed"


def show_regions(name: str, progress: Progress) -> bool:
    """Print the checks of all regions of an instance; whether a cluster could be made."""
    from moxwell.cli.explain import ask

    rows = ask(name, "health", seconds=CHECK_SECONDS)["rows"]
    for row in rows:
        text = f"{row['what']}; {row['do']}" if row["do"] else row["what"]
        {"ok": progress.done, "remark": progress.warn, "wrong": progress.fail}[row["level"]](text)
    return all(row["level"] != "wrong" for row in rows)


def refuse(name: str, manifest: dict[str, Any]) -> None:
    """Raise ``ChecksFailed`` unless the regions can have the cluster of a manifest."""
    from moxwell.cli.explain import ask

    body = msgspec.json.encode([manifest])
    rows = ask(name, "preflight", seconds=CHECK_SECONDS, body=body)["rows"]
    if failures := [row for row in rows if row["level"] == "fail"]:
        lines = [f"{row['what']}\n    {row['do']}" for row in failures]
        raise ChecksFailed(
            "the cluster cannot be made; --skip-checks creates it all the same:\n  "
            + "\n  ".join(lines)
        )


def show_checks(checks: Iterable[Any], progress: Progress) -> None:
    """Print the checks of one region."""
    from moxwell.preflight.outcome import CheckLevel

    say = {
        CheckLevel.PASS: progress.done,
        CheckLevel.WARN: progress.warn,
        CheckLevel.FAIL: progress.fail,
    }
    for check in checks:
        say[check.level](f"{check.name}: {check}")
