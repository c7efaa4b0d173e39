"""
POST clone.

The checks run twice, before the task and in the worker. During the task the new configuration
contains only ``lock: clone`` and its lock file is held; the source is locked shared.
"""

from contextlib import AbstractAsyncContextManager

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.drives import Drive, find_drive, is_drive, write_drive
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.config_schema.property_strings import write as write_properties
from moxwell.lab.proxmox.errors import PveException, die, forbidden
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import create, disks, identity, privileges, snapshot
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimFirewall, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext

_NOT_COPIED = frozenset(
    words(
        "snapshots parent snaptime vmstate snapstate runningcpu runningmachine"
        " running-nets-host-mtu lock digest"
    )
)


def check_permission(call: PveCall) -> None:
    """VM.Clone on the source, VM.Allocate on the new VMID or its pool."""
    call.check(f"/vms/{call.params['vmid']}", "VM.Clone")
    newid, pool = call.params.get("newid"), call.params.get("pool")
    if newid is not None and call.has_privileges(f"/vms/{newid}", "VM.Allocate"):
        return
    if pool and call.has_privileges(f"/pool/{pool}", "VM.Allocate"):
        return
    raise forbidden()


class _Plan:
    """The parameters of a clone, and what it copies from the source."""

    def __init__(self, call: PveCall, running: bool) -> None:
        self.call, self.running = call, running
        self.vmid, self.newid = call.params["vmid"], call.params["newid"]
        self.snapname: str | None = call.get("snapname")
        target = call.get("target")
        self.target: str | None = None if target in (call.node, "localhost") else target
        self.drives: list[Drive] = []
        self.full: set[str] = set()
        self.conf: Conf = {}

    def look(self) -> Conf:
        """Check everything; returns the configuration to copy."""
        call = self.call
        create.check_pool(call, call.get("pool"))
        if self.target and self.target not in call.region.hosts:
            raise die(f"no such cluster node '{self.target}'")
        self._check_storage()
        guest = call.get_guest(self.vmid)
        files.check_lock(guest)
        if guest.running != self.running:
            raise die("unexpected state change")
        old = snapshot.get(guest, self.snapname).conf if self.snapname else guest.conf
        full = bool(call.get("full", not guest.template))
        for name in ("storage", "format"):
            if call.get(name) is not None and not full:
                raise die(f"parameter '{name}' not allowed for linked clones")
        shared = self._check_access(old)
        privileges.check_mappings(call, old)
        privileges.check_bridges(call, old)
        if self.target and not shared:
            raise die(f"can't clone VM to node '{self.target}' (VM uses local storage)")
        other = call.region.guests.get(self.newid)
        if other is not None and other.node == call.node and other.kind == "qemu":
            raise die(f"unable to create VM {self.newid}: config file already exists")
        self._copy(old, full)
        return old

    def _check_storage(self) -> None:
        storage = self.call.get("storage")
        if not storage:
            return
        disks.check_images(self.call, storage)
        if self.target:
            files.volume_store(self.call).get_enabled(storage, self.target)
            if not files.volume_store(self.call).get_storage(storage).shared:
                raise die(f"can't clone to non-shared storage '{storage}'")

    def _check_access(self, old: Conf) -> bool:
        """Check storage permissions; returns whether all volumes are on shared storages."""
        call, shared = self.call, True
        for drive in files.drives(old):
            if drive.file == "none":
                continue
            if drive.is_cdrom_media and drive.file == "cdrom":
                call.check("/", "Sys.Console")
                continue
            name = drive.storage
            if name is None:
                raise die(f"unable to parse volume ID '{drive.file}'")
            shared = shared and files.volume_store(call).get_storage(name).shared
            if not drive.is_cdrom_media:
                target = call.get("storage") or name
                call.check(f"/storage/{target}", "Datastore.AllocateSpace")
        if old.get("vmstatestorage"):
            call.check(f"/storage/{old['vmstatestorage']}", "Datastore.AllocateSpace")
        return shared

    def _copy(self, old: Conf, full: bool) -> None:
        self.drives, self.full, self.conf = [], set(), {"lock": "clone"}
        for key in sorted(old):
            if key in _NOT_COPIED or key.startswith("unused"):
                continue
            if full and self.running and not self.snapname and key == "tpmstate0":
                raise die("cannot clone TPM state while VM is running")
            if key.startswith("net") and key[3:].isdigit():
                self.conf[key] = identity.with_mac(self.call, str(old[key]), fresh=True)
            elif is_drive(key):
                self._copy_drive(key, old, full)
            else:
                self.conf[key] = old[key]

    def _copy_drive(self, key: str, old: Conf, full: bool) -> None:
        drive = find_drive(key, old[key])
        if drive is None:
            raise die(f"unable to parse drive options for '{key}'")
        if drive.is_cdrom:
            self.conf[key] = old[key]
            return
        copied = full or drive.is_cloudinit or key == "tpmstate0"
        label, feature = ("Full", "copy") if copied else ("Linked", "clone")
        if not files.volume_store(self.call).feature(feature, drive.file, self.snapname):
            of = "a snapshot of " if self.snapname else ""
            raise die(f"{label} clone feature is not supported for {of}'{drive.file}' ({key})")
        if copied:
            self.full.add(key)
        self.drives.append(drive)


