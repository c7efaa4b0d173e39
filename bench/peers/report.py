"""The report of a comparison as Markdown."""

import platform
from collections import Counter
from collections.abc import Iterator, Sequence

from peers.figures import Phase, Run

HEAD = (
    "| scenario | program | phase | requests | per object | writes "
    "| s | CPU s | peak MiB | errors |"
)
RULE = "|---|---|---|---|---|---|---|---|---|---|"
COMMON_OPERATIONS = 12


def report(runs: Sequence[Run]) -> str:
    """All figures, what was left behind, and the most frequent operations."""
    parts = [HEAD, RULE, *(row for run in runs for row in _rows(run)), ""]
    parts += [line for run in runs for line in _remarks(run)]
    for run in runs:
        parts += ["", f"{run.scenario}, {run.program}: requests by operation", ""]
        parts += list(_operations(run))
    return "\n".join(parts) + "\n"


def _rows(run: Run) -> Iterator[str]:
    for phase in run.phases:
        yield _row(run, phase)


def _row(run: Run, phase: Phase) -> str:
    requests = len(phase.exchanges)
    errors = ", ".join(f"{n} × {status}" for status, n in sorted(phase.errors.items())) or "0"
    cells = (
        run.scenario,
        run.program,
        phase.name,
        str(requests),
        f"{requests / phase.count:.1f}",
        str(phase.writes),
        f"{phase.seconds:.1f}",
        f"{phase.cpu_seconds:.2f}",
        f"{run.peak_mib:.0f}",
        errors,
    )
    return f"| {' | '.join(cells)} |"


def _remarks(run: Run) -> Iterator[str]:
    left = ", ".join(run.leftovers) or "nothing"
    yield f"- {run.scenario}, {run.program}: left behind: {left}."
    if run.lost:
        yield f"- {run.scenario}, {run.program}: lost node claims: {', '.join(run.lost)}."
    failed = Counter((e.status, e.operation) for e in run.exchanges if e.status >= 400)
    if failed:
        listed = ", ".join(f"{n} × {status} {what}" for (status, what), n in sorted(failed.items()))
        yield f"- {run.scenario}, {run.program}: errors: {listed}."
    if asked := sum(e.path == "/cluster/nextid" for e in run.exchanges):
        yield f"- {run.scenario}, {run.program}: {asked} × GET /cluster/nextid."
    if run.repeated_calls:
        yield f"- {run.scenario}, {run.program}: {run.repeated_calls} calls had to be repeated."
    if run.unimplemented:
        yield f"- {run.scenario}, {run.program}: answered with 501: {', '.join(run.unimplemented)}."


def _operations(run: Run) -> Iterator[str]:
    counted = Counter(e.operation for e in run.exchanges)
    yield from (f"    {n:6} {name}" for name, n in counted.most_common(COMMON_OPERATIONS))


def machine() -> str:
    """The kind of machine that the run used."""
    return f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}"
