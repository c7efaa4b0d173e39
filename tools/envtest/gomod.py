"""
Render the ``go.mod`` from which a program is built.

The module requires only the program's module. Go ignores ``replace`` lines of dependencies, so they
are repeated here; those that point at folders become published versions.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from envtest.table import Tool


def replaces(tool: Tool, upstream: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """``(old, new, version)`` for every replace of the module; folders become versions."""
    siblings, pins = dict(tool.siblings), dict(tool.pins)
    for line in upstream.get("Replace") or ():
        old, new = line["Old"]["Path"], line["New"]
        version = new.get("Version")
        if version is None:
            version, new = siblings.get(old, siblings.get("*")), {"Path": old}
        if version is not None:
            yield old, new["Path"], pins.get(old, version)


def text(tool: Tool, upstream: Mapping[str, Any]) -> str:
    """The text of the file."""
    lines = [f"\t{old} => {new} {version}" for old, new, version in replaces(tool, upstream)]
    head = f"module envtest\n\ngo {upstream['Go']}\n\nrequire {tool.module} {tool.version}\n"
    return head + ("\nreplace (\n" + "\n".join(lines) + "\n)\n" if lines else "")


def parse(output: str) -> dict[str, Any]:
    """``go mod edit -json`` as a mapping."""
    found: dict[str, Any] = json.loads(output)
    return found
