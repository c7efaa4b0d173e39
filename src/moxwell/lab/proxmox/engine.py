"""
Handles API requests in the order of checks of the PVE API server.

Authentication, route, duplicate parameters, whether API tokens are allowed, permissions, the target
node, the parameter schema, then the handler. ``Engine`` holds one
:class:`~moxwell.lab.proxmox.request_context.RegionRuntime` per region and runs nothing while there
is neither a request nor a task.
"""

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from moxwell.clock import Clock
from moxwell.lab.proxmox import cluster, endpoints, pvestatd, schema_routes
from moxwell.lab.proxmox.access import auth
from moxwell.lab.proxmox.builtin_guest import BuiltinGuest
from moxwell.lab.proxmox.errors import PveException, forbidden, param_error
from moxwell.lab.proxmox.fault_injection import FaultRules
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.message import (
    CUT,
    SimRequest,
    SimResponse,
    error_response,
    success_response,
)
from moxwell.lab.proxmox.parameter_validation import verify
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.proxmox.tasks import FileLocks, Workers

METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})


class ProxyError(PveException):
    """A proxy error (595) without a body."""


class Engine:
    """All regions of one simulator."""

    def __init__(
        self,
        regions: dict[str, SimRegion],
        clock: Clock,
        *,
        guest_os: GuestOs | None = None,
        seed: int = 0,
        on_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """
        ``on_write`` is awaited after every request other than GET, before the response is returned.
        """
        self.clock = clock
        self.on_write = on_write
        self._background: set[asyncio.Task[Any]] = set()
        self.runtimes = {
            name: self._runtime(region, guest_os or BuiltinGuest(clock), f"{seed}:{name}")
            for name, region in regions.items()
        }
        self.faults = {
            name: FaultRules(runtime, random.Random(f"{seed}:faults:{name}"))
            for name, runtime in self.runtimes.items()
        }
        self._resumed: set[str] = set()

    def _runtime(self, region: SimRegion, guest_os: GuestOs, seed: str) -> RegionRuntime:
        workers, locks = Workers(region, self.clock), FileLocks(self.clock)
        rng = random.Random(seed)
        runtime = RegionRuntime(
            region, self.clock, workers, locks, guest_os, rng, self._keep_running
        )
        runtime.module_data["perform"] = partial(self._internal, runtime)
        return runtime

    def _keep_running(self, ctx: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(ctx)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def handle(self, region: str, request: SimRequest) -> SimResponse:
        """Handle one request to one region."""
        runtime, faults = self.runtimes[region], self.faults[region]
        self._resume(region)
        now = runtime.now()
        pvestatd.update_if_due(runtime.region, now)
        effects = faults.choose(request)
        await faults.delay(effects)
        if effects.before is not None:
            return effects.before
        answer = await self._answer(runtime, request)
        if request.method != "GET" and self.on_write is not None:
            await self.on_write()
        return CUT if effects.cut_after else answer

    def _resume(self, name: str) -> None:
        """Restart background activity of a region once, on the running event loop."""
        if name not in self._resumed:
            self._resumed.add(name)
            endpoints.resume(self.runtimes[name])

    async def _answer(self, runtime: RegionRuntime, request: SimRequest) -> SimResponse:
        if request.method not in METHODS:
            text = f"method '{request.method}' not available"
            return error_response(PveException(501, text), extjs=False, empty=True)
        try:
            result = await self._perform(runtime, request)
        except auth.AuthenticationFailure as problem:
            await runtime.clock.sleep(runtime.region.pace.refusal)
            return error_response(problem, extjs=False, empty=True)
        except ProxyError as problem:
            return error_response(problem, extjs=False, empty=True)
        except PveException as problem:
            if problem.status == 401:
                await runtime.clock.sleep(runtime.region.pace.refusal)
            return error_response(problem, extjs=request.extjs)
        return success_response(result, extjs=request.extjs)

    async def _perform(self, runtime: RegionRuntime, request: SimRequest) -> Any:
        region = runtime.region
        receiving_node = request.node or region.api_node
        if not region.hosts[receiving_node].online:
            raise ProxyError(595, "Connection refused")
        who = self._authenticate(region, request, runtime.now())
        found = schema_routes.route_table(region.major).find(request.method, list(request.path))
        if found is None:
            raise PveException(501, f"Method '{request.method} {request.uri}' not implemented")
        route, bound = found
        _check_repeated(bound, request.params)
        given = {**request.params, **bound}
        if request.upload is not None:
            given.setdefault("filename", request.upload.filename)
        call = PveCall(
            runtime, who.user, who.token, receiving_node, request.method, request.uri, given
        )
        call.upload, call.given = request.upload, given
        return await self._run(route, call, bound.get("node") if route.proxy else None)

    async def _run(self, route: ApiRoute, call: PveCall, node: str | None) -> Any:
        region = call.region
        _check_caller(route, call)
        if node is not None:
            call.node = _target(region, node)
        if call.method != "GET" and not route.public and not cluster.quorate(region):
            raise PveException(500, "cluster not ready - no quorum?")
        call.params = verify(route.params, call.given, major=region.major, extra=route.extra)
        vmid = call.params.get("vmid")
        try:
            answer = route.handler(call)
            return await answer if inspect.isawaitable(answer) else answer
        finally:
            if isinstance(vmid, int):
                call.runtime.requests.answered(vmid)

    async def _internal(
        self, runtime: RegionRuntime, method: str, path: str, params: dict[str, Any]
    ) -> Any:
        """A request of the HA manager, as root@pam without authentication."""
        parts = [part for part in path.split("/") if part]
        found = schema_routes.route_table(runtime.region.major).find(method, parts)
        if found is None:
            raise PveException(501, f"Method '{method} {path}' not implemented")
        route, bound = found
        given = {**params, **bound}
        call = PveCall(
            runtime, "root@pam", None, runtime.region.api_node, method, path, given, via_ha=True
        )
        call.given = given
        return await self._run(route, call, bound.get("node"))

    def _authenticate(
        self, region: SimRegion, request: SimRequest, now: float
    ) -> auth.AuthenticatedCaller:
        if _is_public(request):
            return auth.AuthenticatedCaller("")
        writes = request.method != "GET" and request.upload is None
        return auth.authenticate(region, request.headers, now, writes=writes)

    @property
    def background_tasks(self) -> frozenset[asyncio.Task[Any]]:
        """Boots, HA manager loops and other activity outside workers."""
        return frozenset(self._background)

    async def close(self) -> None:
        """Cancel all tasks."""
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for runtime in self.runtimes.values():
            await runtime.workers.close()

    def handler(self, region: str) -> Any:
        """``handle`` bound to one region."""
        return partial(self.handle, region)


def _is_public(request: SimRequest) -> bool:
    public = {("GET", "/access/domains"), ("GET", "/access/ticket"), ("POST", "/access/ticket")}
    return (request.method, request.uri) in public


def _check_repeated(bound: dict[str, str], params: dict[str, Any]) -> None:
    for name, value in params.items():
        if name in bound and str(value) != bound[name]:
            raise param_error({name: "duplicate parameter (already defined in URI)"})


def _check_caller(route: ApiRoute, call: PveCall) -> None:
    if route.public:
        return
    if call.token is not None and not route.tokens:
        text = f"URI '{call.path}' not available with API token, need proper ticket.\n"
        raise forbidden(text)
    if call.is_root:
        return
    if route.permission is None:
        raise forbidden("user != root@pam")
    route.permission(call)


def _target(region: SimRegion, node: str) -> str:
    host = region.hosts.get(node)
    if node == "localhost":
        return region.api_node
    if host is None:
        why = f"failed to get address info for: {node}: Name or service not known"
        raise PveException(500, f"hostname lookup '{node}' failed - {why}")
    if not host.online:
        raise ProxyError(595, "Connection refused")
    return node
