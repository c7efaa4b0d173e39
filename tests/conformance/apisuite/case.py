"""
What a case is: named steps, as data.

Nothing flows in; the tables build these values and :mod:`apisuite.play` plays them. ``$ns``,
``$u`` and names saved by an earlier step are filled in anywhere in a path, a body or an argument;
an unknown ``$word`` stays as it is, because patches have directives of that form.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One HTTP request and how much of its answer counts."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    save: Mapping[str, str] = field(default_factory=dict)
    who: str = "admin"
    until: tuple[str, Any] | None = None
    only: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    show: Literal["all", "status", "nothing"] = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch opened before ``during`` is played, read until ``events`` have come."""

    path: str
    during: tuple[Ask, ...] = ()
    events: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """One kubectl command; what it printed and its exit code count."""

    args: tuple[str, ...]
    stdin: str | None = None
    until: str | None = None
    show: Literal["all", "code", "nothing"] = "all"
    sort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """A custom resource definition that cases share: made once per server, under ``$u``.

    Serving a new definition takes a genuine apiserver seconds; changing a shared one is not done.
    """

    body: Mapping[str, Any]
    serves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """
    Repeats a request until its ``until`` holds; the case fails if it never does.

    For cases that depend on a controller or an informer of the server: the request before the
    deciding one waits until the server has observed the earlier steps. The response does not count.
    """

    request: Ask


Step = Ask | Watch | Kubectl | Define | Settle


@dataclass(frozen=True, slots=True)
class Case:
    """A phrase, and the steps that show it."""

    name: str
    steps: tuple[Step, ...]


def case(name: str, *steps: Step) -> Case:
    return Case(name, steps)


def get(path: str, **more: Any) -> Ask:
    return Ask(method="GET", path=path, **more)


def post(path: str, body: Any, **more: Any) -> Ask:
    return Ask(method="POST", path=path, body=body, **more)


def put(path: str, body: Any, **more: Any) -> Ask:
    return Ask(method="PUT", path=path, body=body, **more)


def delete(path: str, body: Any = None, **more: Any) -> Ask:
    return Ask(method="DELETE", path=path, body=body, **more)


def patch(kind: str, path: str, body: Any, **more: Any) -> Ask:
    headers = {"Content-Type": kind, **more.pop("headers", {})}
    return Ask(method="PATCH", path=path, body=body, headers=headers, **more)


def applied(path: str, manager: str, body: Any, *, force: bool = False, **more: Any) -> Ask:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    return patch(APPLY, path + query, body, **more)


def settle(request: Ask, path: str, value: Any) -> Settle:
    """Wait until ``path`` of the response has the value."""
    return Settle(request=replace(request, until=(path, value), show="nothing"))


def quiet(ask: Ask) -> Ask:
    """The same request, of which only the status counts."""
    return replace(ask, show="status")


def kubectl(line: str, stdin: str | None = None, **more: Any) -> Kubectl:
    """A command line; quotes are honoured."""
    return Kubectl(args=tuple(shlex.split(line)), stdin=stdin, **more)
