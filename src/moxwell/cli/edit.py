"""
``moxwell edit``: opens an object in the editor and writes what was changed.

The change is bound to the version that was opened. If it is refused, the text is kept in a file,
and a message names it.
"""

import asyncio
import copy
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from moxwell import yaml_documents
from moxwell.api import registry
from moxwell.api.cozystack import Kubernetes
from moxwell.api.field_errors import InvalidFields
from moxwell.api.kinds import Resource
from moxwell.cli import connect, kinds
from moxwell.cli.connect import DEFAULT_NAME, Name, Namespace
from moxwell.errors import Invalid, MoxwellError

Json = dict[str, Any]
Editor = Callable[[Path], None]
HEAD = "# Change the object, save it and leave the editor. An empty file changes nothing.\n"


def edit(
    kind: Annotated[str, typer.Argument(help="Kind, or KIND/NAME.")],
    called: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the object.")] = "",
    namespace: Namespace = "default",
    name: Name = DEFAULT_NAME,
) -> None:
    """Open an object in the editor (EDITOR) and write the change."""
    kind, called = kind.split("/", 1) if "/" in kind else (kind, called)
    if not called:
        raise typer.BadParameter("give a kind and a name")

    async def run() -> None:
        async with connect.kube(name) as kube:
            resource = kinds.by_name(await kube.discover(), kind)
            before = await kinds.get(kube, resource, called, namespace)
            after = edited(before, run_editor(os.environ))
            if after is None:
                typer.echo(f"{resource.kind} {called} is unchanged")
                return
            try:
                check_fields(before, after)
                await kube.with_strict_fields().replace(after, resource)
            except MoxwellError:
                typer.echo(f"your text is kept in {keep(after)}", err=True)
                raise
            typer.echo(f"{resource.kind} {called} is changed")

    asyncio.run(run())


def edit_cluster(
    called: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.")],
    namespace: Namespace = "tenant-demo",
    name: Name = DEFAULT_NAME,
) -> None:
    """Open a cluster in the editor (EDITOR) and write the change."""
    edit(typed(Kubernetes.resource), called, namespace, name)


def typed(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def run_editor(environ: Mapping[str, str]) -> Editor:
    """What opens a file in the user's editor and waits for it."""
    command = environ.get("KUBE_EDITOR") or environ.get("EDITOR") or "vi"

    def opened(path: Path) -> None:
        try:
            done = subprocess.run([*shlex.split(command), str(path)], check=False)
        except FileNotFoundError as error:
            raise Invalid(f"the editor {command!r} is not installed: set EDITOR") from error
        if done.returncode:
            raise Invalid(f"the editor {command!r} ended with {done.returncode}: nothing changed")

    return opened


def edited(before: Json, editor: Editor) -> Json | None:
    """The object after editing; None if nothing was changed."""
    shown = copy.deepcopy(before)
    shown.get("metadata", {}).pop("managedFields", None)
    text = HEAD + yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    with tempfile.TemporaryDirectory(prefix="moxwell-edit-") as folder:
        path = Path(folder) / "object.yaml"
        path.write_text(text)
        path.chmod(0o600)
        editor(path)
        after = path.read_text()
    return _parsed(after, shown)


def _parsed(text: str, shown: Json) -> Json | None:
    try:
        found = yaml_documents.load(text)
    except yaml.YAMLError as error:
        problem = yaml_documents.problem_of(error)
        raise Invalid(f"the text is not YAML{problem}; it is kept in {keep(text)}") from error
    if not found or found == shown:
        return None
    if not isinstance(found, dict):
        raise Invalid(f"the text is not an object; it is kept in {keep(text)}")
    return found


def check_fields(before: Json, after: Json) -> None:
    """Refuse fields that do not exist, with the nearest ones, unless the object had them."""
    had = set(registry.field_errors(before))
    if errors := [error for error in registry.field_errors(after) if error not in had]:
        raise InvalidFields(errors)


def keep(text: str | Json) -> Path:
    """Keep a text that could not be written, readable by its owner only."""
    number, name = tempfile.mkstemp(prefix="moxwell-edit-", suffix=".yaml")
    with os.fdopen(number, "w") as file:
        file.write(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    return Path(name)