async def clone(call: PveCall) -> str:
    """POST clone."""
    source = files.get_local_guest(call, call.params["vmid"])
    plan = _Plan(call, source.running)
    plan.look()
    return call.spawn("qmclone", plan.vmid, lambda ctx: _clone(call, plan, ctx))


def _source_lock(call: PveCall, plan: _Plan) -> AbstractAsyncContextManager[None]:
    if plan.running:
        return call.hold("qemu", plan.vmid, 1)
    return files.shared_lock(call, plan.vmid, 1)


async def _clone(call: PveCall, plan: _Plan, ctx: WorkerContext) -> None:
    async with _source_lock(call, plan), call.hold("qemu", plan.newid, 1):
        old = plan.look()
        if plan.newid in call.region.guests:
            path = f"/etc/pve/nodes/{call.node}/qemu-server/{plan.newid}.conf"
            raise die(f"close (rename) atomic file '{path}' failed: File exists")
        guest = _create_config(call, plan)
        made: list[str] = []
        done = False
        try:
            await _copy_drives(call, plan, ctx, made)
            done = True
        except PveException as problem:
            raise die(f"clone failed: {problem.in_task}") from problem
        finally:
            if not done and call.region.hosts[call.node].online:
                _undo(call, guest, made)  # not after a power loss of the host
        _finish(call, plan, guest, old)


def _create_config(call: PveCall, plan: _Plan) -> SimGuest:
    """Create the temporary configuration of the new guest and copy the firewall configuration."""
    guest = SimGuest(plan.newid, "qemu", call.node)
    guest.conf = {"lock": "clone", "description": " qmclone temporary file"}
    guest.incarnation = call.region.next_number()
    source = call.region.guests[plan.vmid].firewall
    guest.firewall = SimFirewall(
        options=dict(source.options),
        rules=[dict(rule) for rule in source.rules],
        aliases={k: dict(v) for k, v in source.aliases.items()},
        ipsets={k: dict(v) for k, v in source.ipsets.items()},
    )
    call.region.guests[plan.newid] = guest
    call.runtime.mark_changed(plan.newid)
    return guest


async def _copy_drives(call: PveCall, plan: _Plan, ctx: WorkerContext, made: list[str]) -> None:
    if call.major >= 9:
        ctx.log(f"creating a clone of VM {plan.vmid}")
    target = disks.VolumeTarget(plan.newid)
    taken = call.region.guests[plan.vmid].snapshots.get(plan.snapname or "")
    for drive in plan.drives:
        copied = drive.slot in plan.full
        new = await disks.clone_disk(
            call,
            ctx,
            drive,
            target,
            full=copied,
            storage=call.get("storage"),
            form=call.get("format"),
            of=taken,
        )
        made.append(new.file)
        plan.conf[drive.slot] = write_drive(new)


def _undo(call: PveCall, guest: SimGuest, made: list[str]) -> None:
    store = files.volume_store(call)
    for volid in made:
        if store.find(volid) is not None:
            store.free(volid)
    if call.region.guests.get(guest.vmid) is guest:
        del call.region.guests[guest.vmid]
    call.runtime.mark_changed(guest.vmid)


def _finish(call: PveCall, plan: _Plan, guest: SimGuest, old: Conf) -> None:
    conf, runtime = plan.conf, call.runtime
    smbios = devices.read(devices.SMBIOS, conf.get("smbios1", ""))
    smbios["uuid"] = identity.new_uuid(runtime)
    conf["smbios1"] = write_properties(devices.SMBIOS, smbios)
    if conf.get("vmgenid"):
        conf["vmgenid"] = identity.new_uuid(runtime)
    conf.pop("template", None)
    conf.pop("lock", None)
    conf["name"] = call.get("name") or f"Copy-of-VM-{old.get('name') or plan.vmid}"
    if call.get("description"):
        conf["description"] = call.get("description")
    guest.conf = conf
    if plan.target:
        guest.node = plan.target
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and plan.newid not in pool.vms:
        pool.vms.append(plan.newid)
    files.write(runtime, guest)
