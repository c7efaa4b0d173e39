"""
``/cluster/replication``: stores and checks replication jobs; only ZFS volumes can be replicated.
"""

from moxwell.lab.proxmox import replication_runs as runs
from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, by_schema
from moxwell.lab.proxmox.state import Row, SimGuest
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_OPTIONAL = frozenset({"disable", "comment", "rate", "schedule", "remove_job", "source"})


def _visible(call: PveCall, row: Row) -> bool:
    return call.has_privileges(f"/vms/{row['guest']}", "VM.Audit")


def _row(call: PveCall, ident: str) -> Row:
    jobs = call.region.replication
    guest = call.region.guests.get(jobs[ident]["guest"])
    row = {"id": ident, "digest": digest_of(jobs), **jobs[ident]}
    return row | ({"vmtype": guest.kind, "source": guest.node} if guest else {})


def list_jobs(call: PveCall) -> list[Row]:
    jobs = call.region.replication
    return [_row(call, ident) for ident, row in jobs.items() if _visible(call, row)]


def _find(call: PveCall, text: str = "no such replication job '{}'") -> str:
    ident: str = call.params["id"]
    if ident not in call.region.replication:
        raise die(text.format(ident))
    return ident


def get_job(call: PveCall) -> Row:
    return _row(call, _find(call))


def _check_replicate(call: PveCall) -> None:
    """PVE 9 asks for the right to replicate the guest."""
    if call.major >= 9:
        call.check(f"/vms/{str(call.params['id']).partition('-')[0]}", "VM.Replicate")


def create_job(call: PveCall) -> None:
    _check_replicate(call)
    region, ident, target = call.region, call.params["id"], call.params["target"]
    number, _, sequence = ident.partition("-")
    guest = region.guests.get(int(number))
    if guest is None:
        raise die(f"Guest '{number}' does not exist.")
    if target not in region.hosts:
        raise die(f"Target '{target}' does not exist.")
    source = call.get("source")
    if source is not None and source != guest.node:
        text = f"Source '{source}' does not match current node of guest '{number}'"
        raise die(f"{text} ({guest.node})")
    if guest.node == target:
        raise die("Source and target must not be identical")
    _check_volumes(call, guest)
    if not runs.replicatable(region, guest):
        raise die("No replicatable volumes found")
    if ident in region.replication:
        raise die(f"replication job '{ident}' already exists")
    for other in region.replication.values():
        if other["guest"] == guest.vmid and other["target"] == target:
            job = f"replication job for guest '{number}' to target '{target}'"
            raise die(f"{job} already exists")
    row = {k: v for k, v in call.params.items() if k != "id"}
    row |= {"guest": guest.vmid, "jobnum": int(sequence)}
    row.setdefault("schedule", runs.SCHEDULE)
    region.replication[ident] = row
    runs.start_scheduler(call.runtime)


def _check_volumes(call: PveCall, guest: SimGuest) -> None:
    """Every local volume of the guest must be on a storage that can replicate it."""
    for key in sorted(k for k in guest.conf if runs.DISK.match(k)):
        text = str(guest.conf[key])
        volid, *options = text.removeprefix("volume=").split(",")
        if "media=cdrom" in options or "replicate=0" in options or volid == "none":
            continue
        if volid.startswith("/"):
            raise die(f"unable to replicate local file/device '{volid}'")
        storage = call.region.storages.get(volid.partition(":")[0])
        if storage is None or storage.shared or storage.type == "zfspool":
            continue
        if VolumeStore(call.runtime, guest.node).owner(volid) == guest.vmid:
            raise die(f"missing replicate feature on volume '{volid}'")


def update_job(call: PveCall) -> None:
    _check_replicate(call)
    jobs = call.region.replication
    if call.params.get("digest", digest_of(jobs)) != digest_of(jobs):
        raise die("detected modified configuration - file changed by other user? Try again.")
    ident = _find(call, "no such job '{}'")
    row = dict(jobs[ident])
    row |= {k: v for k, v in call.params.items() if k not in {"id", "delete", "digest"}}
    for option in formats.split_list(call.params.get("delete", "")):
        if option == "target":
            raise die(f"unable to delete required option '{option}'")
        if option not in _OPTIONAL:
            raise die(f"no such option '{option}'")
        row.pop(option, None)
    row.setdefault("schedule", runs.SCHEDULE)
    jobs[ident] = row


def delete_job(call: PveCall) -> None:
    _check_replicate(call)
    if call.get("keep") and call.get("force"):
        raise param_error({"keep": "conflicts with parameter 'force'"})
    if call.get("force") and call.params["id"] not in call.region.replication:
        return
    ident = _find(call, "no such job '{}'")
    if call.get("force"):
        del call.region.replication[ident]
        return
    job = call.region.replication[ident]
    call.region.replication[ident] = job | {"remove_job": "local" if call.get("keep") else "full"}


def node_jobs(call: PveCall) -> list[Row]:
    rows = [r for r in list_jobs(call) if r.get("source") == call.node]
    wanted = call.get("guest")
    return [_state(call, r) for r in rows if wanted in {None, r["guest"]}]


def _state(call: PveCall, row: Row) -> Row:
    """A job with the state of its runs."""
    state = runs.state_of(call.runtime, row["id"])
    return row | state.row() | {"next_sync": runs.next_sync(call.region, row, state)}


def find_job(call: PveCall, guest: SimGuest, target: str) -> str | None:
    """The job that replicates a guest to a node."""
    for ident, job in call.region.replication.items():
        if job["guest"] == guest.vmid and job["target"] == target and not job.get("disable"):
            return ident
    return None


def index(call: PveCall) -> list[Row]:
    return [{"name": "schedule_now"}, {"name": "log"}, {"name": "status"}]


def job_status(call: PveCall) -> Row:
    return _state(call, _row(call, _find(call)))


def job_log(call: PveCall) -> list[Row]:
    _find(call)
    return [{"n": 1, "t": "no content"}]


def schedule_now(call: PveCall) -> None:
    _check_replicate(call)
    runs.state_of(call.runtime, _find(call)).last_try = 0


ROUTES = (
    ApiRoute("GET", "/cluster/replication", list_jobs, permission=anyone),
    ApiRoute("POST", "/cluster/replication", create_job, permission=by_schema),
    ApiRoute("GET", "/cluster/replication/{id}", get_job, permission=anyone),
    ApiRoute("PUT", "/cluster/replication/{id}", update_job, permission=by_schema),
    ApiRoute(
        "DELETE",
        "/cluster/replication/{id}",
        delete_job,
        permission=by_schema,
    ),
    ApiRoute("GET", "/nodes/{node}/replication", node_jobs, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/replication/{id}", index, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/replication/{id}/status", job_status, permission=anyone),
    ApiRoute(
        "GET",
        "/nodes/{node}/replication/{id}/log",
        job_log,
        permission=anyone,
    ),
    ApiRoute(
        "POST",
        "/nodes/{node}/replication/{id}/schedule_now",
        schedule_now,
        permission=by_schema,
    ),
)
