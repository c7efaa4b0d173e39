"""
Parser of one HTTP/1.1 response: llhttp (through ``httptools``) finds the parts, limits bound them.

Pure: bytes in, an ``HttpResponse`` out; no socket and no clock. The reason phrase is kept because a
401 or 595 of pveproxy has no body and states its cause only there.
"""

from typing import NamedTuple

import httptools

from moxwell.errors import Unreachable

MAX_BODY_BYTES = 8 * 1024 * 1024  # /cluster/resources with 10,000 guests has about 3 MiB
MAX_OVERHEAD_BYTES = 64 * 1024  # beside the body: status line, headers, trailers; see feed()
MAX_INTERIM_RESPONSES = 8  # 1xx before the final response
_FRAMING = frozenset(map(len, (b"content-length", b"transfer-encoding")))


class ConnectionLost(Unreachable):
    """The request was sent, but no complete response came back."""


class BadResponse(ConnectionLost):
    """The server sent something that is not an HTTP response or exceeds a limit."""


class HttpResponse(NamedTuple):
    """Status, reason phrase and body of a response."""

    status: int
    reason: str
    body: bytes


class ResponseReader:
    """Collects one response; ``httptools`` calls the ``on_`` methods."""

    __slots__ = (
        "_body",
        "_has_length",
        "_in_body",
        "_interim",
        "_parser",
        "_reason",
        "_received",
        "_response",
        "keep_alive",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._received = self._interim = 0
        self._reason = b""
        self._body = bytearray()
        self._in_body = self._has_length = False
        self._response: HttpResponse | None = None
        self.keep_alive = False

    def feed(self, data: bytes) -> HttpResponse | None:
        """Parse more bytes; returns the response once it is complete.

        A response may have as many bytes of overhead as its body, and 64 KiB more: that bounds
        headers and trailers, and refuses chunks of a few bytes.
        """
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._failed(error)
        overhead = self._received - len(self._body)
        if self._response is None and overhead > len(self._body) + MAX_OVERHEAD_BYTES:
            raise BadResponse("the headers or chunks of the response are too large")
        return self._response

    def end(self) -> HttpResponse | None:
        """Handle the end of the connection, which completes a body of unknown length."""
        if self._response is None and self._in_body and not self._has_length:
            self._complete()
        return self._response

    def _failed(self, error: Exception) -> None:
        if self._response is not None:
            self.keep_alive = False  # bytes after the end of the response
            return
        cause = error.__context__
        if isinstance(cause, BadResponse):
            raise cause
        raise BadResponse(f"not an HTTP response ({type(error).__name__})") from None

    # ------------------------------------------------------------------ called by httptools

    def on_message_begin(self) -> None:
        if self._response is not None:
            self.keep_alive = False  # a second response to one request

    def on_status(self, reason: bytes) -> None:
        if self._response is None:
            self._reason += reason  # it may come in pieces

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) in _FRAMING and name.lower() in {b"content-length", b"transfer-encoding"}:
            self._has_length = True  # llhttp finds the end

    def on_headers_complete(self) -> None:
        self._in_body = self._response is None and self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            raise BadResponse("the body of the response is too large")

    def on_message_complete(self) -> None:
        if self._response is not None:
            return
        if self._parser.get_status_code() >= 200:
            self.keep_alive = self._parser.should_keep_alive()
            self._complete()
            return
        self._interim += 1
        self._reason = b""
        if self._interim > MAX_INTERIM_RESPONSES:
            raise BadResponse("too many interim responses")

    def _complete(self) -> None:
        self._response = HttpResponse(
            self._parser.get_status_code(), self._reason.decode("latin-1"), bytes(self._body)
        )
