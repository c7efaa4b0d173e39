"""
POST migrate: migrates a VM to another node of the cluster, online or offline.

Local volumes are copied with the migration bandwidth of the world file; shared ones are not. An
online migration takes the time to copy the memory.
"""

from moxwell.lab.proxmox import replication, replication_runs
from moxwell.lab.proxmox.bridges import has_bridge
from moxwell.lab.proxmox.config_schema import formats, vm
from moxwell.lab.proxmox.config_schema.drives import Drive, write_drive
from moxwell.lab.proxmox.errors import PveException, bad_params, die, param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import migrate_preconditions, open_volumes
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Row, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


def id_map(
    text: str, parameter: str, what: str = "storage"
) -> tuple[str | None, dict[str, str], bool]:
    """(default, mapping, identity) of ``targetstorage`` and similar parameters."""
    default, pairs, same, problem = None, dict[str, str](), False, ""
    for item in formats.split_list(text):
        source, colon, target = item.partition(":")
        if item == "1":
            same = True
        elif colon and source in pairs:
            problem = problem or f"duplicate mapping for source '{source}'"
        elif colon:
            pairs[source] = target
        elif default is not None:
            problem = problem or "default target ID can only be provided once"
        else:
            default = source
    if same and (default or pairs):
        problem = problem or "identity mapping cannot be combined with other mappings"
    if problem:
        raise param_error({parameter: f"failed to parse {what} map: {problem}\n"})
    return default, pairs, same


def _check_storages(call: PveCall, guest: SimGuest, target: str) -> None:
    text = call.get("targetstorage")
    if not text:
        check_available(call, guest, target)
        return
    default, pairs, same = id_map(text, "targetstorage")
    if not same:
        call.check_vm(guest.vmid, "VM.Config.Disk")
    store = files.volume_store(call)
    for name in [*pairs.values(), *([default] if default else [])]:
        found = store.get_enabled(name, target)
        call.check(f"/storage/{name}", "Datastore.AllocateSpace")
        if "images" not in found.content:
            raise die(f"storage '{name}' does not support vm images")
    if same:
        check_available(call, guest, target)


def check_available(call: PveCall, guest: SimGuest, target: str) -> None:
    store = files.volume_store(call)
    for drive in files.drives(guest.conf):
        if drive.storage:
            store.get_enabled(drive.storage)
            store.get_enabled(drive.storage, target)


def check_target(call: PveCall) -> str:
    target = str(call.params["target"])
    if target == call.node:
        raise bad_params(target="target is local node.")
    if target not in call.region.hosts:
        raise die(f"no such cluster node '{target}'")
    return target


def migrate(call: PveCall) -> str:
    """POST migrate."""
    target = check_target(call)
    for name in ("force", "migration_type", "migration_network"):
        if call.get(name) and not call.is_root:
            raise param_error({name: "Only root may use this option."})
    guest = call.get_guest(call.params["vmid"])
    files.check_lock(guest)
    if guest.running and not call.get("online"):
        raise die("can't migrate running VM without --online")
    if guest.running and not call.get("force"):
        _check_replicas(call, guest, target)
    _check_storages(call, guest, target)
    if not call.via_ha and ha_manager.find_managed(call.region, guest) is not None:
        return ha_manager.delegate(call, guest, "migrate", target)
    return call.spawn(
        "qmigrate", guest.vmid, lambda ctx: _Migration(call, guest, target, ctx).run()
    )


def _check_replicas(call: PveCall, guest: SimGuest, target: str) -> None:
    """A replicated guest migrates online only to a node that has its copies."""
    jobs = [j for j in call.region.replication.values() if j.get("guest") == guest.vmid]
    if jobs and not any(job["target"] == target for job in jobs):
        raise die(
            f"Cannot live-migrate replicated VM to node '{target}' - not a replication target."
            " Use 'force' to override."
        )


