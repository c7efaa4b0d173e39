"""
VNC and terminal consoles of guests and nodes: tickets, and ports on which nothing listens.

A console's task waits ten seconds for its client, which never connects, and then fails as for a
client that does not come.
"""

import base64
import hashlib
from collections.abc import Iterator

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext

FIRST_PORT, LAST_PORT = 5900, 5999
WAIT_SECONDS = 10.0
_PORTS = "vnc_ports"  # of running consoles, by UPID
_PASSWORD_SINCE = 9


def _next_port(call: PveCall) -> int:
    """The first port that no running console of the region uses."""
    used: dict[str, int] = call.runtime.module_data.setdefault(_PORTS, {})
    tasks = call.region.tasks
    for upid in [u for u in used if u not in tasks or not tasks[u].running]:
        del used[upid]
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if port not in used.values():
            return port
    raise die("unable to find free port (5900-6000)")


def _ticket(call: PveCall, path: str, port: int) -> str:
    now = int(call.now())
    signed = hashlib.sha256(f"{call.authid}:{path}:{port}:{now}".encode()).digest()
    return f"PVEVNC:{now:08X}::{base64.b64encode(signed).decode()}"


def _certificate(call: PveCall) -> str:
    """A stable text in the form of the cluster's CA certificate."""
    body = base64.b64encode(hashlib.sha512(call.region.name.encode()).digest()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def _open(call: PveCall, path: str, task: tuple[str, str], failure: str) -> Row:
    """Start the task of a console."""
    port = _next_port(call)

    async def worker(ctx: WorkerContext) -> None:
        await ctx.sleep(WAIT_SECONDS)
        raise die(failure)

    upid = call.spawn(*task, worker)
    call.runtime.module_data[_PORTS][upid] = port
    return {"user": call.authid, "ticket": _ticket(call, path, port), "port": port, "upid": upid}


def _is_serial(call: PveCall, kind: str) -> bool:
    """Whether a VM has a serial terminal as its display; raises if the guest does not exist."""
    guest = call.get_guest(call.params["vmid"], kind)
    return "serial" in str(guest.conf.get("vga", "")).split(",")[0]


def _vnc(kind: str) -> Handler:
    def vncproxy(call: PveCall) -> Row:
        vmid, serial = call.params["vmid"], _is_serial(call, kind)
        row = _open(call, f"/vms/{vmid}", ("vncproxy", str(vmid)), "connection timed out")
        wanted = call.get("generate-password") or (
            call.major >= _PASSWORD_SINCE and (not serial or call.get("websocket"))
        )
        return row | {"cert": _certificate(call)} | (_password(call, row) if wanted else {})

    return vncproxy


def _password(call: PveCall, row: Row) -> Row:
    password = f"{call.runtime.random.getrandbits(32):08x}"
    if call.major < _PASSWORD_SINCE:
        return {"password": password}
    return {"password": password, "ticket": f"{password}:{row['ticket']}"}


def _terminal(kind: str) -> Handler:
    def termproxy(call: PveCall) -> Row:
        vmid, _ = call.params["vmid"], _is_serial(call, kind)
        path = f"/vms/{vmid}"
        return _open(call, path, ("vncproxy", str(vmid)), _exit(path, "VM.Console"))

    return termproxy


def _exit(path: str, privilege: str) -> str:
    command = f"/usr/bin/termproxy {FIRST_PORT} --path {path} --perm {privilege}"
    return f"command '{command}' failed: exit code 1"


def node_terminal(call: PveCall) -> Row:
    path = f"/nodes/{call.node}"
    return _open(call, path, ("vncshell", ""), _exit(path, "Sys.Console"))


def node_vnc(call: PveCall) -> Row:
    row = _open(call, f"/nodes/{call.node}", ("vncshell", ""), "connection timed out")
    more = _password(call, row) if call.major >= _PASSWORD_SINCE else {}
    return row | {"cert": _certificate(call)} | more


def _routes() -> Iterator[ApiRoute]:
    for kind in ("qemu", "lxc"):
        base = f"/nodes/{{node}}/{kind}/{{vmid}}"
        yield ApiRoute("POST", f"{base}/vncproxy", _vnc(kind), permission=by_schema)
        yield ApiRoute("POST", f"{base}/termproxy", _terminal(kind), permission=by_schema)
    yield ApiRoute("POST", "/nodes/{node}/termproxy", node_terminal, permission=by_schema)
    yield ApiRoute("POST", "/nodes/{node}/vncshell", node_vnc, permission=by_schema)


ROUTES = tuple(_routes())
