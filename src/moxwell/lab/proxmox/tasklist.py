"""
``/nodes/{node}/tasks`` and ``/cluster/tasks``: list, status, log, stop.

Only the node of a task returns it. Tasks of others require Sys.Audit on the node; lists omit them.
The cluster-wide list shows an API token no task without Sys.Audit on ``/``, not even its own,
because PVE compares the user of the task, without the token name, with the full name of the caller.
"""

import re

from moxwell.lab.proxmox.config_schema.formats import split_list
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.request_context import PagedList, PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import Row, SimTask

_UPID = re.compile(
    r"^UPID:([a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8,9}"
    r":[0-9A-Fa-f]{8}:([^:\s]+):([^:\s]*):([^:\s]+):$"
)
MISSING = "unable to open file - No such file or directory"


def row(task: SimTask) -> Row:
    user, _, token = task.user.partition("!")
    shown: Row = {
        "upid": task.upid,
        "node": task.node,
        "pid": task.pid,
        "pstart": task.pstart,
        "starttime": task.starttime,
        "type": task.type,
        "id": task.id,
        "user": user,
    }
    return shown | ({"tokenid": token} if token else {})


def _ended(task: SimTask) -> Row:
    return row(task) | {"endtime": task.endtime, "status": task.exitstatus}


def list_tasks(call: PveCall) -> PagedList:
    source = call.get("source", "archive")
    found: list[Row] = []
    for task in reversed(call.region.tasks.values()):
        if task.node != call.node or not _wanted(call, task):
            continue
        if task.running and source in {"active", "all"}:
            found.append(row(task) | {"status": "RUNNING", "saved": "0"})
        elif not task.running and source in {"archive", "all"}:
            found.append(_ended(task))
    found.sort(key=lambda shown: shown["status"] != "RUNNING")
    start, limit = call.get("start", 0), call.get("limit", 50)
    return PagedList(found[start : start + limit], len(found) or None)


def _wanted(call: PveCall, task: SimTask) -> bool:
    p = call.params
    if not _is_own(call, task.user) and not call.has_privileges(f"/nodes/{call.node}", "Sys.Audit"):
        return False
    return (
        ("vmid" not in p or task.id == str(p["vmid"]))
        and ("typefilter" not in p or task.type == p["typefilter"])
        and p.get("userfilter", "").lower() in task.user.partition("!")[0].lower()
        and ("since" not in p or task.starttime >= p["since"])
        and ("until" not in p or task.starttime <= p["until"])
        and (not p.get("errors") or _kind(task) != "ok")
        and (not p.get("statusfilter") or p.get("errors") or _kind(task) in _kinds(call))
    )


def _kinds(call: PveCall) -> list[str]:
    return split_list(call.params["statusfilter"].lower())


def _kind(task: SimTask) -> str:
    if task.exitstatus == "OK":
        return "ok"
    if task.exitstatus is None or task.exitstatus == "unexpected status":
        return "unknown"
    return "warning" if task.exitstatus.startswith("WARNINGS: ") else "error"


def find_task(call: PveCall) -> SimTask | None:
    """
    The task of the path if it ran on this node; raises for an invalid UPID or a missing permission.
    """
    upid = call.params["upid"]
    match = _UPID.match(upid)
    if not match:
        raise param_error({"upid": "unable to parse worker upid"})
    if not _is_own(call, match[4]):
        call.check(f"/nodes/{call.node}", "Sys.Audit")
    task = call.region.tasks.get(upid)
    return task if task is not None and task.node == call.node else None


def _is_own(call: PveCall, owner: str) -> bool:
    """
    Whether a task belongs to the caller; a token also owns the tasks of its user, but not vice
    versa.
    """
    if owner == call.authid:
        return True
    return call.token is None and owner.partition("!")[0] == call.user


def index(call: PveCall) -> list[Row]:
    return [{"name": "log"}, {"name": "status"}]


def status(call: PveCall) -> Row:
    known = call.region.tasks.get(call.params["upid"])
    if _UPID.match(call.params["upid"]) and (known is None or known.node != call.node):
        raise param_error({"upid": "no such task"})
    task = find_task(call)
    if task is None:
        raise param_error({"upid": "no such task"})
    shown = row(task) | {"status": "running" if task.running else "stopped"}
    return shown if task.running else shown | {"exitstatus": task.exitstatus}


def log(call: PveCall) -> PagedList:
    task = find_task(call)
    if task is None:
        line = {"n": 1, "t": MISSING}
        return PagedList([line] if call.major >= 9 else line, 1)
    if call.get("download") and ("start" in call.params or "limit" in call.params):
        raise die("'download' cannot be used together with 'start' or 'limit' parameters")
    start, limit = call.get("start", 0), call.get("limit", 50)
    lines = task.log[start : start + limit] if limit else task.log[start:]
    if not task.log:
        return PagedList([{"n": 1, "t": "no content"}], 1)
    return PagedList([{"n": start + n, "t": t} for n, t in enumerate(lines, 1)], len(task.log))


def stop(call: PveCall) -> None:
    upid = call.params["upid"]
    match = _UPID.match(upid)
    if not match:
        raise param_error({"upid": "unable to parse worker upid"})
    task = call.region.tasks.get(upid)
    if task is None or task.node != call.node:
        raise param_error({"upid": "no such task"})
    if not _is_own(call, match[4]):
        call.check(f"/nodes/{call.node}", "Sys.Modify")
    call.runtime.workers.stop(upid)


def recent(call: PveCall) -> list[Row]:
    rows: list[Row] = []
    for task in reversed(call.region.tasks.values()):
        if task.user.partition("!")[0] != call.authid and not call.has_privileges("/", "Sys.Audit"):
            continue
        shown = row(task) if task.running else _ended(task)
        rows.append(shown | {"saved": "0" if task.running else "1"})
        if len(rows) >= 25 * len(call.region.hosts):
            break
    return rows


ROUTES = (
    ApiRoute("GET", "/cluster/tasks", recent, permission=anyone),
    ApiRoute(
        "GET",
        "/nodes/{node}/tasks",
        list_tasks,
        permission=anyone,
    ),
    ApiRoute("GET", "/nodes/{node}/tasks/{upid}", index, permission=anyone),
    ApiRoute("DELETE", "/nodes/{node}/tasks/{upid}", stop, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/tasks/{upid}/status", status, permission=anyone),
    ApiRoute(
        "GET",
        "/nodes/{node}/tasks/{upid}/log",
        log,
        permission=anyone,
    ),
)
