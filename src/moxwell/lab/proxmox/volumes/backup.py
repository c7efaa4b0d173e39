"""
POST vzdump: creates backups of guests as volumes on a backup storage.

The content of an archive is the guest configuration as JSON, which a restore reads.
"""

import json
import re
from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, bad_params, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Param
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names, prune
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

_COMPRESSED = {"zstd": ".zst", "gzip": ".gz", "1": ".lzo", "lzo": ".lzo", "0": "", None: ""}


def _chosen(call: PveCall) -> list[int]:
    """The VMIDs to back up on this node."""
    region = call.region
    if call.get("pool"):
        pool = region.pools.get(call.params["pool"])
        return sorted(pool.vms) if pool else []
    if call.get("all"):
        skipped = {int(v) for v in formats.split_list(str(call.get("exclude") or ""))}
        local_ids = [v for v, g in region.guests.items() if g.node == call.node]
        return sorted(v for v in local_ids if v not in skipped)
    return [int(v) for v in formats.split_list(str(call.get("vmid") or ""))]


def vzdump(call: PveCall) -> str:
    """Check the request, then start one worker for all guests."""
    if not (call.get("vmid") or call.get("all") or call.get("pool")):
        raise bad_params(vmid="property is missing and it is not optional")
    storage_name = call.get("storage") or "local"
    storage = VolumeStore(call.runtime, call.node).get_enabled(storage_name)
    if "backup" not in storage.content:
        raise die(f"storage '{storage_name}' does not support backups")
    call.check(f"/storage/{storage_name}", "Datastore.AllocateSpace")
    ids = _chosen(call)
    if not call.get("all"):
        for vmid in ids:
            call.check_vm(vmid, "VM.Backup")
    ids = [v for v in ids if call.has_privileges(f"/vms/{v}", "VM.Backup")]
    local_ids = [
        v for v in ids if v in call.region.guests and call.region.guests[v].node == call.node
    ]
    ident = str(ids[0]) if len(ids) == 1 and call.get("vmid") else ""

    async def worker(ctx: WorkerContext) -> None:
        await _Dump(call, storage_name, ctx).run(ids, local_ids)

    return call.spawn("vzdump", ident, worker)


