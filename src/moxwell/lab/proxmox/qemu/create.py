"""
POST qemu: a new VM, or one restored from a backup.

The configuration file exists from the request on, with ``lock=create``; the worker makes the disks
and writes the rest. If it fails, file and disks go again.
"""

from typing import Any
from urllib.parse import unquote

from moxwell.lab.proxmox.config_schema import vm
from moxwell.lab.proxmox.config_schema.drives import is_drive
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveError, die, forbidden, param_error
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import disks, identity, restore, rights, start
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Guest, HaResource, Task, Value
from moxwell.lab.proxmox.tasks import Work

_OWN = frozenset(
    words(
        "node vmid archive bwlimit force pool start storage unique live-restore"
        " import-working-storage ha-managed"
    )
)


async def create(call: Call) -> str:
    """Check the request, put down the locked file, leave the rest to a worker."""
    vmid = int(call.params["vmid"])
    settings: dict[str, Value] = {k: v for k, v in call.params.items() if k not in _OWN}
    pool, storage, archive = call.get("pool"), call.get("storage"), call.get("archive")
    if settings.get("sshkeys") is not None:
        identity.check_ssh_keys(unquote(str(settings["sshkeys"])))
    check_pool(call, pool)
    if storage is not None and archive:
        call.check(f"/storage/{storage}", "Datastore.AllocateSpace")
    check_allocate(call, vmid, pool)
    if archive:
        for slot in sorted(k for k in settings if is_drive(k)):
            raise param_error({slot: "option conflicts with option 'archive'"})
        restore.check(call, vmid, archive)
    _check_settings(call, vmid, settings, pool, storage)
    word = "restore" if archive else "create"
    refuse_taken(call, vmid, f"unable to {word} VM {vmid} -", force=bool(call.get("force")))
    if archive:
        return restore.spawn(call, vmid, archive, settings)
    guest = put_down(call, vmid, "qemu")
    return call.spawn("qmcreate", vmid, lambda work: _make(call, guest, settings, work))


def _check_settings(
    call: Call, vmid: int, settings: dict[str, Value], pool: str | None, storage: str | None
) -> None:
    if not settings:
        return
    if "cdrom" in settings:
        settings["ide2"] = disks.as_cdrom(str(settings.pop("cdrom")))
    rights.check_storage(call, vmid, settings, storage)
    rights.check_options(call, vmid, settings, pool)
    for name, value in settings.items():
        rights.check_hardware(call, vmid, name, value, pool=pool)
    rights.check_bridges(call, settings)
    disks.check_params(call, settings)
    for name in [n for n in settings if n.startswith("net") and n[3:].isdigit()]:
        settings[name] = identity.with_mac(call, str(settings[name]))


def check_pool(call: Call, pool: str | None) -> None:
    if pool is not None and pool not in call.region.pools:
        raise forbidden(f"pool '{pool}' does not exist")


def check_allocate(call: Call, vmid: int, pool: str | None) -> None:
    """The right to make a guest under this id, or in this pool."""
    if call.may(f"/vms/{vmid}", "VM.Allocate"):
        return
    if pool and call.may(f"/pool/{pool}", "VM.Allocate"):
        return
    raise forbidden()


def refuse_taken(call: Call, vmid: int, lead: str, *, force: bool = False) -> None:
    """No two guests under one id, wherever they are."""
    other = call.region.guests.get(vmid)
    if other is None or (force and other.node == call.node):
        return
    word = "VM" if other.kind == "qemu" else "CT"
    raise die(f"{lead} {word} {vmid} already exists on node '{other.node}'")


def put_down(call: Call, vmid: int, kind: str) -> Guest:
    """An empty, locked configuration; it goes again if its worker fails."""
    guest = Guest(vmid, kind, call.node, {"lock": "create"})
    guest.incarnation = call.region.next_number()
    call.region.guests[vmid] = guest
    call.desk.touch(vmid)
    if not call.desk.extras.get("sweeper"):
        call.desk.extras["sweeper"] = True
        call.desk.workers.on_end(lambda task: _sweep(call.desk, task))
    return guest


def _sweep(desk: Any, task: Task) -> None:
    """Remove what a failed create worker left."""
    if task.type not in ("qmcreate", "vzcreate") or task.exitstatus in (None, "OK"):
        return
    guest = desk.region.guests.get(int(task.id))
    if guest is not None and guest.lock == "create":
        del desk.region.guests[guest.vmid]
        desk.touch(guest.vmid)


async def _make(call: Call, guest: Guest, settings: dict[str, Value], work: Work) -> None:
    async with call.hold("qemu", guest.vmid, 1):
        try:
            await _fill(call, guest, settings, work)
        except PveError as problem:
            raise die(f"unable to create VM {guest.vmid} - {problem.in_task}") from problem
    _join_pool(call, guest.vmid)
    join_ha(call, guest, work)
    if call.get("start"):
        work.log("Execute autostart")
        await start.autostart(call, guest, work)


async def _fill(call: Call, guest: Guest, settings: dict[str, Value], work: Work) -> None:
    desk = call.desk
    plain = {k: v for k, v in settings.items() if not is_drive(k)}
    conf: dict[str, Value] = {}
    for name, value in plain.items():
        kept = vm.stored(name, value, call.major)
        if kept is not None:
            conf[name] = kept
    target = disks.Target(guest.vmid, (), bool(conf.get("template")))
    builder = disks.Builder(call, work, target)
    conf |= await builder.create(settings, call.get("storage"))
    conf["meta"] = identity.meta(desk)
    if "tags" in conf and call.major >= 9:
        conf["tags"] = identity.normal_tags(call, str(conf["tags"])) or " "
    if not str(conf.get("boot", "")).strip():
        conf["boot"] = files.default_boot(conf)
    conf.setdefault("smbios1", f"uuid={identity.new_uuid(desk)}")
    if str(conf.get("vmgenid", "1")) == "1" and conf.get("arch") != "aarch64":
        conf["vmgenid"] = identity.new_uuid(desk)
    guest.conf = conf
    files.write(desk, guest)


def join_ha(call: Call, guest: Guest, work: Work) -> None:
    """``ha-managed`` (PVE 9): make the new guest an HA resource."""
    if not call.get("ha-managed"):
        return
    work.log("Add as HA resource")
    sid = ha_manager.sid_of(guest)
    options = {"state": "started" if call.get("start") else "stopped"}
    kind = sid.partition(":")[0]
    call.region.ha.resources[sid] = HaResource(sid, kind, options, node=guest.node)
    ha_manager.wake(call.desk)


def _join_pool(call: Call, vmid: int) -> None:
    pool = call.region.pools.get(str(call.get("pool", "")))
    if pool is not None and vmid not in pool.vms:
        pool.vms.append(vmid)
