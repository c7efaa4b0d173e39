"""
Serves port forwarding over SPDY: each connection of the client is a pair of streams, one for its
data and one for errors, which have the port and a request number in their headers.
"""

import asyncio

from aiohttp import WSMsgType

from moxwell.embedded.apiserver.kubelet.kubelets import Kubelets, KubeletSocket
from moxwell.embedded.apiserver.kubelet.pod_target import PodConnection
from moxwell.embedded.apiserver.kubelet.spdy_session import SpdySession, SpdyStream
from moxwell.embedded.apiserver.status_errors import StatusError

MAX_PORT = 65535


async def serve(session: SpdySession, kubelets: Kubelets, connection: PodConnection) -> None:
    """Forward connections until the client leaves."""
    pairs: dict[str, dict[str, SpdyStream]] = {}
    tasks: set[asyncio.Task[None]] = set()
    reading = asyncio.create_task(session.run())
    try:
        while (stream := await session.opened.get()) is not None:
            number = stream.headers.get("requestid", "")
            pair = pairs.setdefault(number, {})
            pair[stream.headers.get("streamtype", "")] = stream
            if {"data", "error"} <= set(pair):
                del pairs[number]
                task = asyncio.create_task(_forward(session, kubelets, connection, pair))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
    finally:
        for task in (reading, *tasks):
            task.cancel()
        await asyncio.gather(reading, *tasks, return_exceptions=True)


async def _forward(
    session: SpdySession,
    kubelets: Kubelets,
    connection: PodConnection,
    pair: dict[str, SpdyStream],
) -> None:
    data, error = pair["data"], pair["error"]
    try:
        port = data.headers.get("port", "")
        if len(port) > 5 or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise StatusError(400, "BadRequest", f'"{port[:20]}" is not a port')
        async with kubelets.forward(connection.target, int(port)) as kubelet:
            await _copy(data, kubelet)
    except StatusError as problem:
        await error.write(f"error forwarding port {port}: {problem.message}".encode())
    except (ConnectionError, TimeoutError):
        return  # the client left
    finally:
        await _remove(session, data, error)


async def _remove(session: SpdySession, *streams: SpdyStream) -> None:
    try:
        for stream in streams:
            await session.remove(stream)
    except (ConnectionError, TimeoutError):
        return


async def _copy(data: SpdyStream, kubelet: KubeletSocket) -> None:
    async def to_kubelet() -> None:
        while received := await data.read():
            await kubelet.send_bytes(received)

    task = asyncio.create_task(to_kubelet())
    try:
        async for message in kubelet:
            if message.type is WSMsgType.BINARY:
                await data.write(message.data)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
