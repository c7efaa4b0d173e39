"""
Transport whose responses a function returns, to test the logic of the client without HTTP.

The function gets method, path and parameters and returns data, or an error that is raised. The
transport records everything sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload
from moxwell.pve.values import Params

Answerer = Callable[[str, str, dict[str, Any]], Any | Awaitable[Any]]


@dataclass(slots=True, eq=False)
class ScriptedTransport:
    """A transport with scripted responses."""

    answer: Answerer
    region: str = "r1"
    sent: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    closed: bool = False

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        form = {key: value for key, value in (params or {}).items() if value is not None}
        self.sent.append((method, path, form))
        data = self.answer(method, path, form)
        if asyncio.iscoroutine(data):
            data = await data
        if isinstance(data, BaseException):
            raise data
        return msgspec.json.encode({"data": data})

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        return await self.request("UPLOAD", path, {**params, "filename": file.filename})

    async def close(self) -> None:
        self.closed = True
