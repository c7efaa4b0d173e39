"""``/cluster/backup``: stores and lists backup jobs; their schedules do not run."""

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import PveException, bad_params, die, forbidden, param_error
from moxwell.lab.proxmox.qemu.identity import new_uuid
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.state import Row, SimGuest, Value
from moxwell.lab.proxmox.volumes import vzdump_options
from moxwell.lab.proxmox.volumes.backup_volumes import backup_volumes

_ALL_DAYS = "mon,tue,wed,thu,fri,sat,sun"
_OBJECTS = {"prune-backups": None, "performance": None, "fleecing": "enabled"}


def _row(ident: str, job: Row) -> Row:
    objects = {name: split(str(job[name]), key) for name, key in _OBJECTS.items() if name in job}
    return {"id": ident, "type": "vzdump", **job, **objects}


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


def _check(call: PveCall, values: Row, storage: str | None) -> None:
    vzdump_options.check_permissions(call, values)
    if storage is not None:
        call.check(f"/storage/{storage}", "Datastore.Allocate")
    pool = values.get("pool")
    if pool is not None and pool not in call.region.pools:
        raise forbidden(f"pool '{pool}' does not exist")
    if pool is not None:
        call.check(f"/pool/{pool}", "VM.Backup")


def _set_schedule(values: Row) -> None:
    """Convert ``dow`` and ``starttime`` to a schedule."""
    if "schedule" in values and "starttime" in values:
        raise bad_params(starttime="'starttime' and 'schedule' cannot both be set")
    if "starttime" not in values:
        return
    days = ",".join(formats.split_list(values.pop("dow", "")))
    start = str(values.pop("starttime"))
    values["schedule"] = f"{days} {start}" if days not in ("", _ALL_DAYS) else start


def _verify_locked(values: Row, *, complete: bool = True) -> None:
    """With the lock of jobs.cfg held, an invalid parameter is a plain error."""
    try:
        vzdump_options.verify(values, complete=complete)
    except PveException as problem:
        raise die(problem.in_task) from problem


def create_job(call: PveCall) -> None:
    values = dict(call.params)
    _check(call, values, vzdump_options.storage(values))
    _set_schedule(values)
    if "schedule" not in values:
        raise bad_params(schedule="neither 'starttime' nor 'schedule' were set")
    ident = values.pop("id", None) or new_uuid(call.runtime)
    if ident in call.region.backup_jobs:
        raise die(f"Job '{ident}' already exists")
    _verify_locked(values)
    values.setdefault("enabled", 1)
    call.region.backup_jobs[ident] = values


def update_job(call: PveCall) -> None:
    values, jobs = dict(call.params), call.region.backup_jobs
    ident, deleted = values.pop("id"), formats.split_list(values.pop("delete", ""))
    vzdump_options.check_permissions(call, dict.fromkeys(deleted))
    _check(call, values, values.get("storage") or ("local" if "storage" in deleted else None))
    _set_schedule(values)
    if not values and not deleted:
        raise die("no options specified")
    _verify_locked(values, complete=False)
    if ident not in jobs:
        raise die("no such vzdump job")
    job = dict(jobs[ident])
    _check_editor(call, job)
    for name in deleted:
        if name not in _deletable(call.major):
            raise die(param_error({"delete": f"unknown option '{name}'"}).in_task)
        job.pop(name, None)
    _replace(job, values)
    _verify_locked(job)
    jobs[ident] = job


def _check_editor(call: PveCall, job: Row) -> None:
    """Whether the caller may edit a job that is there."""
    if call.is_root:
        return
    if job.get("dumpdir"):
        where = "at /usr/share/perl5/PVE/API2/Backup.pm line 86."
        raise die(f"only root@pam may edit jobs with a 'dumpdir' option. {where}")
    call.check(f"/storage/{vzdump_options.storage(job)}", "Datastore.Allocate")


def _deletable(major: int) -> frozenset[str]:
    facts = catalog(major).find("POST", "/nodes/{node}/vzdump")
    return frozenset(facts.params if facts else ()) | {"comment", "repeat-missed"}


def _replace(job: Row, values: Row) -> None:
    """Set options; a new selection of guests replaces the old one."""
    job.update(values)
    if "exclude" in job and "pool" not in job:
        job["all"] = 1
    dropped: tuple[str, ...] = ()
    if "vmid" in values:
        dropped = ("all", "exclude", "pool")
    elif values.get("all"):
        dropped = ("vmid", "pool")
    elif job.get("pool"):
        dropped = ("vmid", "all", "exclude")
    for name in dropped:
        job.pop(name, None)


def delete_job(call: PveCall) -> None:
    try:
        del call.region.backup_jobs[_find(call)]
    except PveException as problem:
        raise die(problem.in_task) from problem


def included(call: PveCall) -> Row:
    """The guests of a job with their volumes."""
    job = call.region.backup_jobs[_find(call)]
    children: list[Row] = []
    for vmid in vzdump_options.included(call.region, job):
        guest = call.region.guests.get(vmid)
        if not call.has_privileges(f"/vms/{vmid}", "VM.Audit"):
            continue
        if guest is None:
            children.append({"id": vmid, "type": "unknown", "leaf": 1})
        else:
            children.append(_guest_row(guest))
    return {"children": children}


def _guest_row(guest: SimGuest) -> Row:
    volumes = [
        {"id": f"{guest.vmid}:{key}", "leaf": 1, **row} for key, row in backup_volumes(guest)
    ]
    row: Row = {"id": guest.vmid, "type": guest.kind, "name": _name(guest)}
    return row | {"children": volumes, "leaf": 0 if volumes else 1}


def _name(guest: SimGuest) -> Value | None:
    return guest.conf.get("name" if guest.kind == "qemu" else "hostname")


def not_backed_up(call: PveCall) -> list[Row]:
    """Guests that no job selects."""
    covered: set[int] = set()
    for job in call.region.backup_jobs.values():
        if job.get("pool") is None or job["pool"] in call.region.pools:
            covered |= set(vzdump_options.included(call.region, job))
    return [
        {"vmid": g.vmid, "type": g.kind} | ({"name": _name(g)} if _name(g) is not None else {})
        for g in call.region.guests.values()
        if g.vmid not in covered and call.has_privileges(f"/vms/{g.vmid}", "VM.Audit")
    ]


_AUDIT, _MODIFY = perm("/", "Sys.Audit"), perm("/", "Sys.Modify")

ROUTES = (
    ApiRoute("GET", "/cluster/backup", list_jobs, permission=_AUDIT),
    ApiRoute("POST", "/cluster/backup", create_job, permission=_MODIFY, proxy=False),
    ApiRoute("GET", "/cluster/backup/{id}", get_job, permission=_AUDIT),
    ApiRoute("PUT", "/cluster/backup/{id}", update_job, permission=_MODIFY, proxy=False),
    ApiRoute("DELETE", "/cluster/backup/{id}", delete_job, permission=_MODIFY),
    ApiRoute("GET", "/cluster/backup/{id}/included_volumes", included, permission=_AUDIT),
    ApiRoute("GET", "/cluster/backup-info/not-backed-up", not_backed_up, permission=_AUDIT),
)
