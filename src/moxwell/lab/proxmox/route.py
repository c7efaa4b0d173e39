"""
Endpoints as data: method, path template, parameters, permission check and handler.

Each endpoint module has ``ROUTES``, whose parameters come from the API schema; :class:`RouteTable`
finds the route of a request. Path placeholders are verified like other parameters. A ``Param``
under the key ``net[n]`` declares the indexed parameters net0 to net31.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moxwell.lab.proxmox.request_context import PveCall

Checker = Callable[[str], object]  # raises FormatError; PVE prefixes "invalid format - "
PathChecker = Callable[[str, str, int], object]  # value, name of the parameter, major version
Check = Callable[["PveCall"], None]  # raises PveException 403
Handler = Callable[["PveCall"], Any]  # may be async; returns JSON data


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter, in the terms of PVE::JSONSchema."""

    type: str = "string"  # string integer number boolean array
    optional: bool = True
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    enum: tuple[str, ...] = ()
    pattern: str | None = None
    format: Checker | None = None
    property_string: PathChecker | None = None  # a format whose messages name the parameter
    items: "Param | None" = None  # of an array
    max_length: int | None = None
    min_length: int | None = None
    requires: str | None = None
    alias: str | None = None  # property strings only
    default_key: bool = False  # property strings only
    count: int = 32  # of an indexed parameter
    version: int = 0  # exists since this major version (0: always)
    until: int = 99  # exists until this major version


Params = Mapping[str, Param]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One endpoint."""

    method: str
    path: str  # "/nodes/{node}/qemu/{vmid}/config"
    handler: Handler
    params: Params = field(default_factory=dict)  # from the schema, see schema_routes
    permission: Check | None = None  # None: root@pam only
    public: bool = False  # no credentials needed
    tokens: bool = True  # may an API token call it
    proxy: bool = True  # proxied to the {node} of the path; False: runs where it is received
    extra: bool = False  # accepts additional parameters
    version: int = 0  # exists since this major version
    until: int = 99
    deep: bool = False  # the last placeholder takes the rest of the path
    options: Callable[[int], Params] | None = None  # options of a guest configuration, by version
    base: tuple[str, ...] = ()  # the handler checks all other parameters, which depend on a type
    simulated: bool = True  # False: permissions and parameters are checked, then it is refused


class RouteTable:
    """All routes of a major version, indexed by path."""

    def __init__(self, routes: Iterable[ApiRoute]) -> None:
        self._root: dict[str, Any] = {}
        self.routes = tuple(routes)
        for route in self.routes:
            self._add(route)

    def _add(self, route: ApiRoute) -> None:
        node = self._root
        for part in _parts(route.path):
            name = "{}" if part.startswith("{") else part
            node = node.setdefault(name, {})
        node.setdefault("", []).append(route)

    def find(self, method: str, parts: list[str]) -> tuple[ApiRoute, dict[str, str]] | None:
        """The route of a request and the values of its placeholders, or None."""
        for route in self._candidates(self._root, parts):
            if route.method == method:
                return route, _bind(route, parts)
        return None

    def _candidates(self, node: dict[str, Any], parts: list[str]) -> Iterable[ApiRoute]:
        if not parts:
            yield from node.get("", ())
            return
        if parts[0] and parts[0] in node:
            yield from self._candidates(node[parts[0]], parts[1:])
        if "{}" in node:
            yield from self._candidates(node["{}"], parts[1:])
            for route in node["{}"].get("", ()):
                if route.deep and len(parts) > 1:
                    yield route


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _bind(route: ApiRoute, parts: list[str]) -> dict[str, str]:
    bound, template = {}, _parts(route.path)
    for at, part in enumerate(template):
        if part.startswith("{"):
            last = route.deep and at == len(template) - 1
            bound[part[1:-1]] = "/".join(parts[at:]) if last else parts[at]
    return bound


_INDEXED = re.compile(r"^(.*?)(\d+)$")


def find_param(params: Params, name: str) -> Param | None:
    """The declaration of a parameter, also of an indexed one (``net3``)."""
    if name in params:
        return params[name]
    match = _INDEXED.match(name)
    family = params.get(f"{match[1]}[n]") if match else None
    if match is None or family is None or str(int(match[2])) != match[2]:
        return None
    return family if int(match[2]) < family.count else None
