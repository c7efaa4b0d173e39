"""
Runs replication jobs on their schedules, as ``pvescheduler`` does at the beginning of each minute.

A run copies the volumes of the guest to the target. A run to a node that is down fails and is
repeated after 5, 10, 15 and then 30 minutes. A job that is being removed stays until the next run,
which removes its copies.
"""

import copy
import re
from dataclasses import dataclass

from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.schema import calendar_event
from moxwell.lab.proxmox.state import Row, SimGuest, SimRegion
from moxwell.lab.proxmox.volumes.volume_index import volume_index

DISK = re.compile(r"^(scsi|virtio|sata|ide|efidisk|tpmstate|mp|rootfs)\d*$")
SCHEDULE = "*/15"
_MINUTE = 60
_UNREACHABLE = (
    "command '/usr/bin/ssh -e none root@{} -- pvesr prepare-local-job' failed: exit code 255"
)


@dataclass(slots=True)
class JobState:
    """What is known of the runs of a job."""

    last_sync: int = 0
    last_try: int = 0
    fail_count: int = 0
    duration: float | None = None
    error: str | None = None

    def row(self) -> Row:
        row: Row = {"last_sync": self.last_sync, "last_try": self.last_try}
        row["fail_count"] = self.fail_count
        optional = {"duration": self.duration, "error": self.error}
        return row | {name: value for name, value in optional.items() if value is not None}


def state_of(runtime: RegionRuntime, ident: str) -> JobState:
    states: dict[str, JobState] = runtime.module_data.setdefault("replicated", {})
    return states.setdefault(ident, JobState())


def next_sync(region: SimRegion, job: Row, state: JobState) -> int:
    """When a job runs next; 0 if that is not known."""
    if job.get("remove_job"):
        return 1
    if not state.fail_count:
        event = calendar_event.parse(str(job.get("schedule") or SCHEDULE))
        return event.next_after(state.last_try) or 0
    minutes = 5 * state.fail_count if state.fail_count <= 3 else 30
    target = region.hosts.get(str(job["target"]))
    return state.last_try + _MINUTE * minutes if target is not None and target.online else 0


def start_scheduler(runtime: RegionRuntime) -> None:
    """Start the loop of this region unless it runs or there is no job."""
    if runtime.module_data.get("replication_running") or not runtime.region.replication:
        return
    runtime.module_data["replication_running"] = True
    runtime.run_in_background(_run_scheduler(runtime))


async def _run_scheduler(runtime: RegionRuntime) -> None:
    try:
        while runtime.region.replication:
            await runtime.clock.sleep(_MINUTE - runtime.now() % _MINUTE)
            for ident in sorted(runtime.region.replication):
                _run_if_due(runtime, ident, int(runtime.now()))
    finally:
        runtime.module_data["replication_running"] = False


def _run_if_due(runtime: RegionRuntime, ident: str, now: int) -> None:
    region = runtime.region
    job = region.replication[ident]
    guest = region.guests.get(job["guest"])
    if guest is None or not region.hosts[guest.node].online:
        return
    _turn_if_moved(job, guest)
    due = next_sync(region, job, state_of(runtime, ident))
    if not due or due > now or (job.get("disable") and not job.get("remove_job")):
        return
    if job.get("remove_job"):
        _remove(runtime, ident, guest)
    else:
        run_job(runtime, ident, guest, now)


def _turn_if_moved(job: Row, guest: SimGuest) -> None:
    """Replicate a guest that somebody moved to the target back to its former node."""
    source = job.setdefault("source", guest.node)
    if source != guest.node == job["target"]:
        job["source"], job["target"] = guest.node, source


def run_job(runtime: RegionRuntime, ident: str, guest: SimGuest, now: int) -> None:
    """Copy the volumes of a guest to the target of a job."""
    region, state = runtime.region, state_of(runtime, ident)
    job = region.replication[ident]
    state.last_try, target = now, str(job["target"])
    if _is_unreachable(region, state, target):
        return
    for storage, name in _local_volumes(region, guest):
        source = region.storages[storage].volumes_on(guest.node).get(name)
        if source is not None:
            index = volume_index(runtime.module_data, region.storages[storage], target)
            index.put(copy.copy(source))
    state.last_sync, state.fail_count, state.duration, state.error = now, 0, 1.0, None


def _is_unreachable(region: SimRegion, state: JobState, target: str) -> bool:
    """Whether a node is down, which the state of the job records."""
    if region.hosts[target].online:
        return False
    state.fail_count, state.error = state.fail_count + 1, _UNREACHABLE.format(target)
    return True


def _remove(runtime: RegionRuntime, ident: str, guest: SimGuest) -> None:
    region, job = runtime.region, runtime.region.replication[ident]
    is_full = job["remove_job"] == "full" and job["target"] != guest.node
    if is_full and _is_unreachable(region, state_of(runtime, ident), str(job["target"])):
        return
    del region.replication[ident]
    runtime.module_data.get("replicated", {}).pop(ident, None)
    if not is_full:
        return
    for storage, name in _local_volumes(runtime.region, guest):
        known = runtime.region.storages[storage]
        index = volume_index(runtime.module_data, known, str(job["target"]))
        if name in index.volumes:
            index.remove(name)


def replicatable(region: SimRegion, guest: SimGuest) -> list[str]:
    """The drives on ZFS that are not excluded from replication."""
    found = []
    for key, value in guest.conf.items():
        storage = region.storages.get(str(value).partition(":")[0])
        kept_out = "replicate=0" in str(value).split(",")
        if DISK.match(key) and storage and storage.type == "zfspool" and not kept_out:
            found.append(key)
    return found


def _local_volumes(region: SimRegion, guest: SimGuest) -> list[tuple[str, str]]:
    """(storage, volume name) of what is replicated."""
    texts = [str(guest.conf[key]).partition(",")[0] for key in replicatable(region, guest)]
    pairs = [(name, rest) for name, _, rest in (text.partition(":") for text in texts)]
    return [(name, rest) for name, rest in pairs if not region.storages[name].shared]
