"""
Serves the engine over HTTP with aiohttp.

One application serves one node of one region, so that clients can fail over between nodes. The
status line contains PVE's reason phrase. ``/sim`` is the control API.
"""

from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import BodyPartReader, web

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox.control_api import ControlApi
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.message import SimRequest, SimResponse
from moxwell.lab.proxmox.request_context import UploadedFile

FORM_LIMIT = 512 * 1024
UPLOAD_LIMIT = 16 << 30
_UPLOAD_FIELDS = ("content", "checksum-algorithm", "checksum")
JSON = "application/json;charset=UTF-8"


def application(
    engine: Engine, region: str, node: str | None, control: ControlApi
) -> web.Application:
    """The web application of one node."""
    frontend = _Frontend(engine, region, node, control)
    app = web.Application(client_max_size=UPLOAD_LIMIT)
    app.router.add_route("*", "/{rest:.*}", frontend.serve)
    return app


class _Frontend:
    def __init__(self, engine: Engine, region: str, node: str | None, control: ControlApi) -> None:
        self._engine, self._region, self._node, self._control = engine, region, node, control

    async def serve(self, request: web.Request) -> web.StreamResponse:
        raw = request.raw_path.partition("?")[0]
        parts = [part for part in unquote(raw).split("/") if part]
        if parts[:1] == ["sim"]:
            return await self._serve_control(request, tuple(parts[1:]))
        if parts[:1] != ["api2"] or len(parts) < 2 or parts[1] not in {"json", "extjs"}:
            return web.Response(status=404, reason="Not Found")
        if (request.content_length or 0) > FORM_LIMIT and not _is_multipart(request):
            return web.Response(status=501, reason="for data too large")
        try:
            message = await self._message(request, parts)
        except ValueError:
            return web.Response(status=400, reason="Bad Request")
        answer = await self._engine.handle(self._region, message)
        return _response(request, answer)

    async def _message(self, request: web.Request, parts: list[str]) -> SimRequest:
        params: dict[str, Any] = {}
        for name, value in request.query.items():
            _put(params, name, value)
        upload = None
        if _is_multipart(request):
            upload = await _multipart(request, params)
        elif request.body_exists:
            await _body(request, params)
        return SimRequest(
            request.method,
            tuple(parts[2:]),
            params,
            {name.lower(): value for name, value in request.headers.items()},
            upload,
            extjs=parts[1] == "extjs",
            node=self._node,
        )

    async def _serve_control(self, request: web.Request, path: tuple[str, ...]) -> web.Response:
        try:
            text = await request.read()
            body = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
            answer = self._control.handle(request.method, path, body)
        except Missing as problem:
            return web.json_response({"error": str(problem)}, status=404)
        except (Invalid, msgspec.MsgspecError, TypeError, ValueError) as problem:
            return web.json_response({"error": str(problem)}, status=400)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _is_multipart(request: web.Request) -> bool:
    return request.content_type == "multipart/form-data"


def _put(params: dict[str, Any], name: str, value: str) -> None:
    if name not in params:
        params[name] = value
    elif isinstance(params[name], list):
        params[name].append(value)
    else:
        params[name] = [params[name], value]


async def _body(request: web.Request, params: dict[str, Any]) -> None:
    if request.content_type == "application/json":
        text = await request.read()
        if text:
            params.update(msgspec.json.decode(text, type=dict[str, Any]))
        return
    for name, value in (await request.post()).items():
        _put(params, name, str(value))


async def _multipart(request: web.Request, params: dict[str, Any]) -> UploadedFile | None:
    """The fields of an upload; as in PVE they have a fixed order, and the file is the last."""
    upload, order = None, list(_UPLOAD_FIELDS)
    reader = await request.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or upload is not None:
            continue
        if part.filename is not None:
            upload = UploadedFile(part.filename, bytes(await part.read()))
            params[part.name or "filename"] = part.filename
            continue
        if part.name not in order:
            raise ValueError(part.name)
        order = order[order.index(part.name) + 1 :]
        params[part.name] = await part.text()
    return upload


def _response(request: web.Request, answer: SimResponse) -> web.Response:
    if answer.cut:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)
    headers = {"Server": "pve-api-daemon/3.0", "Cache-Control": "max-age=0"}
    if answer.body:
        headers["Content-Type"] = JSON
    reason = answer.reason.replace("\r", " ").replace("\n", " ")
    return web.Response(status=answer.status, reason=reason, body=answer.body, headers=headers)
