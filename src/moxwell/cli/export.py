"""``moxwell export`` and ``import``: all objects of the embedded apiserver as YAML, and back."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from moxwell.cli import manifests
from moxwell.cli.connect import DEFAULT_NAME, Name

File = Annotated[
    Path | None, typer.Option("--file", "-f", help="Write to a file instead of the terminal.")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole", help="Include status, owners and UIDs: for `moxwell import`, not kubectl."
    ),
]


def export(name: Name = DEFAULT_NAME, file: File = None, whole: Whole = False) -> None:
    """Print every object as YAML, for `kubectl apply -f` in another cluster."""
    asyncio.run(_export(name, file, whole))


async def _export(name: str, file: Path | None, whole: bool) -> None:
    from moxwell.atomic_file import write_private
    from moxwell.cli.connect import transport
    from moxwell.embedded.apiserver import export as exporting

    async with transport(name) as handler:
        found = [exporting.to_yaml(obj) async for obj in exporting.dump(handler, complete=whole)]
    if file is None:
        sys.stdout.write("".join(found))
        return
    write_private(file, "".join(found).encode())  # it contains Secrets
    typer.echo(f"{len(found)} objects written to {file}", err=True)


def import_(
    file: Annotated[Path, typer.Argument(help="File written by `moxwell export`.")],
    name: Name = DEFAULT_NAME,
) -> None:
    """Create every object of a file in the embedded apiserver."""
    asyncio.run(_import(name, manifests.read([file])))


async def _import(name: str, objects: list[dict[str, Any]]) -> None:
    from moxwell.cli.connect import transport
    from moxwell.embedded.apiserver import export as exporting

    async with transport(name) as handler:
        count = await exporting.load(handler, objects)
    typer.echo(f"{count} objects written", err=True)
