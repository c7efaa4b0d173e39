"""
The read half of a Kubernetes client, as a type.

``Kube`` satisfies it. Code that must not write takes a ``Reader``, so that mypy refuses a write.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar, Unpack, overload

from moxwell.api.kinds import Object, Resource
from moxwell.kube.codec import Page
from moxwell.kube.options import Listing

K = TypeVar("K", bound=Object)
Json = dict[str, Any]


class Reader(Protocol):
    """``get`` raises NotFound, ``find`` returns None, ``list`` returns every page as one."""

    @overload
    async def get(self, kind: type[K], name: str, namespace: str = "") -> K: ...
    @overload
    async def get(self, kind: Resource, name: str, namespace: str = "") -> Json: ...

    @overload
    async def find(self, kind: type[K], name: str, namespace: str = "") -> K | None: ...
    @overload
    async def find(self, kind: Resource, name: str, namespace: str = "") -> Json | None: ...

    @overload
    def pages(
        self, kind: type[K], namespace: str = "", **options: Unpack[Listing]
    ) -> AsyncIterator[Page[K]]: ...
    @overload
    def pages(
        self, kind: Resource, namespace: str = "", **options: Unpack[Listing]
    ) -> AsyncIterator[Page[Json]]: ...

    @overload
    async def list(
        self, kind: type[K], namespace: str = "", **options: Unpack[Listing]
    ) -> Page[K]: ...
    @overload
    async def list(
        self, kind: Resource, namespace: str = "", **options: Unpack[Listing]
    ) -> Page[Json]: ...
