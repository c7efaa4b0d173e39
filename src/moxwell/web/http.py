"""
Serves the dashboard: its files, the records, their changes, and links that work once.

A link of ``moxwell up`` opens a session (:mod:`moxwell.web.sessions`). Pages and everything under
``/api`` need its cookie or the bearer token; the static files need neither. Without a session every
page says how to sign in. Requests with another Host header are refused, which prevents DNS
rebinding.
"""

import html
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import msgspec
from aiohttp import web

from moxwell.errors import MoxwellError, Retryable
from moxwell.web.change_log import ChangeLog, RecordChange, Snapshot, Unchanged
from moxwell.web.sessions import Sessions, cookie_name

_EVENT_ID = re.compile(r"([0-9a-f]{8})\.([0-9]{1,18})")
_COMMAND = b"moxwell status"  # in the pages; replaced by how it must be called here
_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"

_SECURITY = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

Action = Callable[[Mapping[str, Any]], Awaitable[Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """Serves one change log; ``actions`` are requests of pages, such as plans and YAML."""

    def __init__(
        self,
        change_log: ChangeLog,
        sessions: Sessions,
        *,
        hosts: Collection[str],
        actions: Mapping[str, Action] | None = None,
        command: str = "moxwell status",
    ) -> None:
        self._change_log = change_log
        self._sessions = sessions
        self._hosts = frozenset(hosts)
        self._actions = dict(actions or {})
        self._command = command
        self._files = {path.name: path for path in _static_files()}

    def routes(self) -> web.Application:
        """The application to serve."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/enter/{link}", self._enter)
        app.router.add_post("/api/link", self._link)
        app.router.add_post("/api/sign-out", self._sign_out)
        app.router.add_get("/api/session", self._session)
        app.router.add_get("/api/state", self._state)
        app.router.add_get("/api/stream", self._stream)
        app.router.add_get("/api/do/{action}", self._act)
        app.router.add_post("/api/do/{action}", self._act)
        app.router.add_get("/static/{name}", self._static)
        app.router.add_get("/{page:.*}", self._page)
        app.on_response_prepare.append(_add_security_headers)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host.rsplit(":", 1)[0].strip("[]") not in self._hosts:
            raise web.HTTPMisdirectedRequest(text="This server does not serve that host name.\n")
        if request.path.startswith("/api/") and not self._sessions.authenticates(request):
            raise web.HTTPUnauthorized(text=f"Run `{self._command}` for a new link.\n")
        return await handler(request)

    async def _enter(self, request: web.Request) -> web.Response:
        session = self._sessions.open(request.match_info["link"])
        if session is None:
            return self._file("used.html", status=403)
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            cookie_name(request), session, httponly=True, samesite="Strict", path="/"
        )
        return response

    async def _link(self, request: web.Request) -> web.Response:
        return web.json_response({"path": f"/enter/{self._sessions.new_link()}"})

    async def _sign_out(self, request: web.Request) -> web.Response:
        self._sessions.end(request)
        response = web.Response(status=204, headers={"Clear-Site-Data": '"cache"'})
        response.del_cookie(cookie_name(request), path="/")
        return response

    async def _session(self, request: web.Request) -> web.Response:
        """Answer a page that waits until somebody has signed in."""
        return web.Response(status=204, headers={"Cache-Control": "no-store"})

    async def _state(self, request: web.Request) -> web.Response:
        at = request.query.get("at")
        self._change_log.request()
        snapshot = (
            self._change_log.snapshot_at(_parse_time(at)) if at else self._change_log.snapshot
        )
        body = msgspec.json.encode(_encode_snapshot(snapshot, self._change_log.since))
        return web.Response(body=body, content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        last = request.headers.get("Last-Event-ID") or request.query.get("after") or ""
        found = _EVENT_ID.fullmatch(last)
        number = int(found[2]) if found and found[1] == self._change_log.name else -1
        with suppress(ConnectionError):  # the browser closed the connection
            await response.prepare(request)
            async with aclosing(self._change_log.follow(number)) as changes:
                async for item in changes:
                    if not self._sessions.authenticates(request):
                        break  # the session ended while the page was open
                    await response.write(_event(item, self._change_log))
        return response

    async def _act(self, request: web.Request) -> web.Response:
        action = self._actions.get(request.match_info["action"])
        if action is None:
            raise web.HTTPNotFound(text="There is no such action.\n")
        given: dict[str, Any] = dict(request.query)
        if request.can_read_body:
            given["body"] = await request.read()
        try:
            body = msgspec.json.encode(await action(given))
        except MoxwellError as error:
            status = 503 if isinstance(error, Retryable) else 422
            return web.Response(text=str(error), status=status)
        return web.Response(body=body, content_type="application/json")

    async def _static(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["name"])

    async def _page(self, request: web.Request) -> web.Response:
        if not self._sessions.authenticates(request):
            return self._file("signin.html", status=401)
        return self._file("index.html")

    def _file(self, name: str, *, status: int = 200) -> web.Response:
        path = self._files.get(name)
        if path is None:
            raise web.HTTPNotFound(text="There is no such file.\n")
        kind = _TYPES[name.rsplit(".", 1)[1]]
        headers = {"Cache-Control": "no-cache"}
        body = path.read_bytes()
        if kind == "text/html":
            body = body.replace(_COMMAND, html.escape(self._command).encode())
        return web.Response(
            body=body, status=status, content_type=kind, charset="utf-8", headers=headers
        )


_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


def _static_files() -> list[Any]:
    root = resources.files("moxwell.web") / "static"
    folders = [root, root / "css", root / "js"]
    return [item for folder in folders for item in folder.iterdir() if item.is_file()]


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to every response: pages, streams, refusals and unexpected errors."""
    for name, value in _SECURITY.items():
        response.headers.setdefault(name, value)


def _parse_time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise web.HTTPBadRequest(
            text=f"{text!r} is not a time such as 2026-01-31T12:00Z\n"
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _encode_snapshot(snapshot: Snapshot, since: datetime) -> dict[str, Any]:
    return {
        "number": snapshot.number,
        "at": snapshot.at,
        "since": since,
        "records": snapshot.records,
    }


def _event(item: RecordChange | Snapshot | Unchanged, log: ChangeLog) -> bytes:
    if isinstance(item, Snapshot):
        name, data = "snapshot", _encode_snapshot(item, log.since)
    elif isinstance(item, Unchanged):
        name, data = "unchanged", {"number": item.number, "at": item.at}
    else:
        name = "change"
        data = {"number": item.number, "at": item.at, "put": item.put, "removed": item.removed}
    ident = f"{log.name}.{item.number}".encode()
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (ident, name.encode(), msgspec.json.encode(data))
