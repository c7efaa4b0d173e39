"""
Connects the API server of a tenant to the genuine kubelets of its nodes.

The client certificate proves the API server to the kubelet. Kubelets sign their serving
certificates themselves; as kube-apiserver without ``--kubelet-certificate-authority`` this client
does not verify them. The address and the port are those in the status of the Node, which its
kubelet writes, so addresses of this machine are refused, and redirects, which lead anywhere.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    TCPConnector,
    TraceConfig,
    TraceRequestRedirectParams,
    WSMessage,
    WSMsgType,
    WSServerHandshakeError,
)

from moxwell.clock import Clock
from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.kubelet import node_usage
from moxwell.embedded.apiserver.kubelet.kubelet_responses import (
    CHUNK,
    CONNECT_SECONDS,
    MAX_ERROR,
    MAX_MESSAGE,
    log_of,
    refused,
    unreachable,
)
from moxwell.embedded.apiserver.kubelet.kubelets import FindNodes, Json, Query
from moxwell.embedded.apiserver.kubelet.pod_target import PodTarget

CHANNELS = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # containerd 1.x knows the older one only
FORWARD = ("v4.channel.k8s.io",)
STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
USAGE_SECONDS, MAX_USAGE, AT_ONCE = 10.0, 8 << 20, 16
TYPES, PORT = ("InternalIP", "ExternalIP"), 10250


class GenuineKubelets:
    """The kubelets of one cluster."""

    def __init__(self, context: ssl.SSLContext, find: FindNodes, clock: Clock) -> None:
        """``context`` has the client certificate."""
        self._context, self._find, self._clock = context, find, clock
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def logs(self, target: PodTarget, query: Query) -> AsyncIterator[bytes]:
        url = self._url(target, "containerLogs", target.container)
        kept = [row for row in query if row[0] != "container"]
        try:
            response = await self._open().get(url, params=kept)
        except (ClientError, TimeoutError) as error:
            raise unreachable(target.node, error) from error
        return await log_of(response, target.node)

    @asynccontextmanager
    async def exec(self, target: PodTarget, query: Query) -> AsyncIterator[ClientWebSocketResponse]:
        words = [row for row in query if row[0] == "command"]
        words += [(STREAMS[k], "1") for k, v in query if k in STREAMS and v in ("true", "1")]
        url = self._url(target, "exec", target.container)
        async with self._connect(target.node, url, words, CHANNELS) as socket:
            yield socket

    @asynccontextmanager
    async def forward(self, target: PodTarget, port: int) -> AsyncIterator["ForwardedPort"]:
        url = self._url(target, "portForward")
        async with self._connect(target.node, url, [("port", str(port))], FORWARD) as socket:
            yield ForwardedPort(socket)

    async def usage(self) -> Mapping[str, Any]:
        limit = asyncio.Semaphore(AT_ONCE)
        nodes = [node["metadata"]["name"] for node in self._find("")]
        found = await asyncio.gather(*(self._usage(name, limit) for name in nodes))
        rows = {name: row for name, row in zip(nodes, found, strict=True) if row is not None}
        return {"timestamp": metadata.timestamp(self._clock.now()), "nodes": rows}

    async def _usage(self, node: str, limit: asyncio.Semaphore) -> Json | None:
        """The usage of a node and its pods; None if its kubelet does not report it."""
        try:
            async with limit, asyncio.timeout(USAGE_SECONDS):
                data = await self._summary(f"{self._base(node)}/stats/summary")
            return node_usage.read(data)
        except (ClientError, TimeoutError, msgspec.MsgspecError, status_errors.StatusError):
            return None

    async def _summary(self, url: str) -> bytes:
        async with self._open().get(url) as response:
            response.raise_for_status()
            data = bytearray()
            async for chunk in response.content.iter_chunked(CHUNK):
                data += chunk
                if len(data) > MAX_USAGE:
                    raise ClientError("the kubelet answers too much")
            return bytes(data)

    @asynccontextmanager
    async def _connect(
        self, node: str, url: str, query: Query, protocols: tuple[str, ...]
    ) -> AsyncIterator[ClientWebSocketResponse]:
        try:
            socket = await self._open().ws_connect(
                url, params=list(query), protocols=protocols, max_msg_size=MAX_MESSAGE
            )
        except WSServerHandshakeError as error:
            raise refused(error.status, "", node) from error
        except (ClientError, TimeoutError) as error:
            raise unreachable(node, error) from error
        try:
            yield socket
        finally:
            await socket.close()

    def _url(self, target: PodTarget, action: str, *last: str) -> str:
        parts = [action, target.namespace, target.pod, *last]
        return "/".join([self._base(target.node), *(quote(part, safe="") for part in parts)])

    def _base(self, name: str) -> str:
        nodes = list(self._find(name))
        if not nodes:
            raise status_errors.not_found("nodes", "", name)
        return node_url(nodes[0])

    def _open(self) -> ClientSession:
        if self._session is None:
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            connector = TCPConnector(ssl=self._context)
            trace = TraceConfig()
            trace.on_request_redirect.append(_refuse_redirect)
            self._session = ClientSession(
                timeout=timeout, connector=connector, trust_env=False, trace_configs=[trace]
            )
        return self._session


async def _refuse_redirect(_: object, __: object, answer: TraceRequestRedirectParams) -> None:
    answer.response.close()
    raise ClientError("the kubelet answers with a redirect")


class ForwardedPort:
    """One forwarded connection: channel 0 is its data, 1 its errors; both begin with the port."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send_bytes(self, data: bytes) -> None:
        await self._socket.send_bytes(b"\0" + data)

    async def close(self) -> None:
        await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        named: set[int] = set()
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in named:
                named.add(channel)
            elif channel == 0:
                yield WSMessage(WSMsgType.BINARY, data, "")
            elif channel == 1 and data:
                text = data.decode(errors="replace")[:MAX_ERROR]
                raise status_errors.internal(text)


def node_url(node: Json) -> str:
    """The address of a kubelet; raises if it is none or one of this machine."""
    status, name = node.get("status") or {}, node["metadata"]["name"]
    rows = status.get("addresses") or ()
    found = (r["address"] for kind in TYPES for r in rows if r.get("type") == kind)
    address = next(found, "")
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or PORT
    try:
        parsed = ip_address(address)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed  # ::ffff:127.0.0.1 is 127.0.0.1
    except ValueError:
        raise status_errors.internal(f'node "{name}" has no address yet') from None
    if parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified or parsed.is_multicast:
        raise status_errors.internal(f'node "{name}" has an address that is not served: {address}')
    return f"https://[{parsed}]:{port}" if parsed.version == 6 else f"https://{parsed}:{port}"
