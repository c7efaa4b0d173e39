"""
Cases of the suite: named steps, as data.

:mod:`apisuite.play` plays them. ``$ns``, ``$u`` and names saved by an earlier step are substituted
in paths, bodies and arguments; an unknown ``$word`` stays, because patch directives have that form.
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
class ApiRequest:
    """One HTTP request and the part of its response that is compared."""

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
    """A watch that is opened before ``during`` is played and read until ``events`` arrived."""

    path: str
    during: tuple[ApiRequest, ...] = ()
    events: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """One kubectl command; its output and exit code are compared."""

    args: tuple[str, ...]
    stdin: str | None = None
    until: str | None = None
    show: Literal["all", "code", "nothing"] = "all"
    sort: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Define:
    """
    A CRD that cases share: created once per server, under ``$u``.

    A kube-apiserver takes seconds to serve a new CRD; shared CRDs are never changed.
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

    request: ApiRequest


Step = ApiRequest | Watch | Kubectl | Define | Settle


@dataclass(frozen=True, slots=True)
class Case:
    """A named sequence of steps."""

    name: str
    steps: tuple[Step, ...]


def case(name: str, *steps: Step) -> Case:
    return Case(name, steps)


def get(path: str, **more: Any) -> ApiRequest:
    return ApiRequest(method="GET", path=path, **more)


def post(path: str, body: Any, **more: Any) -> ApiRequest:
    return ApiRequest(method="POST", path=path, body=body, **more)


def put(path: str, body: Any, **more: Any) -> ApiRequest:
    return ApiRequest(method="PUT", path=path, body=body, **more)


def delete(path: str, body: Any = None, **more: Any) -> ApiRequest:
    return ApiRequest(method="DELETE", path=path, body=body, **more)


def patch(kind: str, path: str, body: Any, **more: Any) -> ApiRequest:
    headers = {"Content-Type": kind, **more.pop("headers", {})}
    return ApiRequest(method="PATCH", path=path, body=body, headers=headers, **more)


def server_side_apply(
    path: str, manager: str, body: Any, *, force: bool = False, **more: Any
) -> ApiRequest:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    return patch(APPLY, path + query, body, **more)


def settle(request: ApiRequest, path: str, value: Any) -> Settle:
    """Wait until ``path`` of the response has the value."""
    return Settle(request=replace(request, until=(path, value), show="nothing"))


def status_only(request: ApiRequest) -> ApiRequest:
    """The same request; only its status is compared."""
    return replace(request, show="status")


def kubectl(line: str, stdin: str | None = None, **more: Any) -> Kubectl:
    """A kubectl command line; quotes are honoured."""
    return Kubectl(args=tuple(shlex.split(line)), stdin=stdin, **more)
