"""
Requests and responses of the simulator, independent of the web framework.

``cut`` in a response means that the connection is dropped. ``envelope`` writes the ``json`` and
``extjs`` formats of PVE.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.request_context import PagedList, UploadedFile


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request; ``path`` is below /api2/json, split and unquoted."""

    method: str
    path: tuple[str, ...]
    params: dict[str, Any] = field(
        default_factory=dict
    )  # strings, lists of strings, or JSON values
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    upload: UploadedFile | None = None
    extjs: bool = False
    node: str | None = None  # the node that received the request; None: the first of the region

    @property
    def uri(self) -> str:
        return "/" + "/".join(self.path)


@dataclass(frozen=True, slots=True)
class SimResponse:
    status: int
    reason: str
    body: bytes = b""
    cut: bool = False

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


CUT = SimResponse(0, "connection cut", cut=True)


def success_response(result: Any, *, extjs: bool) -> SimResponse:
    """A successful response."""
    body: dict[str, Any] = {}
    if isinstance(result, PagedList):
        body["data"] = result.data
        if result.total is not None:
            body["total"] = result.total
        body.update(result.beside)
    else:
        body["data"] = result
    if extjs:
        body["success"] = 1
    return SimResponse(200, "OK", msgspec.json.encode(body))


def error_response(problem: PveException, *, extjs: bool, empty: bool = False) -> SimResponse:
    """An error response; ``empty`` where PVE sends no body."""
    reason = problem.message.split("\n")[0]
    if empty:
        return SimResponse(problem.status, reason)
    text = problem.message if problem.status in (424, 501) else problem.message + "\n"
    body: dict[str, Any] = {"data": None, "message": text}
    if problem.errors is not None:
        body["errors"] = problem.errors
    if not extjs:
        return SimResponse(problem.status, reason, msgspec.json.encode(body))
    body |= {"success": 0, "status": problem.status}
    return SimResponse(200, "OK", msgspec.json.encode(body))
