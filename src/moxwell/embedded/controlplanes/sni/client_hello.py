"""
Reads the server name of a TLS ClientHello without decrypting anything. Pure.

``server_name`` is given the bytes that a client has sent so far: it returns the name, or None if
more bytes are needed, and raises ``InvalidClientHello`` as soon as they cannot become a ClientHello
with a name. A message may be split over records (RFC 8446 5.1); the extension is that of RFC 6066.
"""

from moxwell.errors import Invalid

MAX_BYTES = 16 * 1024  # of records that a client may send before its name is known
HANDSHAKE, CLIENT_HELLO, SERVER_NAME, HOST_NAME = 22, 1, 0, 0
MAX_RECORD, MAX_NAME = 1 << 14, 253
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class InvalidClientHello(Invalid):
    """The bytes are no ClientHello with a server name."""

    reason = "InvalidClientHello"


class _Incomplete(Exception):
    """More bytes are needed."""


class _Cursor:
    """Reads from a message whose end is known."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise InvalidClientHello("a field is longer than the message")
        found, self._at = self._data[self._at : end], end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> "_Cursor":
        """A field that begins with its length in ``size`` bytes."""
        return _Cursor(self.take(self.number(size)))

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    @property
    def done(self) -> bool:
        return self._at >= len(self._data)


def server_name(data: bytes) -> str | None:
    """The name in lower case; None: more bytes are needed."""
    try:
        hello = _handshake(data)
    except _Incomplete:
        if len(data) >= MAX_BYTES:
            raise InvalidClientHello(f"no name within {MAX_BYTES} bytes") from None
        return None
    return _name(_extensions(_Cursor(hello)))


def _handshake(data: bytes) -> bytes:
    """The body of the ClientHello, joined from its records."""
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        part, at = _record(data, at)
        message += part
        if message[0] != CLIENT_HELLO:
            raise InvalidClientHello("the first message is not a ClientHello")
        if len(message) >= 4 and int.from_bytes(message[1:4]) > MAX_BYTES:
            raise InvalidClientHello("the ClientHello is too long")
    return message[4 : 4 + int.from_bytes(message[1:4])]


def _record(data: bytes, at: int) -> tuple[bytes, int]:
    """The content of the record that begins at ``at``, and where it ends."""
    head = data[at : at + 5]
    if head[:1] not in (b"", bytes([HANDSHAKE])) or head[1:2] not in (b"", b"\x03"):
        raise InvalidClientHello("not TLS")
    if len(head) < 5:
        raise _Incomplete
    length = int.from_bytes(head[3:5])
    if not 0 < length <= MAX_RECORD:
        raise InvalidClientHello("the length of a record is not valid")
    end = at + 5 + length
    if len(data) < end:
        raise _Incomplete
    return data[at + 5 : end], end


def _extensions(hello: _Cursor) -> dict[int, _Cursor]:
    hello.take(2 + 32)  # version and random
    hello.vector(1)  # session
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    found: dict[int, _Cursor] = {}
    if hello.done:
        return found
    extensions = hello.vector(2)
    while not extensions.done:
        kind = extensions.number(2)
        if kind in found:
            raise InvalidClientHello("an extension occurs twice")
        found[kind] = extensions.vector(2)
    return found


def _name(extensions: dict[int, _Cursor]) -> str:
    if SERVER_NAME not in extensions:
        raise InvalidClientHello("the client names no server")
    names = extensions[SERVER_NAME].vector(2)
    kind, name = names.number(1), names.vector(2)
    if kind != HOST_NAME:
        raise InvalidClientHello("the name is not a host name")
    text = name.rest().decode("ascii", errors="replace").lower().removesuffix(".")
    if not 0 < len(text) <= MAX_NAME or not set(text) <= _CHARACTERS:
        raise InvalidClientHello("the name is not a host name")
    return text
