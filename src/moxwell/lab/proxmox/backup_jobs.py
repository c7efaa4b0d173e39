"""``/cluster/backup``: stores and lists backup jobs; their schedules do not run."""

from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Param
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.state import Row, SimGuest


def _row(ident: str, job: Row) -> Row:
    return {"id": ident, "type": "vzdump", **job}


def list_jobs(call: PveCall) -> list[Row]:
    return [_row(ident, job) for ident, job in call.region.backup_jobs.items()]


def _find(call: PveCall) -> str:
    ident: str = call.params["id"]
    if ident not in call.region.backup_jobs:
        raise param_error({"id": f"No such job '{ident}'"})
    return ident


def get_job(call: PveCall) -> Row:
    ident = _find(call)
    return _row(ident, call.region.backup_jobs[ident])


def create_job(call: PveCall) -> None:
    values = dict(call.params)
    ident = values.pop("id", None) or f"backup-{call.runtime.random.getrandbits(32):08x}"
    if ident in call.region.backup_jobs:
        raise die(f"ID '{ident}' already exists")
    if not any(name in values for name in ("vmid", "pool", "all")):
        raise param_error({"vmid": "property is missing and it is not optional"})
    values.setdefault("enabled", 1)
    call.region.backup_jobs[ident] = values


def update_job(call: PveCall) -> None:
    job = call.region.backup_jobs[_find(call)]
    for option in formats.split_list(call.params.pop("delete", "")):
        job.pop(option, None)
    job.update({k: v for k, v in call.params.items() if k != "id"})


def delete_job(call: PveCall) -> None:
    del call.region.backup_jobs[_find(call)]


def _covers(call: PveCall, job: Row, guest: SimGuest) -> bool:
    if job.get("node") not in {None, guest.node}:
        return False
    if job.get("all"):
        return str(guest.vmid) not in formats.split_list(str(job.get("exclude", "")))
    if "pool" in job:
        pool = call.region.pools.get(job["pool"])
        return pool is not None and guest.vmid in pool.vms
    return str(guest.vmid) in formats.split_list(str(job.get("vmid", "")))


def included(call: PveCall) -> Row:
    job = call.region.backup_jobs[_find(call)]
    children = [
        {"id": str(g.vmid), "type": g.kind, "name": str(g.conf.get("name", ""))}
        for g in call.region.guests.values()
        if _covers(call, job, g)
    ]
    return {"children": children}


def not_backed_up(call: PveCall) -> list[Row]:
    jobs = call.region.backup_jobs.values()
    return [
        {"vmid": g.vmid, "type": g.kind, "name": str(g.conf.get("name", ""))}
        for g in call.region.guests.values()
        if not any(_covers(call, job, g) for job in jobs)
    ]


_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("dumpdir", "exclude-path", "fleecing", "notes-template", "pool"), Param()),
    **dict.fromkeys(("prune-backups", "performance", "script", "tmpdir", "mailto"), Param()),
    **dict.fromkeys(("schedule", "starttime", "dow", "notification-mode"), Param()),
    **dict.fromkeys(("all", "enabled", "protected", "quiet", "remove"), Param("boolean")),
    **dict.fromkeys(("repeat-missed", "stdexcludes", "stop"), Param("boolean")),
    **dict.fromkeys(("bwlimit", "lockwait", "pigz", "stopwait", "zstd"), Param("integer")),
    "comment": Param(max_length=512),
    "compress": Param(enum=("0", "1", "gzip", "lzo", "zstd")),
    "exclude": Param(format=formats.listed(formats.vmid)),
    "ionice": Param("integer", minimum=0, maximum=8),
    "mailnotification": Param(enum=("always", "failure")),
    "maxfiles": Param("integer", minimum=1),
    "mode": Param(enum=("snapshot", "suspend", "stop")),
    "node": Param(format=formats.node),
    "storage": Param(format=formats.storage_id),
    "vmid": Param(format=formats.listed(formats.vmid)),
}
_ID = {"id": Param(optional=False, pattern=r"\S+", max_length=50)}
_NEW = {"id": Param(format=formats.config_id)}
_AUDIT, _MODIFY = perm("/", "Sys.Audit"), perm("/", "Sys.Modify")

ROUTES = (
    ApiRoute("GET", "/cluster/backup", list_jobs, permission=_AUDIT),
    ApiRoute("POST", "/cluster/backup", create_job, _FIELDS | _NEW, _MODIFY),
    ApiRoute("GET", "/cluster/backup/{id}", get_job, _ID, _AUDIT),
    ApiRoute(
        "PUT", "/cluster/backup/{id}", update_job, _FIELDS | _ID | {"delete": Param()}, _MODIFY
    ),
    ApiRoute("DELETE", "/cluster/backup/{id}", delete_job, _ID, _MODIFY),
    ApiRoute("GET", "/cluster/backup/{id}/included_volumes", included, _ID, _AUDIT),
    ApiRoute("GET", "/cluster/backup-info/not-backed-up", not_backed_up, permission=_AUDIT),
)
