"""No bytes of a client of exec or port forwarding cost more than its own connection."""

import asyncio
import contextlib
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.embedded.apiserver.kubelet.spdy_frames import (
    MAX_FRAME,
    MAX_HEADERS,
    FrameReader,
    SpdyError,
    StreamData,
    StreamOpened,
    header_dictionary,
)
from moxwell.embedded.apiserver.kubelet.spdy_session import MAX_STREAMS, SpdySession


def control(kind: int, payload: bytes, *, version: int = 3) -> bytes:
    return struct.pack(">II", 1 << 31 | version << 16 | kind, len(payload)) + payload


def block(raw: bytes) -> bytes:
    """A header block with these bytes before compression."""
    packer = zlib.compressobj(zdict=header_dictionary())
    return packer.compress(raw) + packer.flush(zlib.Z_SYNC_FLUSH)


def opened(stream: int, raw: bytes) -> bytes:
    return control(1, struct.pack(">IIBB", stream, 0, 0, 0) + block(raw))


def texts(*words: bytes) -> bytes:
    return struct.pack(">I", len(words) // 2) + b"".join(
        struct.pack(">I", len(word)) + word for word in words
    )


def drain(data: bytes) -> list[object]:
    """The frames, or what came before the protocol was broken."""
    found: list[object] = []
    with contextlib.suppress(SpdyError):
        found.extend(FrameReader().feed(data))  # keeps those before the error
    return found


FRAMES = st.one_of(
    st.builds(control, st.integers(0, 12), st.binary(max_size=64), version=st.integers(2, 4)),
    st.builds(opened, st.integers(0, 2**31 - 1), st.binary(max_size=64)),
    st.builds(opened, st.just(1), st.builds(texts, st.binary(max_size=9), st.binary(max_size=9))),
    st.binary(max_size=64),
)


@given(st.lists(FRAMES, max_size=8))
def test_any_bytes_are_frames_or_an_error(parts: list[bytes]) -> None:
    drain(b"".join(parts))


@given(st.lists(FRAMES, max_size=6), st.integers(1, 7))
def test_frames_do_not_depend_on_how_their_bytes_arrive(parts: list[bytes], size: int) -> None:
    data, reader, found = b"".join(parts), FrameReader(), list[object]()
    with contextlib.suppress(SpdyError):
        for at in range(0, len(data), size):
            found.extend(reader.feed(data[at : at + size]))
    assert found == drain(data)[: len(found)]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 1, MAX_FRAME + 1),
        opened(1, b"\0" * (MAX_HEADERS + 1)),  # 64 KiB in less than 200 bytes
        opened(1, struct.pack(">I", 2**32 - 1)),  # as many headers as can be named
        opened(1, struct.pack(">II", 1, 2**32 - 1)),
        control(1, b""),
        control(1, struct.pack(">I", 1), version=2),
        control(1, struct.pack(">IIBB", 1, 0, 0, 0) + b"not compressed"),
    ],
)
def test_what_breaks_the_protocol_is_refused_without_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SpdyError):
            list(FrameReader().feed(data))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_stream_is_read_as_it_was_sent() -> None:
    data = opened(5, texts(b"StreamType", b"stdin")) + struct.pack(">II", 5, 3) + b"abc"
    assert drain(data) == [
        StreamOpened(5, {"streamtype": "stdin"}, fin=False),
        StreamData(5, b"abc", fin=False),
    ]


class Client:
    """A connection that sends some bytes and keeps what it gets."""

    def __init__(self, data: bytes) -> None:
        self._data, self.sent = data, 0

    async def read(self) -> bytes:
        data, self._data = self._data, b""
        return data

    async def write(self, data: bytes) -> None:
        self.sent += 1


def test_a_client_opens_a_limited_number_of_streams() -> None:
    packer, frames = zlib.compressobj(zdict=header_dictionary()), []
    for stream in range(1, 4 * MAX_STREAMS, 2):
        headers = packer.compress(texts(b"streamtype", b"data"))
        headers += packer.flush(zlib.Z_SYNC_FLUSH)
        frames.append(control(1, struct.pack(">IIBB", stream, 0, 0, 0) + headers))
    client = Client(b"".join(frames))
    session = SpdySession(client)
    asyncio.run(session.run())
    assert session.opened.qsize() == MAX_STREAMS + 1  # the last entry is the end
    assert client.sent == 2 * MAX_STREAMS  # the others are refused, one by one
