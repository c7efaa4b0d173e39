"""
The engine: a request goes in, an answer comes out, and the order of checks is PVE's.

Authentication comes first, then the route, parameters that repeat the path, tokens where none may
come, permissions, the node the request belongs to, the schema, and only then the handler.
``Engine`` keeps one :class:`~moxwell.lab.proxmox.request_context.Desk` per region; nothing runs while nobody asks.
"""

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from moxwell.clock import Clock
from moxwell.lab.proxmox import cluster, endpoints, pvestatd
from moxwell.lab.proxmox.access import auth
from moxwell.lab.proxmox.builtin_guest import SmallGuest
from moxwell.lab.proxmox.errors import PveError, forbidden, param_error
from moxwell.lab.proxmox.fault_injection import Faults
from moxwell.lab.proxmox.guest import Inside
from moxwell.lab.proxmox.message import CUT, SimRequest, SimResponse, envelope, refusal
from moxwell.lab.proxmox.parameter_validation import verify
from moxwell.lab.proxmox.request_context import Call, Desk
from moxwell.lab.proxmox.route import Route, Table
from moxwell.lab.proxmox.state import Region
from moxwell.lab.proxmox.tasks import FileLocks, Workers

METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})


class Refused(PveError):
    """An answer without a body: 595 and its kin."""


class Engine:
    """All regions of one simulator."""

    def __init__(
        self,
        regions: dict[str, Region],
        clock: Clock,
        *,
        inside: Inside | None = None,
        seed: int = 0,
        on_write: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_write`` is called after every request with an effect, before its answer."""
        self.clock = clock
        self.on_write = on_write
        self._table = Table(endpoints.all_routes())
        self._beside: set[asyncio.Task[Any]] = set()
        self.desks = {
            name: self._desk(region, inside or SmallGuest(clock), f"{seed}:{name}")
            for name, region in regions.items()
        }
        self.faults = {
            name: Faults(desk, random.Random(f"{seed}:faults:{name}"))
            for name, desk in self.desks.items()
        }
        self._resumed: set[str] = set()

    def _desk(self, region: Region, inside: Inside, seed: str) -> Desk:
        workers, locks = Workers(region, self.clock), FileLocks(self.clock)
        rng = random.Random(seed)
        desk = Desk(region, self.clock, workers, locks, inside, rng, self._keep_running)
        desk.extras["perform"] = partial(self._internal, desk)
        return desk

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def handle(self, region: str, request: SimRequest) -> SimResponse:
        """Answer one request to one region."""
        desk, faults = self.desks[region], self.faults[region]
        self._resume(region)
        now = desk.now()
        pvestatd.round_due(desk.region, now)
        verdict = faults.choose(request)
        await faults.delay(verdict)
        if verdict.before is not None:
            return verdict.before
        answer = await self._answer(desk, request)
        if request.method != "GET":
            self.on_write()
        return CUT if verdict.cut_after else answer

    def _resume(self, name: str) -> None:
        """After a restart: bring back what ran beside, once, on the running loop."""
        if name not in self._resumed:
            self._resumed.add(name)
            endpoints.resume(self.desks[name])

    async def _answer(self, desk: Desk, request: SimRequest) -> SimResponse:
        if request.method not in METHODS:
            text = f"method '{request.method}' not available"
            return refusal(PveError(501, text), extjs=False, empty=True)
        try:
            result = await self._perform(desk, request)
        except auth.Unauthorised as problem:
            await desk.clock.sleep(desk.region.pace.refusal)
            return refusal(problem, extjs=False, empty=True)
        except Refused as problem:
            return refusal(problem, extjs=False, empty=True)
        except PveError as problem:
            if problem.status == 401:
                await desk.clock.sleep(desk.region.pace.refusal)
            return refusal(problem, extjs=request.extjs)
        return envelope(result, extjs=request.extjs)

    async def _perform(self, desk: Desk, request: SimRequest) -> Any:
        region = desk.region
        arrived = request.node or region.api_node
        if not region.hosts[arrived].online:
            raise Refused(595, "Connection refused")
        who = self._who(region, request, desk.now())
        found = self._table.find(request.method, list(request.path), region.major)
        if found is None:
            raise PveError(501, f"Method '{request.method} {request.uri}' not implemented")
        route, bound = found
        _check_repeated(bound, request.params)
        given = {**request.params, **bound}
        if request.upload is not None:
            given.setdefault("filename", request.upload.filename)
        call = Call(desk, who.user, who.token, arrived, request.method, request.uri, given)
        call.upload, call.given = request.upload, given
        return await self._run(route, call, bound.get("node") if route.proxy else None)

    async def _run(self, route: Route, call: Call, node: str | None) -> Any:
        region = call.region
        _check_caller(route, call)
        if node is not None:
            call.node = _target(region, node)
        if call.method != "GET" and not route.public and not cluster.quorate(region):
            raise PveError(500, "cluster not ready - no quorum?")
        call.params = verify(route.params, call.given, major=region.major, extra=route.extra)
        answer = route.handler(call)
        return await answer if inspect.isawaitable(answer) else answer

    async def _internal(self, desk: Desk, method: str, path: str, params: dict[str, Any]) -> Any:
        """A request of the HA manager: as root@pam, past authentication."""
        parts = [part for part in path.split("/") if part]
        found = self._table.find(method, parts, desk.region.major)
        if found is None:
            raise PveError(501, f"Method '{method} {path}' not implemented")
        route, bound = found
        given = {**params, **bound}
        call = Call(desk, "root@pam", None, desk.region.api_node, method, path, given, via_ha=True)
        call.given = given
        return await self._run(route, call, bound.get("node"))

    def _who(self, region: Region, request: SimRequest, now: float) -> auth.Identity:
        if _is_public(request):
            return auth.Identity("")
        writes = request.method != "GET" and request.upload is None
        return auth.identify(region, request.headers, now, writes=writes)

    async def close(self) -> None:
        """End every worker and everything beside them."""
        for task in list(self._beside):
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        for desk in self.desks.values():
            await desk.workers.close()

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


def _check_caller(route: Route, call: Call) -> None:
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


def _target(region: Region, node: str) -> str:
    host = region.hosts.get(node)
    if node == "localhost":
        return region.api_node
    if host is None:
        why = f"failed to get address info for: {node}: Name or service not known"
        raise PveError(500, f"hostname lookup '{node}' failed - {why}")
    if not host.online:
        raise Refused(595, "Connection refused")
    return node
