"""
``moxwell logs``: prints the log of the daemon, of everything or of one object.

A line belongs to an object if it names its key, ``NAMESPACE/NAME``, or a key below it, such as the
machines ``demo-md0-…`` of the cluster ``demo``.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from moxwell.cli import connect
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.clock import Clock, SystemClock
from moxwell.errors import Missing
from moxwell.runtime.log_rotation import COPIES

POLL_SECONDS = 0.5


def logs(
    called: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Cluster, machine or other object.")
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace. Default: all.")
    ] = "",
    controller: Annotated[
        str, typer.Option("--controller", help="Only this controller, such as infra.machine.")
    ] = "",
    lines: Annotated[int, typer.Option("--tail", min=0, help="Lines at the end.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines too.")] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Print the log of the controllers, of everything or of one object."""
    file, belongs = connect.state(name).log, matcher(called, namespace, controller)
    if not file.exists():
        raise Missing(f"instance {name!r} has no log: start it with `moxwell up`")
    end = file.stat().st_size
    found = deque(filter(belongs, all_lines(file, end)), lines)
    for line in found:
        typer.echo(line, nl=False)
    if not found and lines:
        typer.echo(f"no line of the log is about {called or 'that'}", err=True)
    if follow:
        asyncio.run(_follow(file, end, belongs))


def all_lines(file: Path, end: int) -> Iterator[str]:
    """The lines of the rotated files, the oldest first, then those of the file up to ``end``."""
    for number in range(COPIES, 0, -1):
        older = file.with_name(f"{file.name}.{number}")
        if older.is_file():
            with older.open(errors="replace") as opened:
                yield from opened
    with file.open("rb") as opened_file:
        for line in opened_file:
            end -= len(line)
            if end < 0:
                return  # written since, and printed by whoever follows
            yield line.decode(errors="replace")


async def _follow(file: Path, start: int, belongs: Callable[[str], bool]) -> None:
    async for line in new_lines(file, start, SystemClock()):
        if belongs(line):
            typer.echo(line, nl=False)


async def new_lines(file: Path, start: int, clock: Clock) -> AsyncIterator[str]:
    """Whole lines that are appended to a file from an offset on; also after a rotation."""
    while True:
        lines, start = read_lines(file, start)
        for line in lines:
            yield line
        await clock.sleep(POLL_SECONDS)


def read_lines(file: Path, start: int) -> tuple[list[str], int]:
    """The whole lines from an offset on, and the offset after them."""
    size = file.stat().st_size if file.exists() else 0
    start = start if start <= size else 0  # the file was rotated
    if size == start:
        return [], start
    with file.open("rb") as opened:
        opened.seek(start)
        read = opened.read(size - start)
    whole = read[: read.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(keepends=True), start + len(whole)


def matcher(name: str, namespace: str, controller: str) -> Callable[[str], bool]:
    """Whether a line belongs to an object and a controller; empty words match everything."""
    words = list(_patterns(name, namespace, controller))
    return lambda line: all(pattern.search(line) for pattern in words)


def _patterns(name: str, namespace: str, controller: str) -> Iterable[re.Pattern[str]]:
    if name or namespace:
        space = re.escape(namespace) if namespace else r"[^\s/=]+"
        tail = rf"{re.escape(name)}(?:-\S*)?(?=\s|$)" if name else ""
        yield re.compile(rf"(?:key|object)={space}/{tail}")
    if controller:
        yield re.compile(rf"controller={re.escape(controller)}(?=[\s.]|$)")
