"""
Renders the tables of the Proxmox API in ``docs/reference``.

Run: ``PYTHONPATH=tools python -m proxmox_schema.tables``. ``proxmox-simulator.md`` lists what the
simulator does for each method; ``proxmox-requests.md`` lists the requests of the client with the
recordings that cover them.
"""

import asyncio
import inspect
import json
import pkgutil
import re
import textwrap
import typing
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.schema.catalog import MAJORS, catalog
from moxwell.lab.proxmox.schema.named_formats import PROPERTY_STRINGS, find_check
from moxwell.lab.proxmox.schema_routes import route_table
from moxwell.pve import endpoints
from moxwell.pve.caller import ReadEndpoints
from moxwell.pve.values import Upid

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests/conformance/recordings"
SIMULATED, REQUESTS = (
    ROOT / f"docs/reference/proxmox-{name}.md" for name in ("simulator", "requests")
)
_AGAIN = "Rendered by `PYTHONPATH=tools python -m proxmox_schema.tables`; do not edit."
_UPID = "UPID:node1:00000001:00000002:00000003:qmstart:100:root@pam:"
_METHODS = ("GET", "POST", "PUT", "DELETE")


# ---------------------------------------------------------------- the simulator


def render_simulator() -> str:
    """The page about all methods of the API schema."""
    paths: dict[str, dict[str, dict[int, bool]]] = defaultdict(lambda: defaultdict(dict))
    for major in MAJORS:
        for route in route_table(major).routes:
            paths[route.path][route.method][major] = route.simulated
    lines = [_row(path, methods) for path, methods in sorted(paths.items())]
    totals = [_total(paths, major) for major in MAJORS]
    return "\n".join(
        [
            "# The Proxmox API in the simulator",
            "",
            _AGAIN,
            "",
            "Every method checks the caller, the permissions and the parameters by the API schema."
            " A *simulated* method then",
            "does what Proxmox VE does. A *refused* method answers as Proxmox VE answers a token"
            " without privileges: 403",
            "with the missing privilege, also to root. (8) and (9): only in that major version.",
            "",
            *totals,
            "",
            *_formats(),
            "",
            "| path | simulated | refused |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )


def _formats() -> list[str]:
    """All formats that the schemas name, and those that are not checked."""
    named = {name for major in MAJORS for name in catalog(major).named_formats()}
    known = {name for name in named if name in PROPERTY_STRINGS or find_check(name) is not None}
    missing = ", ".join(f"`{name}`" for name in sorted(named - known)) or "none"
    shown = textwrap.wrap(
        ", ".join(f"`{name}`" for name in sorted(known)), 140, break_on_hyphens=False
    )
    return [
        f"{len(known)} of {len(named)} formats that the schemas name are checked. Not checked:"
        f" {missing}. Checked:",
        *shown,
    ]


def _row(path: str, methods: dict[str, dict[int, bool]]) -> str:
    cells = []
    for wanted in (True, False):
        found = []
        for method in sorted(methods, key=_METHODS.index):
            majors = [m for m, simulated in methods[method].items() if simulated is wanted]
            if majors:
                only = "" if len(majors) == len(MAJORS) else f" ({majors[0]})"
                found.append(method + only)
        cells.append(", ".join(found))
    return f"| `{path}` | {cells[0]} | {cells[1]} |"


def _total(paths: dict[str, dict[str, dict[int, bool]]], major: int) -> str:
    known = [v[major] for methods in paths.values() for v in methods.values() if major in v]
    return f"- Version {major}: {sum(known)} of {len(known)} methods are simulated."


# ---------------------------------------------------------------- the client


class RecordingCaller:
    """Collects the requests of endpoint methods instead of sending them."""

    region = "east"

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    async def read(self, answer: Any, path: str, params: Any = None) -> Any:
        self.requests.append(("GET", path))
        raise _AskedError

    async def upload(self, path: str, params: Any, file: Any) -> Any:
        self.requests.append(("POST", path))
        raise _AskedError

    async def write(self, method: str, path: str, *rest: Any) -> Any:
        self.requests.append((method, path))
        raise _AskedError

    async def write_for(self, answer: Any, method: str, path: str, *rest: Any) -> Any:
        self.requests.append((method, path))
        raise _AskedError

    start_task = maybe_start_task = write


class _AskedError(Exception):
    """The request is known; the answer does not matter."""


def client_requests() -> dict[tuple[str, str], set[str]]:
    """(method, path template) of every request, with the client methods that send it."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for kind in _endpoint_classes():
        for name, function in inspect.getmembers(kind, inspect.iscoroutinefunction):
            if name.startswith("_"):
                continue
            for method, path in _requests(kind, function):
                found[method, template(method, path)].add(f"{kind.__name__}.{name}")
    return found


def _endpoint_classes() -> Iterator[type]:
    for module in pkgutil.iter_modules(endpoints.__path__):
        loaded = import_module(f"{endpoints.__name__}.{module.name}")
        kinds = [k for _, k in inspect.getmembers(loaded, inspect.isclass)]
        own = [k for k in kinds if k.__module__ == loaded.__name__ and issubclass(k, ReadEndpoints)]
        for kind in own:
            extended = any(issubclass(other, kind) and other is not kind for other in own)
            if not extended and not kind.__name__.startswith("Any"):
                yield kind


def _requests(kind: type, function: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for family in ("qemu", "lxc"):
        caller = RecordingCaller()
        instance: Any = object.__new__(kind)
        instance._caller = caller
        try:
            asyncio.run(function(instance, **_arguments(function, family)))
        except _AskedError:
            found += caller.requests
    return sorted(set(found))


def _arguments(function: Any, family: str) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    given = {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if parameter.default is parameter.empty and parameter.kind.name != "VAR_KEYWORD":
            given[name] = _example(name, hints.get(name), family)
    return given


def _example(name: str, hint: Any, family: str) -> Any:
    if name == "kind":
        return family
    if hint is Upid or name == "upid":
        return Upid(_UPID)
    if hint is int:
        return 100
    if hint is bool:
        return False
    if name == "volid":
        return "local:100/vm-100-disk-0.raw"
    if typing.get_origin(hint) in (dict, typing.Mapping) or "Mapping" in str(hint):
        return {}
    return "x1" if hint is str else _instance(hint)


def _instance(hint: Any) -> Any:
    """An object whose every attribute is harmless."""

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: {}

        def __iter__(self) -> Iterator[Any]:
            return iter(())

        def __str__(self) -> str:
            return "x1"

    return Anything()


def template(method: str, path: str) -> str:
    """The path of the API schema that a request matches."""
    parts = [part for part in path.replace("%2F", "/").split("/") if part]
    for major in reversed(MAJORS):
        found = route_table(major).find(method, parts)
        if found is not None:
            return found[0].path
    return path


def covered() -> dict[tuple[str, str], dict[str, set[str]]]:
    """(method, path template) -> version -> scenarios that send it."""
    found: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in sorted(RECORDINGS.glob("*/*.json")):
        for step in json.loads(file.read_text())["steps"]:
            method, _, path = step["do"].partition(" ")
            parts = [p for p in re.sub(r"\{(\w+)\}", "x1", path).split("?")[0].split("/") if p]
            route = _match(method, parts, int(file.parent.name[0]))
            if route is not None:
                found[method, route.path][file.parent.name].add(file.stem)
    return found


def _match(method: str, parts: list[str], major: int) -> ApiRoute | None:
    found = route_table(major).find(method, [p.replace("%2F", "/") for p in parts])
    return found[0] if found else None


def render_requests() -> str:
    """The page about the requests of the client."""
    recordings = covered()
    rows = []
    for (method, path), senders in sorted(
        client_requests().items(), key=lambda item: item[0][::-1]
    ):
        versions = recordings.get((method, path), {})
        cells = [_scenarios(versions.get(version, set())) for version in ("8.4", "9.2")]
        rows.append(f"| `{method} {path}` | {', '.join(sorted(senders))} | {' | '.join(cells)} |")
    bare = [row for row in rows if row.endswith("| — | — |")]
    return "\n".join(
        [
            "# The requests of the client",
            "",
            _AGAIN,
            "",
            f"The client can send {len(rows)} requests; recordings of a real Proxmox VE cover"
            f" {len(rows) - len(bare)} of them.",
            "A number after the first scenario counts the others.",
            "",
            "| request | sent by | 8.4 | 9.2 |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _scenarios(names: set[str]) -> str:
    if not names:
        return "—"
    first, *rest = sorted(names)
    return f"{first} +{len(rest)}" if rest else first


if __name__ == "__main__":
    SIMULATED.write_text(render_simulator())
    REQUESTS.write_text(render_requests())
