"""
Discovery: the kinds, versions, verbs and subresources that an API serves.

Aggregated discovery takes two requests; servers without it are queried group by group. A group
whose API server is down is omitted.
"""

from typing import Protocol

import msgspec
from msgspec import Struct, field

from moxwell.api.kinds import Resource
from moxwell.errors import Retryable
from moxwell.kube.caller import JSON, Caller
from moxwell.kube.errors import NotAcceptable, NotFound

AGGREGATED = f"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"


class ServedKind(Struct, frozen=True, kw_only=True):
    """One served kind in one version."""

    resource: Resource
    singular: str = ""
    verbs: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    preferred: bool = True


class ServerVersion(Struct, frozen=True, kw_only=True):
    """The version of the server."""

    git_version: str = field(name="gitVersion", default="")
    major: str = ""
    minor: str = ""


class _Kind(Struct, kw_only=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Sub(Struct, kw_only=True):
    subresource: str


class _Found(Struct, kw_only=True):
    resource: str
    response_kind: _Kind | None = field(name="responseKind", default=None)
    scope: str = ""
    singular: str = field(name="singularResource", default="")
    verbs: tuple[str, ...] = ()
    short: tuple[str, ...] = field(name="shortNames", default=())
    categories: tuple[str, ...] = ()
    subresources: tuple[_Sub, ...] = ()


class _FoundVersion(Struct, kw_only=True):
    version: str
    resources: tuple[_Found, ...] = ()


class _Name(Struct, kw_only=True):
    name: str = ""


class _FoundGroup(Struct, kw_only=True):
    metadata: _Name = field(default_factory=_Name)
    versions: tuple[_FoundVersion, ...] = ()


class _Groups(Struct, kw_only=True):
    kind: str = ""
    items: tuple[_FoundGroup, ...] = ()


class _OldVersion(Struct, kw_only=True):
    version: str


class _OldGroup(Struct, kw_only=True):
    name: str
    versions: tuple[_OldVersion, ...] = ()
    preferred: _OldVersion | None = field(name="preferredVersion", default=None)


class _OldGroups(Struct, kw_only=True):
    groups: tuple[_OldGroup, ...] = ()


class _OldResource(Struct, kw_only=True):
    name: str
    kind: str
    namespaced: bool = False
    singular: str = field(name="singularName", default="")
    verbs: tuple[str, ...] = ()
    short: tuple[str, ...] = field(name="shortNames", default=())
    categories: tuple[str, ...] = ()


class _OldResources(Struct, kw_only=True):
    resources: tuple[_OldResource, ...] = ()


class _Asks(Protocol):
    _caller: Caller


class DiscoveryClient:
    """Reads the discovery documents."""

    async def version(self: _Asks) -> ServerVersion:
        """The server version; also the cheapest availability check."""
        answer = await self._caller.call("GET", "/version")
        return msgspec.json.decode(answer.body, type=ServerVersion)

    async def discover(self: _Asks) -> tuple[ServedKind, ...]:
        """Every served kind."""
        try:
            found = [await _aggregated(self._caller, root) for root in ("/api", "/apis")]
        except (NotAcceptable, NotFound):
            found = [None]
        if all(groups is not None for groups in found):
            return tuple(s for groups in found for s in _served(groups or ()))
        return await _one_by_one(self._caller)


async def _aggregated(caller: Caller, root: str) -> tuple[_FoundGroup, ...] | None:
    answer = await caller.call("GET", root, accept=AGGREGATED)
    try:
        groups = msgspec.json.decode(answer.body, type=_Groups)
    except msgspec.ValidationError:
        return None
    return groups.items if groups.kind == "APIGroupDiscoveryList" else None


def _served(groups: tuple[_FoundGroup, ...]) -> list[ServedKind]:
    return [
        _from_found(group.metadata.name, version.version, found, preferred=version is first)
        for group in groups
        for first in group.versions[:1]
        for version in group.versions
        for found in version.resources
    ]


def _from_found(group: str, version: str, found: _Found, *, preferred: bool) -> ServedKind:
    kind = found.response_kind.kind if found.response_kind else ""
    return ServedKind(
        resource=Resource(group, version, found.resource, kind, found.scope == "Namespaced"),
        singular=found.singular,
        verbs=found.verbs,
        short=found.short,
        categories=found.categories,
        subresources=tuple(sub.subresource for sub in found.subresources),
        preferred=preferred,
    )


async def _one_by_one(caller: Caller) -> tuple[ServedKind, ...]:
    answer = await caller.call("GET", "/apis")
    groups = msgspec.json.decode(answer.body, type=_OldGroups).groups
    v1 = _OldVersion(version="v1")
    out: list[ServedKind] = []
    for group in (_OldGroup(name="", versions=(v1,), preferred=v1), *groups):
        for version in group.versions:
            best = group.preferred is None or group.preferred.version == version.version
            out += await _old_version(caller, group.name, version.version, preferred=best)
    return tuple(out)


async def _old_version(
    caller: Caller, group: str, version: str, *, preferred: bool
) -> list[ServedKind]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await caller.call("GET", path)
    except (NotFound, Retryable):
        return []
    found = msgspec.json.decode(answer.body, type=_OldResources).resources
    subs = [r.name.split("/", 1) for r in found if "/" in r.name]
    return [
        ServedKind(
            resource=Resource(group, version, r.name, r.kind, r.namespaced),
            singular=r.singular,
            verbs=r.verbs,
            short=r.short,
            categories=r.categories,
            subresources=tuple(sub for owner, sub in subs if owner == r.name),
            preferred=preferred,
        )
        for r in found
        if "/" not in r.name
    ]
