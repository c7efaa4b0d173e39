"""
POST vzdump: creates backups of guests as volumes on a backup storage.

The content of an archive is the guest configuration as JSON, which a restore reads.
"""

import re

from moxwell.lab.proxmox.errors import PveException, bad_params, die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import Row, SimGuest, SimVolume
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import access, names, prune
from moxwell.lab.proxmox.volumes.archives import GuestArchive, config_text, read_archive
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore
from moxwell.lab.proxmox.volumes.vzdump_options import (
    check_permissions,
    included,
    storage,
    verify,
)

_COMPRESSED = {"zstd": ".zst", "gzip": ".gz", "1": ".lzo", "lzo": ".lzo", "0": "", None: ""}


_HA_TYPES = {"qemu": "vm", "lxc": "ct"}
_PROTECTED = 5  # protected backups of a guest that its user may have


def vzdump(call: PveCall) -> str:
    """Check the request, then start one worker for all guests of this node."""
    options: Row = {k: v for k, v in call.params.items() if k != "node"}
    if options.get("stdout"):
        raise bad_params(stdout="option is only allowed on the command line interface.")
    check_permissions(call, options)
    if not call.is_root and "prune-backups" in options and not options.get("dumpdir"):
        call.check(f"/storage/{options.get('storage') or 'local'}", "Datastore.Allocate")
    verify(options)
    wanted, guests = included(call.region, options), call.region.guests
    here = [v for v in wanted if v not in guests or guests[v].node == call.node]
    if options.get("stop"):
        call.check(f"/nodes/{call.node}", "Sys.Modify")
        _stop_running(call)
    if not here and (options.get("stop") or not options.get("all")):
        return "OK"
    if (name := storage(options)) is not None:
        call.check(f"/storage/{name}", "Datastore.AllocateSpace")
    elsewhere = [v for v in wanted if v not in here]
    ident = str(here[0]) if len(here) == 1 else ""

    async def worker(ctx: WorkerContext) -> None:
        await _Dump(call, _open_storage(call, options), ctx).run(here, elsewhere)

    return call.spawn("vzdump", ident, worker)


def _stop_running(call: PveCall) -> None:
    """Interrupt the backups that run on this node."""
    for task in list(call.region.tasks.values()):
        if task.running and task.type == "vzdump" and task.node == call.node:
            call.runtime.workers.stop(task.upid, "interrupted by signal")


def _open_storage(call: PveCall, options: Row) -> str:
    """The name of the backup storage; the task fails if it cannot be used."""
    if options.get("dumpdir") and options.get("storage"):
        raise die("cannot use options 'storage' and 'dumpdir' at the same time")
    if options.get("dumpdir"):
        raise die(f"dumpdir '{options['dumpdir']}' does not exist")
    name = str(options.get("storage") or "local")
    store = VolumeStore(call.runtime, call.node)
    try:
        storage = store.get_enabled(name)
    except PveException as problem:
        information = f"could not get storage information for '{name}': {problem.message}"
        text = f"could not activate storage '{name}': {problem.message}"
        raise die(f"{text} {information}" if name not in call.region.storages else text) from None
    if "backup" not in storage.content:
        text = f"can't use storage '{name}' for backups - wrong content type"
        raise die(f"could not get storage information for '{name}': {text}")
    if options.get("tmpdir"):
        raise die(f"tmpdir '{options['tmpdir']}' does not exist")
    return name


