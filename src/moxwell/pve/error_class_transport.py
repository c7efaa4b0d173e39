"""
Transport to a URL that a user chose: of an error, only its class comes back.

The body of an error would let the user read answers of any server that this process reaches.
"""

from collections.abc import Awaitable

from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params


class ErrorClassTransport:
    """Replaces the text of every error by the name of its class."""

    def __init__(self, transport: Transport) -> None:
        self._inner = transport

    @property
    def region(self) -> str:
        return self._inner.region

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        sent = self._inner.request(method, path, params, deadline_seconds=deadline_seconds)
        return await self._answer(f"{method} {path}", sent)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        sent = self._inner.upload(path, params, file, deadline_seconds=deadline_seconds)
        return await self._answer(f"POST {path}", sent)

    async def _answer(self, what: str, sent: Awaitable[bytes]) -> bytes:
        try:
            return await sent
        except errors.PveError as error:
            text = f"region {self.region}: {what}: {error.reason}"
            raise type(error)(text, status=error.status) from None
        except MoxwellError as error:
            raise type(error)(f"region {self.region}: {what}: {error.reason}") from None

    async def close(self) -> None:
        await self._inner.close()
