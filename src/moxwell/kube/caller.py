"""
Sends one request to an apiserver: deadline, error mapping, warnings, query parameters.

Every module of :mod:`moxwell.kube` sends through ``Caller``. It does not retry. A failed response
becomes an error of :mod:`moxwell.kube.errors`, a missing one ``Unreachable``.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from moxwell.api.requests import Handler, Request, Response
from moxwell.errors import Unreachable
from moxwell.kube.errors import error_from

Query = Sequence[tuple[str, str]]
JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class NoAnswer(Unreachable):
    """The apiserver did not answer in time."""

    reason = "DeadlineExceeded"


class Caller:
    """Sends requests to one apiserver."""

    def __init__(
        self,
        handler: Handler,
        *,
        deadline: timedelta = timedelta(seconds=30),
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._handler = handler
        self._deadline = deadline
        self._warn = warn

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> Response:
        """Send a request; raises for every response that is not a success."""
        headers = {"accept": accept}
        if body:
            headers["content-type"] = content
        request = Request(method=method, path=path, query=tuple(query), headers=headers, body=body)
        response = await self._answer(request)
        if self._warn and (text := response.headers.get("warning")):
            for warning in _WARNING.findall(text):
                self._warn(re.sub(r"\\(.)", r"\1", warning))
        if response.status >= 400:
            after = response.headers.get("retry-after", "")
            raise error_from(response.status, response.body, after)
        return response

    async def _answer(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._deadline.total_seconds()):
                return await self._handler.handle(request)
        except TimeoutError as error:
            raise NoAnswer(
                f"{request.method} {request.path} got no answer within {self._deadline}"
            ) from error


def words(**named: Any) -> list[tuple[str, str]]:
    """Query parameters: empty values are omitted, booleans are written as Go parses them."""
    out: list[tuple[str, str]] = []
    for name, value in named.items():
        if value is True:
            out.append((name.rstrip("_"), "true"))
        elif value or (value == 0 and value is not False):
            out.append((name.rstrip("_"), str(value)))
    return out


def selecting(labels: str | Mapping[str, str], fields: str | Mapping[str, str]) -> Query:
    """Label and field selectors as query parameters, each from text or from equalities."""
    return words(labelSelector=_equalities(labels), fieldSelector=_equalities(fields))


def _equalities(terms: Any) -> str:
    if isinstance(terms, Mapping):
        return ",".join(f"{key}={value}" for key, value in sorted(terms.items()))
    return str(terms)