class _Dump:
    """One backup job run."""

    def __init__(self, call: PveCall, storage: str, ctx: WorkerContext) -> None:
        self._call, self._storage, self._work = call, storage, ctx

    def _log(self, text: str) -> None:
        self._work.log(f"INFO: {text}")

    async def run(self, ids: list[int], elsewhere: list[int]) -> None:
        self._log(f"starting new backup job: vzdump {' '.join(map(str, ids))}")
        if elsewhere:
            self._log(f"skip external VMs: {', '.join(map(str, elsewhere))}")
        allowed = [v for v in ids if self._may(v)]
        failed = 0
        for vmid in allowed:
            try:
                await self._one(self._guest(vmid))
            except PveException as problem:
                failed += 1
                self._work.log(f"ERROR: Backup of VM {vmid} failed - {problem.message}")
        self._log("Backup job finished" + (" with errors" if failed else " successfully"))
        if failed:
            raise die("job errors")

    def _may(self, vmid: int) -> bool:
        """Guests of a job for all are skipped silently; a named guest fails the task."""
        if vmid not in self._call.region.guests:
            return True
        if not self._call.get("all"):
            self._call.check_vm(vmid, "VM.Backup")
        return self._call.has_privileges(f"/vms/{vmid}", "VM.Backup")

    def _guest(self, vmid: int) -> SimGuest:
        guest = self._call.region.guests.get(vmid)
        if guest is None:
            raise die(f"unable to find VM '{vmid}'")
        return guest

    async def _one(self, guest: SimGuest) -> None:
        call = self._call
        self._log(f"Starting Backup of VM {guest.vmid} ({guest.kind})")
        self._check_limits(guest)
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
        data = GuestArchive(guest.kind, conf, self._content_ids(guest)).encode()
        store = files.volume_store(call)
        volid = store.put_file(self._storage, name, "backup", form, data)
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

    def _check_limits(self, guest: SimGuest) -> None:
        """What stops a backup of one guest before it starts."""
        call = self._call
        resource = call.region.ha.resources.get(f"{_HA_TYPES[guest.kind]}:{guest.vmid}")
        wanted = resource.options.get("state", "started") if resource is not None else None
        if call.get("mode") == "stop" and wanted == "started":
            raise die(
                "Cannot execute a backup with stop mode on a HA managed and enabled Service. "
                "Use snapshot mode or disable the Service."
            )
        backups, limit = self._backups(guest), sum(prune.rules(self._retention()).values())
        kept = [volume for volume in backups if not volume.protected]
        if call.get("protected"):
            self._check_protected(len(backups) - len(kept))
        elif limit and not call.get("remove", 1) and len(kept) >= limit:
            raise die(
                f"There is a max backup limit of {limit} enforced by the target storage or the "
                "vzdump parameters. Either increase the limit or delete old backups."
            )

    def _check_protected(self, count: int) -> None:
        store, call = files.volume_store(self._call), self._call
        value = store.get_storage(self._storage).options.get("max-protected-backups")
        is_manager = call.has_privileges(f"/storage/{self._storage}", "Datastore.Allocate")
        limit = int(str(value)) if value is not None else -1 if is_manager else _PROTECTED
        if -1 < limit <= count:
            text = f"The number of protected backups per guest is limited to {limit}"
            raise die(f"{text} on storage '{self._storage}'")

    def _retention(self) -> str:
        storage = files.volume_store(self._call).get_storage(self._storage)
        return str(self._call.get("prune-backups") or storage.options.get("prune-backups") or "")

    def _backups(self, guest: SimGuest) -> list[SimVolume]:
        storage = files.volume_store(self._call).get_storage(self._storage)
        return [
            volume
            for volume in storage.volumes_on(self._call.node).values()
            if volume.content == "backup" and volume.vmid == guest.vmid
        ]

    def _prune(self, guest: SimGuest) -> None:
        """Delete the backups that ``prune-backups`` does not keep."""
        if not self._call.get("remove", 1):
            return
        store = files.volume_store(self._call)
        for volume, mark in prune.marks(self._backups(guest), self._retention()):
            if mark == "remove":
                store.free(f"{self._storage}:{volume.name}")
                self._log(f"removing backup '{self._storage}:{volume.name}'")


def defaults(call: PveCall) -> Row:
    """GET vzdump/defaults: the options of vzdump.conf and of the storage."""
    row: Row = {
        "all": 0,
        "bwlimit": 0,
        "compress": "0",
        "fleecing": {"enabled": 0},
        "ionice": 7,
        "lockwait": 180,
        "mailnotification": "always",
        "mode": "snapshot",
        "notification-mode": "auto",
        "performance": {"max-workers": 16, "pbs-entries-max": 1048576},
        "pigz": 0,
        "prune-backups": "keep-all=1",
        "quiet": 0,
        "remove": 1,
        "stdexcludes": 1,
        "stop": 0,
        "stopwait": 10,
        "zstd": 1,
    }
    name = call.get("storage", "local")
    call.check(f"/storage/{name}", "Datastore.Audit", "Datastore.AllocateSpace", any_of=True)
    storage = VolumeStore(call.runtime, call.node).get_storage(name)
    if "backup" not in storage.content:
        raise die(f"can't use storage '{name}' for backups - wrong content type")
    if "prune-backups" in storage.options:
        row["prune-backups"] = storage.options["prune-backups"]
    row["storage"] = name
    if names.has_path(storage):
        row["dumpdir"] = names.folder(storage, "backup")
    if not call.has_privileges(f"/nodes/{call.node}", "Sys.Audit"):
        row = {k: v for k, v in row.items() if k not in ("dumpdir", "ionice")}
    return row


def extract(call: PveCall) -> str:
    """GET vzdump/extractconfig: the configuration in an archive."""
    store, volid = VolumeStore(call.runtime, call.node), call.params["volume"]
    access.check_volume(call, store, volid, kind="backup")
    return config_text(read_archive(store.get(volid)))


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("POST", "/nodes/{node}/vzdump", vzdump, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/vzdump/defaults", defaults, permission=anyone),
    ApiRoute("GET", "/nodes/{node}/vzdump/extractconfig", extract, permission=anyone),
)
