"""
Frames of SPDY/3.1, which kubectl uses for exec and port forwarding where WebSocket is refused, and
inside WebSocket for port forwarding.

Only what the clients of Kubernetes send is supported. There is no flow control: those clients have
none. Header blocks are compressed with a dictionary of the specification (draft-mbelshe-httpbis-
spdy-00), one stream of compression for each direction of a connection.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

VERSION, FIN = 3, 0x01
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS = 1, 2, 3, 4, 6, 7, 8
MAX_FRAME, MAX_HEADERS = 1 << 20, 64 * 1024
REFUSED_STREAM = 3
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def header_dictionary() -> bytes:
    """The dictionary that header blocks are compressed with."""
    words = [word.replace("_", " ").encode() for word in _WORDS.split()]
    return b"".join(struct.pack(">I", len(w)) + w for w in words) + _REST.encode()


class SpdyError(Exception):
    """The client does not keep to the protocol."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The client opened a stream."""

    stream: int
    headers: Mapping[str, str]
    fin: bool


@dataclass(frozen=True, slots=True)
class StreamData:
    """Bytes of a stream; ``fin`` ends its direction."""

    stream: int
    data: bytes
    fin: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    """The client gave up a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class PingReceived:
    """A ping, which is sent back."""

    number: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """The client ends the connection."""


Frame = StreamOpened | StreamData | StreamReset | PingReceived | GoAway


class FrameReader:
    """Splits the bytes of a client into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=header_dictionary())

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete; raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & 0xFFFFFF
            if length > MAX_FRAME:
                raise SpdyError(f"a frame of {length} bytes is too long")
            if len(self._buffer) < 8 + length:
                return
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if (frame := self._frame(first, second >> 24, payload)) is not None:
                yield frame

    def _frame(self, first: int, flags: int, payload: bytes) -> Frame | None:
        fin = bool(flags & FIN)
        if not first >> 31:
            return StreamData(first, payload, fin)
        if (first >> 16) & 0x7FFF != VERSION:
            raise SpdyError("only version 3 is supported")
        try:
            return self._control(first & 0xFFFF, fin, payload)
        except struct.error as error:
            raise SpdyError("a control frame is too short") from error

    def _control(self, kind: int, fin: bool, payload: bytes) -> Frame | None:
        if kind == SYN_STREAM:
            (stream,) = struct.unpack_from(">I", payload)
            return StreamOpened(stream & 0x7FFFFFFF, self._headers(payload[10:]), fin)
        if kind in (SYN_REPLY, HEADERS):
            self._headers(payload[4:])  # keeps the compression in step
        if kind == RST_STREAM:
            return StreamReset(struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF)
        if kind == PING:
            return PingReceived(struct.unpack_from(">I", payload)[0])
        return GoAway() if kind == GOAWAY else None

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            data = self._inflate.decompress(block, MAX_HEADERS)
        except zlib.error as error:
            raise SpdyError("the headers cannot be decompressed") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError("the headers are too long")
        texts, at = [], 4
        (count,) = struct.unpack_from(">I", data)
        for _ in range(2 * count):
            (length,) = struct.unpack_from(">I", data, at)
            texts.append(data[at + 4 : at + 4 + length].decode(errors="replace"))
            at += 4 + length
        return {k.lower(): v for k, v in zip(texts[::2], texts[1::2], strict=True)}


class FrameWriter:
    """Encodes the frames of a server."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=header_dictionary())

    def reply(self, stream: int) -> bytes:
        """Accept a stream, with no headers."""
        block = self._deflate.compress(struct.pack(">I", 0))
        block += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """Send bytes; at most one frame's."""
        return struct.pack(">II", stream, (FIN if fin else 0) << 24 | len(data)) + data

    def reset(self, stream: int) -> bytes:
        """Refuse a stream."""
        return _control_frame(RST_STREAM, struct.pack(">II", stream, REFUSED_STREAM))

    def ping(self, number: int) -> bytes:
        return _control_frame(PING, struct.pack(">I", number))


def _control_frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">II", 1 << 31 | VERSION << 16 | kind, len(payload)) + payload
