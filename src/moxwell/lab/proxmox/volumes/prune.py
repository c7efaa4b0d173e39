"""
Backup retention (``keep-last=3,keep-daily=7``) and the prunebackups endpoints.

Protected backups are neither counted nor deleted. The newest backup of each period is kept; a
period with a backup kept by an earlier rule does not count for a later one.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimVolume
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_STANDARD = re.compile(r"vzdump-(lxc|openvz|qemu)-\d+-\d{4}(?:_\d\d){2}-\d\d(?:_\d\d){2}\.")
_NAMED = re.compile(r"vzdump-(lxc|openvz|qemu)-")
PERIODS = {
    "keep-last": "{name}",
    "keep-hourly": "%Y-%m-%d %H",
    "keep-daily": "%Y-%m-%d",
    "keep-weekly": "%G-%V",
    "keep-monthly": "%Y-%m",
    "keep-yearly": "%Y",
}


def rules(text: str) -> dict[str, int]:
    """The options of a prune-backups string; empty: keep all."""
    found = dict(re.findall(r"(keep-\w+)=(\d+)", text))
    if found.get("keep-all") == "1":
        return {}
    return {name: int(found[name]) for name in PERIODS if int(found.get(name, 0))}


def marks(backups: Iterable[SimVolume], text: str) -> list[tuple[SimVolume, str]]:
    """Mark each backup ``keep``, ``remove`` or ``protected``, newest first."""
    wanted = rules(text)
    ordered = sorted(backups, key=lambda v: v.ctime)[::-1]  # of one second: the last one first
    found = {v.name: "protected" for v in ordered if v.protected}
    if not wanted:
        return [(v, found.get(v.name, "keep")) for v in ordered]
    for rule, count in wanted.items():
        _mark(ordered, found, PERIODS[rule], count)
    return [(v, found.get(v.name, "remove")) for v in ordered]


def _mark(ordered: list[SimVolume], found: dict[str, str], period: str, count: int) -> None:
    covered = {_period(v, period) for v in ordered if found.get(v.name) == "keep"}
    seen: set[str] = set()
    for volume in ordered:
        key = _period(volume, period)
        if volume.name in found or key in covered or key in seen:
            continue
        if len(seen) >= count:
            return
        seen.add(key)
        found[volume.name] = "keep"


def _period(volume: SimVolume, period: str) -> str:
    if period == "{name}":
        return volume.name
    return datetime.fromtimestamp(volume.ctime, UTC).strftime(period)


def _kind(volume: SimVolume) -> str:
    """The type of guest in an archive, by its name."""
    found = _STANDARD.search(volume.name) or _NAMED.search(volume.name)
    return found[1] if found else "unknown"


def _selected(call: PveCall) -> list[tuple[SimVolume, str]]:
    store, name = VolumeStore(call.runtime, call.node), call.params["storage"]
    storage = store.get_storage(name)
    if "backup" not in storage.content:
        raise die(f"storage '{name}' does not support backups")
    text = str(call.get("prune-backups") or storage.options.get("prune-backups") or "")
    if not text:
        raise die(f"no prune-backups options configured for storage '{name}'")
    store.get_enabled(name)
    groups: dict[tuple[str, int | None], list[SimVolume]] = {}
    renamed = []
    for volume in storage.volumes_on(call.node).values():
        kind, wanted = _kind(volume), call.get("vmid") in (None, volume.vmid)
        if volume.content != "backup" or not wanted or call.get("type", kind) != kind:
            continue
        if _STANDARD.search(volume.name):
            groups.setdefault((kind, volume.vmid), []).append(volume)
        else:
            renamed.append((volume, "protected" if volume.protected else "renamed"))
    return renamed + [pair for group in groups.values() for pair in marks(group, text)]


def dry_run(call: PveCall) -> list[Row]:
    """GET prunebackups: dry run."""
    name = call.params["storage"]
    return [
        {
            "volid": f"{name}:{volume.name}",
            "ctime": volume.ctime,
            "mark": mark,
            "type": _kind(volume),
        }
        | ({"vmid": volume.vmid} if volume.vmid is not None else {})
        for volume, mark in _selected(call)
    ]


def prune(call: PveCall) -> str:
    """DELETE prunebackups."""
    name, vmid = call.params["storage"], call.get("vmid")
    if vmid is None:
        call.check(f"/storage/{name}", "Datastore.Allocate")
    else:
        call.check(f"/storage/{name}", "Datastore.AllocateSpace")
        call.check_vm(vmid, "VM.Backup")

    async def worker(ctx: WorkerContext) -> None:
        store = VolumeStore(call.runtime, call.node)
        for volume, mark in _selected(call):
            if mark == "remove":
                ctx.log(f"removing backup '{name}:{volume.name}'")
                store.free(f"{name}:{volume.name}")

    return call.spawn("prunebackups", f"{vmid}@{name}" if vmid else name, worker)


_PATH = "/nodes/{node}/storage/{storage}/prunebackups"
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "GET",
        _PATH,
        dry_run,
        permission=perm(
            "/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace", any_of=True
        ),
    ),
    ApiRoute("DELETE", _PATH, prune, permission=anyone),
)
