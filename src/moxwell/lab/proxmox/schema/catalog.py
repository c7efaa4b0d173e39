"""
Every method of the PVE API with its parameters, permissions and index key, per major version.

``methods.json`` is written by ``tools/proxmox_schema`` from the API schemas of Proxmox VE.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from moxwell.lab.proxmox.route import Check, Params
from moxwell.lab.proxmox.schema.parameters import build_params
from moxwell.lab.proxmox.schema.permission_rules import build_check, refusal

MAJORS = (8, 9)
_PLACE = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """One method of the API schema."""

    method: str
    path: str
    params: Params
    check: Check | None  # None: root@pam only
    public: bool  # no credentials needed
    tokens: bool
    extra: bool
    proxied: bool
    refusal: str  # the text of the 403 for a caller without privileges
    index: str | None  # the key of the names that an index lists


class ApiCatalog:
    """The methods of one major version."""

    def __init__(
        self, paths: Mapping[str, Mapping[str, Any]], specs: list[Any], major: int
    ) -> None:
        self._paths, self._specs, self._major = paths, specs, major
        self._templates = {template(path): path for path in paths}
        self._built: dict[tuple[str, str], MethodFacts] = {}

    def find(self, method: str, path: str) -> MethodFacts | None:
        """The method of a path; names of placeholders do not matter."""
        known = self._templates.get(template(path))
        if known is None or method not in self._paths[known]:
            return None
        key = (method, known)
        if key not in self._built:
            self._built[key] = self._build(method, known)
        return self._built[key]

    def all(self) -> Iterator[tuple[str, str]]:
        """Every method and path."""
        for path, methods in self._paths.items():
            for method in methods:
                yield method, path

    def named_formats(self) -> frozenset[str]:
        """The formats that parameters refer to by name."""
        return frozenset(name for spec in self._specs for name in _formats_of(spec))

    def children(self, path: str) -> list[str]:
        """The fixed names below a path."""
        lead = path.rstrip("/") + "/"
        below = {p[len(lead) :].partition("/")[0] for p in self._paths if p.startswith(lead)}
        return sorted(name for name in below if not name.startswith("{"))

    def _build(self, method: str, path: str) -> MethodFacts:
        facts = self._paths[path][method]
        params = {name: self._specs[number] for name, number in facts.get("params", {}).items()}
        rule = facts.get("permissions")
        return MethodFacts(
            method,
            path,
            build_params(params, self._major),
            build_check(rule),
            public=rule is not None and rule.get("user") == "world",
            tokens=bool(facts.get("tokens", 1)),
            extra=bool(facts.get("extra", 0)),
            proxied=facts.get("proxyto") == "node",
            refusal=refusal(rule),
            index=facts.get("index"),
        )


def _formats_of(spec: Mapping[str, Any]) -> Iterator[str]:
    named = spec.get("format")
    if isinstance(named, str):
        yield named
    for key in named.values() if isinstance(named, dict) else ():
        yield from _formats_of(key)
    if "items" in spec:
        yield from _formats_of(spec["items"])


def template(path: str) -> str:
    """A path with unnamed placeholders."""
    return _PLACE.sub("{}", path)


@cache
def catalog(major: int) -> ApiCatalog:
    """The catalog of a major version; later versions have that of 9."""
    return _catalogs()[min(max(major, MAJORS[0]), MAJORS[-1])]


@cache
def _catalogs() -> dict[int, ApiCatalog]:
    text = resources.files(__package__).joinpath("methods.json").read_bytes()
    table = msgspec.json.decode(text)
    return {major: ApiCatalog(table[str(major)], table["specs"], major) for major in MAJORS}
