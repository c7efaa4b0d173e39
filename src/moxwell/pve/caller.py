"""
Sends typed requests to one region and decodes the JSON answer into the given type.

``ReadCaller`` sends GET requests. ``WriteCaller`` adds the other methods and passes each of them
through :class:`moxwell.pve.effects.Effects`, which checks, audits and counts it. Proxmox writes the
same number as ``1``, ``"1"`` or ``1.0`` depending on the endpoint and the release; decoding accepts
that and is strict otherwise.
"""

from functools import lru_cache
from types import UnionType
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from moxwell.pve import errors
from moxwell.pve.effects import Effects, Owned, PveWrite
from moxwell.pve.transport import DEADLINE_SECONDS, FileUpload, Transport
from moxwell.pve.values import Params, Upid

T = TypeVar("T")
MAX_VALUES = 1_000_000  # in one answer; a region with 10,000 guests has 200,000
_SEPARATORS = (b",", b"[", b"{")


class Envelope(msgspec.Struct, Generic[T]):
    """The object that surrounds the data of every answer."""

    data: T
    total: int | None = None


@lru_cache(maxsize=256)
def decoder(answer: Any) -> msgspec.json.Decoder[Any]:
    """Return the cached decoder of an answer type."""
    return msgspec.json.Decoder(Envelope[answer], strict=False)


def decode(answer: type[T], body: bytes, where: str) -> Envelope[T]:
    """Decode an answer; the error names the place and never quotes the body."""
    if sum(map(body.count, _SEPARATORS)) > MAX_VALUES:
        text = f"cannot decode the answer: it has more than {MAX_VALUES} values"
        raise errors.InvalidAnswer(text, where=where)
    try:
        return cast(Envelope[T], decoder(cast(Any, answer)).decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.InvalidAnswer(f"cannot decode the answer: {error}", where=where) from error
    except RecursionError:
        # Without the cause: its traceback has a thousand frames.
        raise errors.InvalidAnswer(
            "cannot decode the answer: it is nested too deeply", where=where
        ) from None


class ReadCaller:
    """Sends GET requests to one region."""

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
        """Send a GET and return the data of the answer."""
        body = await self._transport.request("GET", path, params)
        return decode(answer, body, path).data


class WriteCaller(ReadCaller):
    """Sends every method to one region; ``owned`` limits what the writes may touch."""

    __slots__ = ("_effects", "_owned")

    def __init__(self, transport: Transport, effects: Effects, owned: Owned | None) -> None:
        super().__init__(transport)
        self._effects = effects
        self._owned = owned

    async def write(self, method: str, path: str, params: Params | None = None) -> None:
        """Send a change that is complete when it is answered."""
        await self._send(method, path, params)

    async def write_for(
        self,
        answer: type[T],
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> T:
        """Send a change and return the data of its answer."""
        return decode(answer, await self._send(method, path, params, deadline_seconds), path).data

    async def start_task(self, method: str, path: str, params: Params | None = None) -> Upid:
        """Send a change that Proxmox performs as a task."""
        return Upid(await self.write_for(str, method, path, params))

    async def maybe_start_task(
        self, method: str, path: str, params: Params | None = None
    ) -> Upid | None:
        """Send a change that Proxmox performs at once (None) or as a task."""
        # Some endpoints answer with null, some with a task, some with an unrelated text.
        data = decode(object, await self._send(method, path, params), path).data
        return Upid(data) if isinstance(data, str) and data.startswith("UPID:") else None

    async def upload(self, path: str, params: Params, file: FileUpload) -> Upid:
        """Send a file."""
        write = self._as_write("POST", path, {**params, "filename": file.filename})
        body = await self._effects.send(write, lambda: self._transport.upload(path, params, file))
        return Upid(decode(str, body, path).data)

    async def _send(
        self,
        method: str,
        path: str,
        params: Params | None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        return await self._effects.send(
            self._as_write(method, path, params or {}),
            lambda: self._transport.request(
                method, path, params, deadline_seconds=deadline_seconds
            ),
        )

    def _as_write(self, method: str, path: str, params: Params) -> PveWrite:
        return PveWrite(self.region, method, path, params, self._owned)


class ReadEndpoints:
    """Base of the endpoint groups that only read."""

    def __init__(self, caller: ReadCaller) -> None:
        self._caller = caller


class WriteEndpoints(ReadEndpoints):
    """Base of the endpoint groups that also write."""

    _caller: WriteCaller

    def __init__(self, caller: WriteCaller) -> None:
        super().__init__(caller)