class _Dump:
    """One backup job run."""

    def __init__(self, call: PveCall, storage: str, ctx: WorkerContext) -> None:
        self._call, self._storage, self._work = call, storage, ctx

    def _log(self, text: str) -> None:
        self._work.log(f"INFO: {text}")

    async def run(self, ids: list[int], local_ids: list[int]) -> None:
        self._log(f"starting new backup job: vzdump {' '.join(map(str, ids))}")
        elsewhere = [v for v in ids if v not in local_ids]
        if elsewhere:
            listed = ", ".join(map(str, elsewhere))
            self._log(f"skip external VMs: {listed}")
        failed = 0
        for vmid in local_ids:
            guest = self._call.region.guests.get(vmid)
            if guest is None:
                continue
            try:
                await self._one(guest)
            except PveException as problem:
                failed += 1
                self._work.log(f"ERROR: Backup of VM {vmid} failed - {problem.message}")
        self._log("Backup job finished" + (" with errors" if failed else " successfully"))
        if failed:
            raise die("job errors")

    async def _one(self, guest: SimGuest) -> None:
        call = self._call
        self._log(f"Starting Backup of VM {guest.vmid} ({guest.kind})")
        files.check_lock(guest)
        guest.conf["lock"] = "backup"
        files.write(call.runtime, guest)
        try:
            if call.get("mode") == "stop" and guest.running:
                self._log("stopping virtual guest")
            size = sum(self._sizes(guest))
            await self._work.sleep(size / call.region.pace.bandwidth)
            volid = self._archive(guest, size)
        finally:
            guest.conf.pop("lock", None)
            files.write(call.runtime, guest)
        self._log(f"archive file: {volid}")
        self._prune(guest)
        self._log(f"Finished Backup of VM {guest.vmid}")

    def _sizes(self, guest: SimGuest) -> list[int]:
        store = files.volume_store(self._call)
        found = []
        for key, value in guest.conf.items():
            text = str(value)
            volid = text.partition(",")[0]
            volume = store.find(volid) if ":" in volid else None
            if volume is None or "media=cdrom" in text or "backup=0" in text:
                continue
            if not key.startswith("unused"):
                found.append(volume.size)
        return found

    def _archive(self, guest: SimGuest, size: int) -> str:
        call = self._call
        stamp = f"{call.runtime.clock.now():%Y_%m_%d-%H_%M_%S}"
        form = "vma" if guest.kind == "qemu" else "tar"
        form += _COMPRESSED.get(call.get("compress"), "")
        name = f"backup/vzdump-{guest.kind}-{guest.vmid}-{stamp}.{form}"
        conf = {k: v for k, v in guest.conf.items() if k != "lock"}
        saved = {"kind": guest.kind, "conf": conf, "content_ids": self._content_ids(guest)}
        data = json.dumps(saved)
        store = files.volume_store(call)
        volid = store.put_file(self._storage, name, "backup", form, data.encode())
        volume = store.get(volid)
        volume.vmid, volume.size = guest.vmid, max(size // 2, len(data))
        store.set_used(volid, volume.size)
        volume.notes = self._notes(guest)
        volume.protected = bool(call.get("protected"))
        storage = store.get_storage(self._storage)
        if storage.used(call.node) > storage.capacity:
            store.free(volid)
            path = names.path_of(storage, name)
            raise die(f"vma_queue_write: write error - No space left on device ({path})")
        return volid

    def _content_ids(self, guest: SimGuest) -> dict[str, str]:
        store = files.volume_store(self._call)
        content_ids = {}
        for key, value in guest.conf.items():
            volume = store.find(str(value).partition(",")[0]) if ":" in str(value) else None
            if volume is not None:
                content_ids[key] = volume.content_id
        return content_ids

    def _notes(self, guest: SimGuest) -> str | None:
        template = self._call.get("notes-template")
        if not template:
            return None
        words = {
            "guestname": str(guest.conf.get("name") or guest.conf.get("hostname") or ""),
            "vmid": str(guest.vmid),
            "node": guest.node,
            "cluster": self._call.region.cluster or "",
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda m: words.get(m[1], m[0]), str(template))

    def _prune(self, guest: SimGuest) -> None:
        """Delete the backups that ``prune-backups`` does not keep."""
        store = files.volume_store(self._call)
        storage = store.get_storage(self._storage)
        rule = str(self._call.get("prune-backups") or storage.options.get("prune-backups") or "")
        if not self._call.get("remove", 1):
            return
        backups = [
            volume
            for volume in storage.volumes_on(self._call.node).values()
            if volume.content == "backup" and volume.vmid == guest.vmid
        ]
        for volume, mark in prune.marks(backups, rule):
            if mark == "remove":
                store.free(f"{self._storage}:{volume.name}")
                self._log(f"removing backup '{self._storage}:{volume.name}'")


def defaults(call: PveCall) -> dict[str, Any]:
    """GET vzdump/defaults."""
    return {"mode": "snapshot", "compress": "0", "storage": call.get("storage") or "local"}


def extract(call: PveCall) -> str:
    """GET vzdump/extractconfig: the configuration in an archive."""
    store, volid = VolumeStore(call.runtime, call.node), call.params["volume"]
    if store.parse(volid).kind != "backup":
        raise die(f"unable to use volume {volid} - content type needs to be 'backup'")
    saved = json.loads(store.get(volid).data or b"{}")
    return "".join(f"{k}: {v}\n" for k, v in sorted(saved.get("conf", {}).items()))


_NODE = Param(optional=False, format=formats.node)
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        "POST",
        "/nodes/{node}/vzdump",
        vzdump,
        {
            "node": _NODE,
            "vmid": Param(format=formats.listed(formats.vmid)),
            "all": Param(type="boolean"),
            "pool": Param(),
            "exclude": Param(format=formats.listed(formats.vmid)),
            "storage": Param(format=formats.storage_id),
            "mode": Param(enum=("snapshot", "suspend", "stop")),
            "compress": Param(enum=("0", "1", "gzip", "lzo", "zstd")),
            "notes-template": Param(max_length=1024, requires="storage"),
            "protected": Param(type="boolean", requires="storage"),
            "remove": Param(type="boolean"),
            "prune-backups": Param(),
            "bwlimit": Param(type="integer", minimum=0),
            "ionice": Param(type="integer", minimum=0, maximum=8),
            "lockwait": Param(type="integer", minimum=0),
            "mailnotification": Param(enum=("always", "failure")),
            "mailto": Param(),
            "notification-mode": Param(enum=("auto", "legacy-sendmail", "notification-system")),
            "quiet": Param(type="boolean"),
            "stdexcludes": Param(type="boolean"),
            "stopwait": Param(type="integer", minimum=0),
            "tmpdir": Param(),
            "zstd": Param(type="integer"),
            "pigz": Param(type="integer"),
            "fleecing": Param(),
            "performance": Param(),
            "job-id": Param(max_length=50, pattern=r"\S+"),
            "dumpdir": Param(),
            "exclude-path": Param(type="array"),
            "maxfiles": Param(type="integer", minimum=1),
            "notification-policy": Param(enum=("always", "failure", "never"), until=8),
            "notification-target": Param(until=8),
            "pbs-change-detection-mode": Param(enum=("legacy", "data", "metadata")),
            "script": Param(),
            "stdout": Param(type="boolean"),
            "stop": Param(type="boolean"),
        },
        anyone,
    ),
    ApiRoute(
        "GET",
        "/nodes/{node}/vzdump/defaults",
        defaults,
        {"node": _NODE, "storage": Param(format=formats.storage_id)},
        anyone,
    ),
    ApiRoute(
        "GET",
        "/nodes/{node}/vzdump/extractconfig",
        extract,
        {"node": _NODE, "volume": Param(optional=False)},
        anyone,
    ),
)
