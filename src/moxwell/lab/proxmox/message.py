"""
Requests and answers of the simulator, free of any web framework.

``SimRequest`` is what arrived, ``SimResponse`` what goes out; ``cut`` means that the connection is
to be dropped instead of answered. ``envelope`` writes PVE's two JSON shapes.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from moxwell.lab.proxmox.errors import PveError
from moxwell.lab.proxmox.request_context import Paged, Upload


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request; ``path`` is below /api2/json and unquoted part by part."""

    method: str
    path: tuple[str, ...]
    params: dict[str, Any] = field(default_factory=dict)  # texts, lists of texts, or JSON values
    headers: dict[str, str] = field(default_factory=dict)  # lower-case names
    upload: Upload | None = None
    extjs: bool = False
    node: str | None = None  # whose API was called; None: the region's first

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


def envelope(result: Any, *, extjs: bool) -> SimResponse:
    """A successful answer."""
    body: dict[str, Any] = {}
    if isinstance(result, Paged):
        body["data"] = result.data
        if result.total is not None:
            body["total"] = result.total
        body.update(result.beside)
    else:
        body["data"] = result
    if extjs:
        body["success"] = 1
    return SimResponse(200, "OK", msgspec.json.encode(body))


def refusal(problem: PveError, *, extjs: bool, empty: bool = False) -> SimResponse:
    """An answer that says no; ``empty`` where the real server sends no body."""
    reason = problem.message.split("\n")[0]
    if empty:
        return SimResponse(problem.status, reason)
    text = problem.message if problem.status == 501 else problem.message + "\n"
    body: dict[str, Any] = {"data": None, "message": text}
    if problem.errors is not None:
        body["errors"] = problem.errors
    if not extjs:
        return SimResponse(problem.status, reason, msgspec.json.encode(body))
    body |= {"success": 0, "status": problem.status}
    return SimResponse(200, "OK", msgspec.json.encode(body))