class _Migration:
    """One migration."""

    def __init__(self, call: PveCall, guest: SimGuest, target: str, ctx: WorkerContext) -> None:
        self._call, self._guest, self._target, self._work = call, guest, target, ctx
        self._began = call.now()
        self._made: list[str] = []
        self._moved: list[tuple[Drive, str]] = []

    def _log(self, text: str) -> None:
        self._work.log(f"{self._call.runtime.clock.now():%Y-%m-%d %H:%M:%S} {text}")

    async def run(self) -> None:
        call, guest = self._call, self._guest
        async with call.hold("qemu", guest.vmid):
            address = call.region.hosts[self._target].address.partition("/")[0]
            where = f"node '{self._target}' ({address})"
            self._log(f"starting migration of VM {guest.vmid} to {where}")
            done = False
            try:
                self._prepare()
                await self._copy_volumes()
                await self._copy_memory()
                done = True
            except PveException as problem:
                self._log(f"ERROR: {problem.message}")
                raise die("migration aborted") from problem
            finally:
                if not done and call.region.hosts[call.node].online:
                    self._give_up()
            self._arrive()
            spent = int(call.now() - self._began)
            clock = f"{spent // 3600:02}:{spent // 60 % 60:02}:{spent % 60:02}"
            self._log(f"migration finished successfully (duration {clock})")

    def _prepare(self) -> None:
        call, guest = self._call, self._guest
        files.check_lock(guest)
        if not call.region.hosts[self._target].online:
            address = call.region.hosts[self._target].address.partition("/")[0]
            raise die(f"Can't connect to destination address using public key ({address})")
        self._check_devices()
        self._scan()
        if guest.running:
            self._check_bridges()
        guest.conf["lock"] = "migrate"

    def _check_devices(self) -> None:
        """Local devices prevent a migration; mapped ones that of a running guest."""
        call, guest = self._call, self._guest
        local, mapped = migrate_preconditions.local_resources(call, guest)
        blocking = [name for name in local if name not in mapped]
        if blocking and (guest.running or not call.get("force")):
            raise die(f"can't migrate VM which uses local devices: {', '.join(blocking)}")
        missing = migrate_preconditions.missing_mappings(call, mapped, self._target)
        if missing:
            text = f"can't migrate to '{self._target}': missing mapped devices"
            raise die(f"{text} {', '.join(missing)}")
        fixed = [name for name, row in mapped.items() if "live-migration" not in row]
        if guest.running and fixed:
            listed = ", ".join(fixed)
            raise die(f"can't live migrate VM which uses following mapped devices: {listed}")

    def _scan(self) -> None:
        """Check every local volume; logs all errors before it fails."""
        rows = migrate_preconditions.local_disks(self._call, self._guest)
        problems = {row["volid"]: self._why_not(row) for row in rows}
        for row in sorted(rows, key=lambda row: str(row["volid"])):
            attachment = "attached" if row["is_attached"] else "unused"
            self._log(f"found local disk '{row['volid']}' ({attachment})")
        found = {volid: text for volid, text in problems.items() if text}
        for volid, text in sorted(found.items()):
            self._log(f"can't migrate local disk '{volid}': {text}")
        if found:
            raise die("Problem found while scanning volumes - can't migrate VM - check log")
        store = files.volume_store(self._call)
        for row in rows:
            parsed = store.parse(row["volid"])
            if parsed.base is not None:
                text = f"can't migrate '{row['volid']}' as it's a clone of '{parsed.base}'"
                raise die(f"Problem found while scanning volumes - {text}")

    def _why_not(self, row: Row) -> str | None:
        store, volid, guest = files.volume_store(self._call), str(row["volid"]), self._guest
        if store.find(volid) is None:
            return f"volume '{volid}' does not exist"
        if row["cdrom"]:
            return None if "-cloudinit" in volid else "local cdrom image"
        owner = store.owner(volid)
        if owner != guest.vmid:
            return f"owned by other VM (owner = VM {owner})"
        if store.base_in_use(volid):
            return "referenced by linked clone(s)"
        if guest.running and row["is_attached"] and not self._call.get("with-local-disks"):
            return "can't live migrate attached local disks without with-local-disks option"
        return None

    def _turn_jobs(self, source: str) -> None:
        """Switch replication jobs to the migration target to the opposite direction."""
        for job in self._call.region.replication.values():
            if job.get("guest") == self._guest.vmid and job.get("target") == self._target:
                job["source"], job["target"] = self._target, source

    def _check_bridges(self) -> None:
        target_store = self._call.region.hosts[self._target]
        for _, net in files.nets(self._guest.conf):
            bridge = net.get("bridge")
            if bridge and bridge not in target_store.bridges and has_bridge(self._call, bridge):
                self._log(f"start failed: bridge '{bridge}' does not exist")
                raise die("online migrate failure - remote command failed with exit code 255")

    async def _copy_volumes(self) -> None:
        call, guest = self._call, self._guest
        source_store, target_store = (
            files.volume_store(call),
            VolumeStore(call.runtime, self._target),
        )
        default, pairs, _ = id_map(str(call.get("targetstorage") or ""), "targetstorage")
        for conf_drive in [*files.drives(guest.conf), *files.unused(guest.conf)]:
            name = conf_drive.storage or ""
            storage = call.region.storages.get(name)
            wanted = pairs.get(name, default or name)
            if storage is None or (storage.shared and wanted == name):
                continue
            if wanted == name and await self._replicate(conf_drive):
                continue
            await self._copy_volume(source_store, target_store, conf_drive, wanted)

    async def _replicate(self, drive: Drive) -> bool:
        """Bring the replica on the target up to date; the source becomes the replica."""
        call, guest = self._call, self._guest
        job = replication.find_job(call, guest, self._target)
        if job is None or drive.slot not in replication_runs.replicatable(call.region, guest):
            return False
        self._log(f"replicating disk images: {drive.file}")
        if VolumeStore(call.runtime, self._target).find(drive.file) is None:
            size = files.volume_store(call).get(drive.file).size
            await self._work.sleep(size / call.region.pace.migration_bandwidth)
        replication_runs.run_job(call.runtime, job, guest, int(call.now()))
        return True

    async def _copy_volume(
        self, source_store: VolumeStore, target_store: VolumeStore, drive: Drive, storage: str
    ) -> None:
        call, guest = self._call, self._guest
        volume = source_store.get(drive.file)
        self._log(f"copying local disk images: {drive.file}")
        new = target_store.alloc_copy(storage, guest.vmid, volume)
        self._made.append(new)
        limit = int(call.get("bwlimit") or 0) * 1024.0
        rate = call.region.pace.migration_bandwidth
        await self._work.sleep(volume.size / (min(rate, limit) if limit else rate))
        copied = target_store.get(new)
        copied.content_id, copied.data = source_store.content_id(drive.file), volume.data
        target_store.set_used(new, max(copied.used, volume.used))
        self._moved.append((drive, new))

    async def _copy_memory(self) -> None:
        if not self._guest.running:
            return
        call, guest = self._call, self._guest
        self._log(f"starting VM {guest.vmid} on remote node '{self._target}'")
        self._log("start remote tunnel")
        self._log("ssh tunnel ver 1")
        self._log(f"starting online/live migration on unix:/run/qemu-server/{guest.vmid}.migrate")
        memory = vm.memory_mib(guest.live or guest.conf) << 20
        await self._work.sleep(memory / 4 / call.region.pace.migration_bandwidth)
        self._log("migration status: completed")

    def _give_up(self) -> None:
        guest = self._guest
        self._log("aborting phase 1 - cleanup resources")
        target_store = VolumeStore(self._call.runtime, self._target)
        for volid in self._made:
            if target_store.find(volid) is not None:
                target_store.free(volid)
        guest.conf.pop("lock", None)
        files.write(self._call.runtime, guest)

    def _arrive(self) -> None:
        guest, runtime = self._guest, self._call.runtime
        guest.conf.pop("lock", None)
        source_store = files.volume_store(self._call)
        for drive, new in self._moved:
            source_store.free(drive.file)
            is_unused = drive.slot.startswith("unused")
            text = new if is_unused else write_drive(Drive(drive.slot, new, drive.options))
            guest.conf[drive.slot] = text
        self._turn_jobs(guest.node)
        guest.node = self._target
        if guest.running:
            guest.pid = runtime.region.next_number() + 10000
            guest.live |= {k: v for k, v in guest.conf.items() if k in guest.live}
            open_volumes.add(runtime, guest)
        files.write(runtime, guest)
