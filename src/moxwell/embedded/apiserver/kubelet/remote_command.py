"""Serves exec over SPDY: one stream for each of stdin, stdout, stderr, the status and the size."""

import asyncio

from aiohttp import WSMsgType

from moxwell.embedded.apiserver.kubelet.kubelets import KubeletSocket
from moxwell.embedded.apiserver.kubelet.pod_target import PodConnection
from moxwell.embedded.apiserver.kubelet.spdy_session import SpdySession, SpdyStream

NUMBERS = {"stdin": 0, "stdout": 1, "stderr": 2, "error": 3, "resize": 4}
CLOSE = 255
OPEN_SECONDS, LINGER_SECONDS = 30.0, 5.0


def expected_streams(connection: PodConnection) -> set[str]:
    """The types of the streams that the client opens."""
    query = dict(connection.query)
    asked = {name for name in ("stdin", "stdout", "stderr") if query.get(name) == "true"}
    if query.get("tty") == "true":
        asked = (asked - {"stderr"}) | {"resize"}
    return asked | {"error"}


async def serve(session: SpdySession, kubelet: KubeletSocket, connection: PodConnection) -> None:
    """Serve one command until it ends or the client leaves."""
    reading = asyncio.create_task(session.run())
    copying: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            streams = await _accept(session, expected_streams(connection))
        for name in {"stdin", "resize"} & set(streams):
            copying.append(asyncio.create_task(_to_kubelet(streams[name], kubelet, NUMBERS[name])))
        copying.append(asyncio.create_task(_end_with(reading, kubelet)))
        await _from_kubelet(kubelet, {NUMBERS[name]: s for name, s in streams.items()})
        for stream in streams.values():
            await stream.close()
        await asyncio.wait((reading,), timeout=LINGER_SECONDS)  # the client closes
    except (TimeoutError, ConnectionError):
        return
    finally:
        for task in (reading, *copying):
            task.cancel()
        await asyncio.gather(reading, *copying, return_exceptions=True)


async def _accept(session: SpdySession, names: set[str]) -> dict[str, SpdyStream]:
    found: dict[str, SpdyStream] = {}
    while set(found) < names:
        stream = await session.opened.get()
        if stream is None:
            raise ConnectionError("the client left")
        name = stream.headers.get("streamtype", "")
        if name in names and name not in found:
            found[name] = stream
    return found


async def _to_kubelet(stream: SpdyStream, kubelet: KubeletSocket, number: int) -> None:
    while data := await stream.read():
        await kubelet.send_bytes(bytes([number]) + data)
    await kubelet.send_bytes(bytes([CLOSE, number]))


async def _end_with(reading: "asyncio.Task[None]", kubelet: KubeletSocket) -> None:
    """A client that leaves ends the command."""
    await asyncio.wait((reading,))
    await kubelet.close()


async def _from_kubelet(kubelet: KubeletSocket, streams: dict[int, SpdyStream]) -> None:
    async for message in kubelet:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        stream = streams.get(message.data[0])
        if stream is not None:
            await stream.write(message.data[1:])
