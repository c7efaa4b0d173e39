"""POST template: makes a template of a VM, whose disks become base images."""

from moxwell.lab.proxmox.config_schema.drives import Drive, write_drive
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext

TEMPLATE_SECONDS = 0.25  # per disk


def _may_become_template(call: PveCall) -> SimGuest:
    guest = call.get_guest(call.params["vmid"])
    files.check_lock(guest)
    if guest.snapshots:
        raise die("unable to create template, because VM contains snapshots")
    if guest.template and not call.get("disk"):
        raise die("you can't convert a template to a template")
    if guest.running:
        raise die("you can't convert a VM to template if VM is running")
    return guest


def template(call: PveCall) -> str:
    """POST template."""
    _may_become_template(call)

    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", call.params["vmid"]):
            guest = _may_become_template(call)
            guest.conf["template"] = 1
            files.write(call.runtime, guest)
            await make_bases(call, guest, ctx, only=call.get("disk"))

    return call.spawn("qmtemplate", call.params["vmid"], worker)


async def make_bases(
    call: PveCall, guest: SimGuest, ctx: WorkerContext, only: str | None = None
) -> None:
    """
    Convert the disks of a template to base images.

    A conversion takes as long as a request to the same host, so who reads the guest meanwhile sees
    one disk after the other change.
    """
    store = files.volume_store(call)
    for drive in list(files.drives(guest.conf)):
        if drive.is_cdrom_media or (only and drive.slot != only) or drive.storage is None:
            continue
        if store.find(drive.file) is None or not store.feature("template", drive.file):
            continue
        await call.runtime.requests.wait(guest.vmid, TEMPLATE_SECONDS)
        base = store.make_base(drive.file)
        guest.conf[drive.slot] = write_drive(Drive(drive.slot, base, drive.options))
        files.write(call.runtime, guest)
