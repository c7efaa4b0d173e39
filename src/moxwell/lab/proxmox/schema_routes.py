"""
The routes of a major version: the simulated ones and all others of the API schema.

Parameters come from the schema. A method that is not simulated answers as Proxmox VE answers a
caller without the privileges: the parameters and permissions are checked, then it is refused.
Indexes that only list names need no code of their own.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from moxwell.lab.proxmox import endpoints
from moxwell.lab.proxmox.errors import forbidden
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler, Params, RouteTable
from moxwell.lab.proxmox.route_permissions import by_schema, fill
from moxwell.lab.proxmox.schema.catalog import ApiCatalog, MethodFacts, catalog, template


@cache
def route_table(major: int) -> RouteTable:
    """All routes of a major version."""
    return RouteTable(_routes(major, catalog(major)))


def _routes(major: int, schema: ApiCatalog) -> Iterator[ApiRoute]:
    declared = set()
    for route in endpoints.all_routes():
        if route.version <= major <= route.until:
            declared.add((route.method, template(route.path)))
            yield with_schema(route, schema.find(route.method, route.path), major)
    for method, path in schema.all():
        facts = schema.find(method, path)
        if facts is not None and (method, template(path)) not in declared:
            yield _from_schema(facts, schema)


def with_schema(route: ApiRoute, facts: MethodFacts | None, major: int) -> ApiRoute:
    """A route with the parameters of the schema."""
    if facts is None:
        return route
    params: Params = {**facts.params, **(route.options(major) if route.options else {})}
    if route.base:
        params = {name: params[name] for name in route.base}
    check = facts.check if route.permission is by_schema else route.permission
    extra = route.extra or facts.extra or bool(route.base)
    return replace(route, path=facts.path, params=params, permission=check, extra=extra)


def _from_schema(facts: MethodFacts, schema: ApiCatalog) -> ApiRoute:
    names = schema.children(facts.path) if facts.method == "GET" and facts.index else []
    handler: Handler = partial(_refuse, facts.refusal)
    if names:
        handler = partial(_index, facts.index or "", tuple(names))
    return ApiRoute(
        facts.method,
        facts.path,
        handler,
        facts.params,
        facts.check,
        public=facts.public,
        tokens=facts.tokens,
        extra=facts.extra,
        simulated=bool(names),
    )


def _index(key: str, names: tuple[str, ...], call: PveCall) -> list[dict[str, Any]]:
    return [{key: name} for name in names]


def _refuse(privilege: str, call: PveCall) -> None:
    raise forbidden(fill(privilege, call))
