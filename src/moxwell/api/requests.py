"""
One request to a Kubernetes API and its answer, as values.

The seam between :mod:`moxwell.kube` (who asks) and :mod:`moxwell.embedded.apiserver` (who can answer in the
same process): neither knows the other, both know these. Over the network the same values are
carried by ``kube/transport.py`` and ``store/http.py``.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """Who asks: as proven by a certificate or a token."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``path`` is decoded and without the query; header names are lower case."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: UserInfo | None = None  # None: not proven yet, the answering side decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """``body`` is whole, or ``chunks`` are to come (watches)."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None


class Handler(Protocol):
    """Answers requests: the embedded API, or whatever stands behind a socket."""

    async def handle(self, request: Request) -> Response:
        """Answer one request; never raises for what the caller did wrong."""
        ...
