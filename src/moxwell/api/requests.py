"""
A request to a Kubernetes API and its response, as values.

:mod:`moxwell.kube` sends them and :mod:`moxwell.embedded.apiserver` handles them in the same
process without importing each other. Over the network ``kube/transport.py`` and
``embedded/apiserver/http.py`` carry the same values.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """The authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request; ``path`` is percent-decoded and has no query, header names are lower case."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remote: str = ""  # the address of the client
    user: UserInfo | None = None  # None: not authenticated yet, the handler authenticates


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """
    A response with a complete ``body``, with ``chunks`` for a watch, or an ``upgrade``.

    The HTTP server upgrades the connection; what the value means is known to it alone.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None
    upgrade: object | None = None


class Handler(Protocol):
    """Handles requests: the embedded API server or a network transport."""

    async def handle(self, request: Request) -> Response:
        """Handle one request; errors of the caller become responses, not exceptions."""
        ...
