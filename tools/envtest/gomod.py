"""
The small ``go.mod`` a program is built from.

In: a :class:`~envtest.table.Tool` and the ``replace`` lines of its own module (``go mod edit -json``).
Out: the text of a module that requires only it. A dependency's ``replace`` lines do not count in
Go, so they are repeated here; those that point at folders become published versions.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from envtest.table import Tool


def replaces(tool: Tool, upstream: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """``(old, new, version)`` for every replace of the module, folders made versions."""
    siblings = dict(tool.siblings)
    for line in upstream.get("Replace") or ():
        old, new = line["Old"]["Path"], line["New"]
        version = new.get("Version")
        if version is None:
            version, new = siblings.get(old, siblings.get("*")), {"Path": old}
        if version is not None:
            yield old, new["Path"], version


def text(tool: Tool, upstream: Mapping[str, Any]) -> str:
    """The whole file."""
    lines = [f"\t{old} => {new} {version}" for old, new, version in replaces(tool, upstream)]
    head = f"module envtest\n\ngo {upstream['Go']}\n\nrequire {tool.module} {tool.version}\n"
    return head + ("\nreplace (\n" + "\n".join(lines) + "\n)\n" if lines else "")


def parse(output: str) -> dict[str, Any]:
    """``go mod edit -json`` as a mapping."""
    found: dict[str, Any] = json.loads(output)
    return found
