"""
POST qemu: creates a VM, or restores one from a backup.

The request creates the configuration with ``lock: create``; the worker allocates the disks and
writes the rest. If the worker fails, configuration and disks are deleted.
"""

from typing import Any
from urllib.parse import unquote

from moxwell.lab.proxmox.config_schema import vm
from moxwell.lab.proxmox.config_schema.drives import is_drive
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die, forbidden, param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, identity, machine, privileges, restore, start, tags
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest, SimTask, Value
from moxwell.lab.proxmox.tasks import WorkerContext

_OWN = frozenset(
    words(
        "node vmid archive bwlimit force pool start storage unique live-restore"
        " import-working-storage ha-managed"
    )
)


async def create(call: PveCall) -> str:
    """Check the request, create the locked configuration and start the worker."""
    vmid = int(call.params["vmid"])
    settings: dict[str, Value] = {k: v for k, v in call.params.items() if k not in _OWN}
    pool, storage, archive = call.get("pool"), call.get("storage"), call.get("archive")
    if settings.get("sshkeys") is not None:
        identity.check_ssh_keys(unquote(str(settings["sshkeys"])))
    vm.clamp_cpuunits(settings)
    check_pool(call, pool)
    if storage is not None:
        call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
    _check_power(call, vmid, pool)
    if not _may_overwrite(call, vmid):
        check_allocate(call, vmid, pool)
    if archive:
        for slot in sorted(k for k in settings if is_drive(k)):
            raise param_error({slot: "option conflicts with option 'archive'"})
        restore.check(call, vmid, archive)
    _check_settings(call, vmid, settings, pool, storage)
    label = "restore" if archive else "create"
    check_vmid_free(call, vmid, f"unable to {label} VM {vmid} -", force=bool(call.get("force")))
    if archive:
        return restore.spawn(call, vmid, archive, settings)
    guest = create_config(call, vmid, "qemu")
    return call.spawn("qmcreate", vmid, lambda ctx: _make(call, guest, settings, ctx))


def _check_power(call: PveCall, vmid: int, pool: str | None) -> None:
    """PVE 9 checks what happens after the creation: HA management and the start."""
    if call.get("ha-managed"):
        call.check("/", "Sys.Console")
    if call.get("start") and call.major >= 9:
        privileges.check_guest(call, vmid, pool, "VM.PowerMgmt")


def _may_overwrite(call: PveCall, vmid: int) -> bool:
    """``VM.Backup`` is enough to restore an existing guest."""
    exists = call.find_guest(vmid, "qemu") is not None
    forced = bool(call.get("archive") and call.get("force") and exists)
    return forced and call.has_privileges(f"/vms/{vmid}", "VM.Backup")


def _check_settings(
    call: PveCall, vmid: int, settings: dict[str, Value], pool: str | None, storage: str | None
) -> None:
    if not settings:
        return
    if "cdrom" in settings:
        settings["ide2"] = disks.as_cdrom(str(settings.pop("cdrom")))
    privileges.check_storage(call, vmid, settings, storage)
    privileges.check_options(call, vmid, settings, pool)
    for name, value in settings.items():
        privileges.check_hardware(call, vmid, name, value, pool=pool)
    privileges.check_bridges(call, settings)
    disks.check_params(call, settings)
    for name in [n for n in settings if n.startswith("net") and n[3:].isdigit()]:
        settings[name] = identity.with_mac(call, str(settings[name]))


def check_pool(call: PveCall, pool: str | None) -> None:
    if pool is not None and pool not in call.region.pools:
        raise forbidden(f"pool '{pool}' does not exist")


def check_allocate(call: PveCall, vmid: int, pool: str | None) -> None:
    """Check the permission to create a guest under this VMID or in this pool."""
    if call.has_privileges(f"/vms/{vmid}", "VM.Allocate"):
        return
    if pool and call.has_privileges(f"/pool/{pool}", "VM.Allocate"):
        return
    raise forbidden()


def check_vmid_free(call: PveCall, vmid: int, lead: str, *, force: bool = False) -> None:
    """Raise if the VMID is in use on any node."""
    other = call.region.guests.get(vmid)
    if other is None or (force and other.node == call.node):
        return
    label = "VM" if other.kind == "qemu" else "CT"
    raise die(f"{lead} {label} {vmid} already exists on node '{other.node}'")


def create_config(call: PveCall, vmid: int, kind: str) -> SimGuest:
    """Create an empty, locked configuration; it is deleted if its worker fails."""
    guest = SimGuest(vmid, kind, call.node, {"lock": "create"})
    guest.incarnation = call.region.next_number()
    call.region.guests[vmid] = guest
    call.runtime.mark_changed(vmid)
    if not call.runtime.module_data.get("create_cleanup"):
        call.runtime.module_data["create_cleanup"] = True
        call.runtime.workers.on_end(lambda task: _delete_failed(call.runtime, task))
    return guest


def _delete_failed(runtime: Any, task: SimTask) -> None:
    """Delete the configuration that a failed worker created."""
    if task.type not in ("qmcreate", "vzcreate") or task.exitstatus in (None, "OK"):
        return
    guest = runtime.region.guests.get(int(task.id))
    if guest is not None and guest.lock == "create":
        del runtime.region.guests[guest.vmid]
        runtime.mark_changed(guest.vmid)


async def _make(
    call: PveCall, guest: SimGuest, settings: dict[str, Value], ctx: WorkerContext
) -> None:
    async with call.hold("qemu", guest.vmid, 1):
        try:
            await _fill(call, guest, settings, ctx)
        except PveException as problem:
            raise die(f"unable to create VM {guest.vmid} - {problem.in_task}") from problem
    add_to_pool(call, guest.vmid)
    ha_manager.manage_created(call, guest, ctx)
    if call.get("start"):
        ctx.log("Execute autostart")
        await start.autostart(call, guest, ctx)


async def _fill(
    call: PveCall, guest: SimGuest, settings: dict[str, Value], ctx: WorkerContext
) -> None:
    runtime = call.runtime
    plain = {k: v for k, v in settings.items() if not is_drive(k)}
    conf: dict[str, Value] = {}
    for name, value in plain.items():
        kept = vm.stored(name, value, call.major)
        if kept is not None:
            conf[name] = kept
    target = disks.VolumeTarget(guest.vmid, (), bool(conf.get("template")))
    builder = disks.DriveBuilder(call, ctx, target)
    conf |= await builder.create(settings, call.get("storage"))
    conf["meta"] = identity.meta(runtime)
    machine.check_clipboard(str(conf.get("vga", "")))
    pinned = machine.pinned(conf.get("machine"), conf.get("ostype"), call.major)
    if pinned is not None:
        conf["machine"] = pinned
    if "tags" in conf:
        tags.check(call, guest.vmid, "", str(conf["tags"]))
    if "tags" in conf and call.major >= 9:
        conf["tags"] = identity.normalize_tags(call, str(conf["tags"])) or " "
    if not str(conf.get("boot", "")).strip():
        conf["boot"] = files.default_boot(conf)
    conf.setdefault("smbios1", f"uuid={identity.new_uuid(runtime)}")
    if str(conf.get("vmgenid", "1")) == "1" and conf.get("arch") != "aarch64":
        conf["vmgenid"] = identity.new_uuid(runtime)
    guest.conf = conf
    files.write(runtime, guest)


def add_to_pool(call: PveCall, vmid: int) -> None:
    """Add the new guest to the pool of the request."""
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and vmid not in pool.vms:
        pool.vms.append(vmid)
