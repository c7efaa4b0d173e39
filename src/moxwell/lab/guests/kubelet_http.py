"""
Serves the kubelets of all simulated nodes on one port of loopback.

The embedded API servers of tenants use it as kube-apiserver uses kubelets: logs, exec, port
forwarding and usage. They read its address and a token from a file that only this user can read.
A cluster is named by the hash of its CA's public key.
"""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from aiohttp import WSMsgType, web

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.errors import Invalid, Missing
from moxwell.lab.guests import container_logs, container_session, simulated_http
from moxwell.lab.guests.container_logs import LogOptions
from moxwell.lab.guests.container_session import ContainerSession, ExecOptions
from moxwell.lab.guests.running_kubelets import Json, RunningKubelet, RunningKubelets
from moxwell.lab.guests.simulated_shell import SimulatedShell

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FOLLOW_SECONDS, MAX_MESSAGE, WRITE_SECONDS = 1.0, 1 << 20, 60.0
MAX_STREAMS = 512  # of all clusters; each API server limits its own


class KubeletEndpoint(msgspec.Struct, frozen=True):
    """How to reach the kubelets; a file for the API servers."""

    url: str
    token: str


class KubeletServer:
    """The HTTP server of the kubelets."""

    def __init__(self, kubelets: RunningKubelets, clock: Clock) -> None:
        self._kubelets, self._clock = kubelets, clock
        self._token = secrets.token_urlsafe(32)
        self._runner: web.AppRunner | None = None
        self._streams = asyncio.Semaphore(MAX_STREAMS)

    async def start(self, file: Path) -> None:
        """Listen on a free port of loopback and write the file."""
        app = web.Application(middlewares=[self._authenticated])
        node = "/clusters/{cluster}/nodes/{node}"
        pod = "{namespace}/{pod}"
        app.router.add_get("/clusters/{cluster}/usage", self._usage)
        app.router.add_get(f"{node}/containerLogs/{pod}/{{container}}", self._logs)
        app.router.add_get(f"{node}/exec/{pod}/{{container}}", self._exec)
        app.router.add_get(f"{node}/portForward/{pod}/{{port}}", self._forward)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        endpoint = KubeletEndpoint(f"http://127.0.0.1:{port}", self._token)
        write_private(file, msgspec.json.encode(endpoint))

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return web.Response(status=401, text="Unauthorized")
        if self._streams.locked():
            return web.Response(status=429, text="too many streams to simulated kubelets")
        try:
            async with self._streams:
                return await handler(request)
        except Missing as error:
            return _refusal(404, str(error))
        except Invalid as error:
            return _refusal(400, str(error))

    def _kubelet(self, request: web.Request) -> RunningKubelet:
        return self._kubelets.get(request.match_info["cluster"], request.match_info["node"])

    def _pod(self, request: web.Request) -> Json:
        names = request.match_info
        return self._kubelet(request).find(names["namespace"], names["pod"])

    async def _usage(self, request: web.Request) -> web.Response:
        now = self._clock.now()
        usage = self._kubelets.usage(request.match_info["cluster"], now)
        return web.json_response({"timestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}", "nodes": usage})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod, container = self._pod(request), request.match_info["container"]
        options = log_options(request.query, self._clock.now())
        lines = container_logs.selected(pod, container, options, self._clock.now())
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        data = b"".join(line.render(timestamps=options.timestamps) for line in lines)
        await response.write(data[: options.limit_bytes])
        if request.query.get("follow") == "true" and options.limit_bytes is None:
            await self._follow(request, response, options)
        await response.write_eof()
        return response

    async def _follow(
        self, request: web.Request, response: web.StreamResponse, options: LogOptions
    ) -> None:
        """Send new lines until the container ends or its node stops."""
        container, shown = request.match_info["container"], self._clock.now()
        while True:
            try:
                pod = self._pod(request)
            except Missing:
                return
            now = self._clock.now()
            new = [n for n in container_logs.log_lines(pod, container, now) if n.time > shown]
            shown = now
            for line in new:
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(line.render(timestamps=options.timestamps))
            state = container_logs.container_status(pod, container).get("state") or {}
            if "running" not in state:
                return
            await self._clock.sleep(FOLLOW_SECONDS)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        pod, query = self._pod(request), request.query
        found = [
            c for c in pod["spec"]["containers"] if c["name"] == request.match_info["container"]
        ]
        state = container_logs.container_status(pod, request.match_info["container"]).get("state")
        if not found or "running" not in (state or {}):
            raise Invalid(f'container not running ("{request.match_info["container"]}")')
        options = ExecOptions(
            tuple(query.getall("command", [])),
            query.get("stdin") == "true",
            query.get("tty") == "true",
        )
        socket = _socket(container_session.PROTOCOL)
        await socket.prepare(request)
        await ContainerSession(socket, SimulatedShell(pod, found[0]), options).run()
        return socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        pod, port = self._pod(request), int(request.match_info["port"])
        if problem := simulated_http.port_problem(pod, port):
            raise Invalid(problem)
        socket, server = _socket(), simulated_http.SimulatedHttp(pod, port)
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                break
            if answer := server.feed(message.data):
                await socket.send_bytes(answer)
                break
        await socket.close()
        return socket


def _refusal(status: int, text: str) -> web.Response:
    """The text is also a header: a client whose WebSocket is refused does not see the body."""
    header = text.encode("ascii", "replace").decode().replace("\n", " ")
    return web.Response(status=status, text=text, headers={"X-Kubelet-Error": header})


def _socket(*protocols: str) -> web.WebSocketResponse:
    return web.WebSocketResponse(protocols=protocols, max_msg_size=MAX_MESSAGE, heartbeat=30)


def log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options of a log request; raises Invalid."""
    try:
        since = None
        if "sinceTime" in query:
            since = datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00")).astimezone(
                UTC
            )
        elif "sinceSeconds" in query:
            since = now - timedelta(seconds=int(query["sinceSeconds"]))
        return LogOptions(
            previous=query.get("previous") == "true",
            timestamps=query.get("timestamps") == "true",
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            since=since,
            limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
        )
    except (ValueError, OverflowError) as error:
        raise Invalid(f"invalid log options: {error}") from error
