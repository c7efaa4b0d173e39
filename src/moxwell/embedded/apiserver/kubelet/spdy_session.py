"""
The server's side of one SPDY connection: the streams that the client opens.

A stream that is not read stops the reading of its connection, which bounds the memory in use.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from moxwell.embedded.apiserver.kubelet import spdy_frames
from moxwell.embedded.apiserver.kubelet.spdy_frames import FrameReader, FrameWriter, SpdyError

MAX_STREAMS, QUEUED, CHUNK = 256, 16, 32 * 1024


class ByteStream(Protocol):
    """The bytes of the connection that carries the frames."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...


class SpdyStream:
    """One stream that the client opened."""

    def __init__(self, session: "SpdySession", number: int, headers: Mapping[str, str]) -> None:
        self._session, self.number, self.headers = session, number, headers
        self.received: asyncio.Queue[bytes] = asyncio.Queue(QUEUED)
        self._closed = self._ended = False

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        if self._ended:
            return b""
        data = await self.received.get()
        self._ended = not data
        return data

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            if not self._closed:
                await self._session.send_data(self.number, data[at : at + CHUNK])

    async def close(self) -> None:
        """End our direction."""
        if not self._closed:
            self._closed = True
            await self._session.send_data(self.number, b"", fin=True)


class SpdySession:
    """All streams of one connection."""

    def __init__(self, connection: ByteStream) -> None:
        self._connection = connection
        self._reader, self._writer = FrameReader(), FrameWriter()
        self._streams: dict[int, SpdyStream] = {}
        self.opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()

    async def run(self) -> None:
        """Read frames until the client ends the connection."""
        try:
            while data := await self._connection.read():
                for frame in self._reader.feed(data):
                    if isinstance(frame, spdy_frames.GoAway):
                        return
                    await self._handle(frame)
        except SpdyError:
            return
        finally:
            self.opened.put_nowait(None)

    async def send_data(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        await self._connection.write(self._writer.data(stream, data, fin=fin))

    async def remove(self, stream: SpdyStream) -> None:
        """Close a stream and forget it."""
        await stream.close()
        self._streams.pop(stream.number, None)
        while not stream.received.empty():  # the reader may wait for room
            stream.received.get_nowait()

    async def _handle(self, frame: spdy_frames.Frame) -> None:
        match frame:
            case spdy_frames.StreamOpened():
                await self._open(frame)
            case spdy_frames.StreamData():
                stream = self._streams.get(frame.stream)
                if stream is not None and frame.data:
                    await stream.received.put(frame.data)
                if stream is not None and frame.fin:
                    await stream.received.put(b"")
            case spdy_frames.StreamReset():
                stream = self._streams.pop(frame.stream, None)
                if stream is not None:
                    await stream.received.put(b"")
            case spdy_frames.PingReceived():
                await self._connection.write(self._writer.ping(frame.number))

    async def _open(self, frame: spdy_frames.StreamOpened) -> None:
        if len(self._streams) >= MAX_STREAMS:
            await self._connection.write(self._writer.reset(frame.stream))
            return
        stream = SpdyStream(self, frame.stream, frame.headers)
        self._streams[frame.stream] = stream
        await self._connection.write(self._writer.reply(frame.stream))
        if frame.fin:
            await stream.received.put(b"")
        self.opened.put_nowait(stream)
