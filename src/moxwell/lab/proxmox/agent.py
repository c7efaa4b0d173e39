"""
``/nodes/{node}/qemu/{vmid}/agent``: guest agent commands, answered by a ``GuestOs``.

PVE checks configuration and run state first; an agent that does not answer times out after three
seconds. The result of ``exec`` can be read once.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.guest import AgentRefusal
from moxwell.lab.proxmox.qemu import power
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Check
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import Row, SimGuest

_PATH = "/nodes/{node}/qemu/{vmid}/agent"
_POST = words(
    "fsfreeze-freeze fsfreeze-status fsfreeze-thaw fstrim ping shutdown suspend-disk"
    " suspend-hybrid suspend-ram"
)
_GET = words(
    "get-fsinfo get-host-name get-memory-block-info get-memory-blocks get-osinfo get-time"
    " get-timezone get-users get-vcpus info network-get-interfaces"
)
_OWN = words("exec exec-status file-read file-write set-user-password")
COMMANDS = tuple(sorted([*_POST, *_GET]))
_FS = ("fsfreeze-freeze", "fsfreeze-thaw", "fstrim")
_POWER = ("shutdown", "suspend-disk", "suspend-hybrid", "suspend-ram")


def _privileges(command: str) -> tuple[str, ...]:
    """The privileges that PVE 9 requires for a command."""
    if command in _FS:
        return ("VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.Unrestricted")
    if command == "fsfreeze-status":
        return (
            "VM.GuestAgent.Audit",
            "VM.GuestAgent.FileSystemMgmt",
            "VM.GuestAgent.Unrestricted",
        )
    if command in _POWER:
        return ("VM.PowerMgmt", "VM.GuestAgent.Unrestricted")
    if command == "file-read":
        return ("VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted")
    if command == "file-write":
        return ("VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted")
    if command in ("exec", "exec-status", "set-user-password"):
        return ("VM.GuestAgent.Unrestricted",)
    if not command:
        return ("VM.GuestAgent.Unrestricted", "VM.GuestAgent.Unrestricted")
    return ("VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted")


def _permission(command: str) -> Check:
    def check(call: PveCall) -> None:
        path = f"/vms/{call.params['vmid']}"
        if call.major < 9:
            call.check(path, "VM.Monitor")
            return
        wanted = _privileges(command)
        call.check(path, *wanted, any_of=len(wanted) > 1)

    return check


def _available(call: PveCall) -> SimGuest:
    guest = call.get_guest(call.params["vmid"])
    if "agent" not in guest.conf:
        raise die("No QEMU guest agent configured")
    if not guest.running:
        raise die(f"VM {guest.vmid} is not running")
    return guest


async def _ask(call: PveCall, command: str, args: dict[str, Any] | None = None) -> Any:
    guest = _available(call)
    return await power.ask_agent(call, guest, command, args)


async def _result(call: PveCall, command: str) -> Row:
    """What the agent answered, even if that is an error."""
    try:
        return {"result": await _ask(call, command)}
    except AgentRefusal as refusal:
        return {"result": {"error": refusal.error}}


def _simple(command: str) -> Callable[[PveCall], Any]:
    async def handler(call: PveCall) -> Row:
        return await _result(call, command)

    return handler


async def any_command(call: PveCall) -> Row:
    """POST agent with ``command``."""
    return await _result(call, call.params["command"])


def index(call: PveCall) -> list[Row]:
    return [{"name": name} for name in sorted([*COMMANDS, *_OWN])]


async def execute(call: PveCall) -> Row:
    """POST agent/exec."""
    args = {"command": call.params["command"], "input-data": call.get("input-data")}
    found: Row = await _ask(call, "exec", args)
    return found


async def execute_status(call: PveCall) -> Row:
    """GET agent/exec-status."""
    found: Row = dict(await _ask(call, "exec-status", {"pid": call.params["pid"]}))
    return {k: int(v) if isinstance(v, bool) else v for k, v in found.items()}


async def file_read(call: PveCall) -> Row:
    """GET agent/file-read."""
    found: Row = await _ask(call, "file-read", {"file": call.params["file"]})
    first, count = int(call.get("offset") or 0), call.get("count")
    if first or count or not call.get("decode", 1):
        data = str(found["content"]).encode()[first:][: int(count) if count else None]
        text = data.decode("utf-8", "replace")
        if not call.get("decode", 1):
            text = base64.b64encode(data).decode()
        found = {"content": text, "bytes-read": len(data)}
        if count and len(data) == int(count):
            found["truncated"] = 1  # the end of the file was not read
    return found


async def file_write(call: PveCall) -> None:
    """POST agent/file-write; with ``encode=0`` the content is already base64."""
    content = call.params["content"].encode()
    if not call.get("encode", 1):
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error:
            text = f"Base64 data '{content.decode()}' is not valid"
            raise PveException(500, f"Agent error: {text}") from None
    await _ask(call, "file-write", {"file": call.params["file"], "content": content})


async def set_password(call: PveCall) -> Row:
    """POST agent/set-user-password."""
    args = {k: call.get(k) for k in ("username", "password", "crypted")}
    return {"result": await _ask(call, "set-user-password", args)}


def _route(method: str, name: str, handler: Callable[[PveCall], Any]) -> ApiRoute:
    return ApiRoute(method, f"{_PATH}/{name}", handler, permission=_permission(name))


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("GET", _PATH, index, permission=anyone),
    ApiRoute("POST", _PATH, any_command, permission=_permission("")),
    *(_route("POST", name, _simple(name)) for name in _POST),
    *(_route("GET", name, _simple(name)) for name in _GET),
    _route(
        "POST",
        "exec",
        execute,
    ),
    _route("GET", "exec-status", execute_status),
    _route(
        "GET",
        "file-read",
        file_read,
    ),
    _route(
        "POST",
        "file-write",
        file_write,
    ),
    _route(
        "POST",
        "set-user-password",
        set_password,
    ),
)
