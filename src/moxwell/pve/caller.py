"""
From bytes to typed answers: the thin layer between the endpoint methods and the wire.

In: what an endpoint method wants to send and the type it expects. Out: that type, a ``Upid``, or
nothing. The surprise: Proxmox writes the same number as ``1``, ``"1"`` or ``1.0`` depending on the
endpoint and the release, so decoding is lenient about that, and about nothing else.
"""

from functools import lru_cache
from types import UnionType
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from moxwell.pve import errors
from moxwell.pve.transport import DEADLINE_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params, Upid

T = TypeVar("T")


class Envelope(msgspec.Struct, Generic[T]):
    """What surrounds every answer."""

    data: T
    total: int | None = None


@lru_cache(maxsize=256)
def decoder(answer: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of an answer of this type, made once."""
    return msgspec.json.Decoder(Envelope[answer], strict=False)


def decode(answer: type[T], body: bytes, where: str) -> Envelope[T]:
    """Decode an answer, or say what is odd about it (never quoting it)."""
    try:
        return cast(Envelope[T], decoder(cast(Any, answer)).decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.UnknownPveError(f"answer not understood: {error}", where=where) from error


class Calls:
    """One region's wire, with types."""

    __slots__ = ("_transport",)

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def region(self) -> str:
        return self._transport.region

    @overload
    async def read(self, answer: type[T], path: str, params: Params | None = None) -> T: ...

    @overload
    async def read(self, answer: UnionType, path: str, params: Params | None = None) -> Any: ...

    async def read(self, answer: Any, path: str, params: Params | None = None) -> Any:
        """GET, and the answer's data."""
        return (await self.envelope(answer, path, params)).data

    async def envelope(
        self, answer: type[T], path: str, params: Params | None = None
    ) -> Envelope[T]:
        """GET, with what stands beside the data."""
        body = await self._transport.request("GET", path, params)
        return decode(answer, body, path)

    async def ask(
        self,
        answer: type[T],
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> T:
        """Send a change whose answer says something."""
        body = await self._transport.request(
            method, path, params, deadline_seconds=deadline_seconds
        )
        return decode(answer, body, path).data

    async def send(self, method: str, path: str, params: Params | None = None) -> None:
        """Send a change that is done when it is answered."""
        await self._transport.request(method, path, params)

    async def start(self, method: str, path: str, params: Params | None = None) -> Upid:
        """Send a change that goes on as a task."""
        return Upid(await self.ask(str, method, path, params))

    async def perhaps(self, method: str, path: str, params: Params | None = None) -> Upid | None:
        """Send a change that may be done at once or go on as a task."""
        body = await self._transport.request(method, path, params)
        # Some endpoints answer with null, some with a task, some with a text of no interest.
        data = decode(object, body, path).data
        return Upid(data) if isinstance(data, str) and data.startswith("UPID:") else None

    async def upload(self, path: str, params: Params, file: FileUpload) -> Upid:
        """Send a file."""
        body = await self._transport.upload(path, params, file)
        return Upid(decode(str, body, path).data)
