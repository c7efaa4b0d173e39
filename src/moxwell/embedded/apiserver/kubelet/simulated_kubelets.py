"""
Connects the API server of a tenant to the simulated kubelets of its nodes in the lab.

The lab writes its address and a token to a file, anew at each start, so the file is read for each
request. Outside the lab there is no such file, and requests to kubelets are refused.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    WSServerHandshakeError,
)

from moxwell.embedded.apiserver.kubelet.kubelet_responses import (
    CONNECT_SECONDS,
    MAX_MESSAGE,
    log_of,
    refused,
    unreachable,
)
from moxwell.embedded.apiserver.kubelet.kubelets import Query
from moxwell.embedded.apiserver.kubelet.pod_target import PodTarget
from moxwell.embedded.apiserver.status_errors import StatusError

CHANNELS = "v5.channel.k8s.io"
ERROR_HEADER = "X-Kubelet-Error"  # a refused WebSocket has no body


class _Endpoint(msgspec.Struct, frozen=True):
    url: str
    token: str


class SimulatedKubelets:
    """The kubelets of one cluster in the lab; ``cluster`` is the hash of its CA's public key."""

    def __init__(self, file: Path, cluster: str) -> None:
        self._file, self._cluster = file, cluster
        self._session: ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def logs(self, target: PodTarget, query: Query) -> AsyncIterator[bytes]:
        """The log of a container; raises what the kubelet answered before the first byte."""
        url, headers = self._locate(target, "containerLogs", target.container)
        try:
            response = await self._open().get(url, params=list(query), headers=headers)
        except (ClientError, TimeoutError) as error:
            raise unreachable(target.node, error) from error
        return await log_of(response, target.node)

    @asynccontextmanager
    async def exec(self, target: PodTarget, query: Query) -> AsyncIterator[ClientWebSocketResponse]:
        """Run a command in a container; messages have the channels of Kubernetes."""
        async with self._connect(target, "exec", target.container, query) as socket:
            yield socket

    @asynccontextmanager
    async def forward(self, target: PodTarget, port: int) -> AsyncIterator[ClientWebSocketResponse]:
        """One connection to a port of a pod; messages are its bytes."""
        async with self._connect(target, "portForward", str(port), ()) as socket:
            yield socket

    async def usage(self) -> Mapping[str, Any]:
        """The usage of all nodes of the cluster, with the time of the measurement."""
        endpoint = self._endpoint()
        url = f"{endpoint.url}/clusters/{self._cluster}/usage"
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        try:
            async with self._open().get(url, headers=headers) as response:
                response.raise_for_status()
                found: Mapping[str, Any] = await response.json()
                return found
        except (ClientError, TimeoutError) as error:
            raise unavailable("the metrics of the lab are not available") from error

    @asynccontextmanager
    async def _connect(
        self, target: PodTarget, action: str, last: str, query: Query
    ) -> AsyncIterator[ClientWebSocketResponse]:
        url, headers = self._locate(target, action, last)
        protocols = (CHANNELS,) if action == "exec" else ()
        try:
            socket = await self._open().ws_connect(
                url,
                params=list(query),
                headers=headers,
                protocols=protocols,
                max_msg_size=MAX_MESSAGE,
            )
        except WSServerHandshakeError as error:
            text = error.headers.get(ERROR_HEADER, "") if error.headers else ""
            raise refused(error.status, text, target.node) from error
        except (ClientError, TimeoutError) as error:
            raise unreachable(target.node, error) from error
        try:
            yield socket
        finally:
            await socket.close()

    def _locate(self, target: PodTarget, action: str, last: str) -> tuple[str, dict[str, str]]:
        endpoint = self._endpoint()
        parts = [target.node, action, target.namespace, target.pod, last]
        path = "/".join(quote(part, safe="") for part in parts)
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        return f"{endpoint.url}/clusters/{self._cluster}/nodes/{path}", headers

    def _endpoint(self) -> _Endpoint:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Endpoint)
        except (OSError, msgspec.MsgspecError) as error:
            raise unavailable("the simulated nodes of the lab do not answer") from error

    def _open(self) -> ClientSession:
        if self._session is None:
            timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = ClientSession(timeout=timeout, trust_env=False)
        return self._session


def unavailable(text: str) -> StatusError:
    """The lab does not answer."""
    return StatusError(503, "ServiceUnavailable", f"{text}; moxwell status says whether it runs")
