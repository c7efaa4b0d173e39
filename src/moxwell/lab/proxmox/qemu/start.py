"""
Starting and stopping the process behind a VM, and what lives inside it.

A start applies what is pending, writes the cloud-init drive, checks (:mod:`.checks`) and marks the
guest running; the plug is told ``pace.boot`` seconds later. Everything that ends a VM goes through
``ended``.
"""

from typing import Any

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.drives import find_drive
from moxwell.lab.proxmox.errors import PveError
from moxwell.lab.proxmox.guest import GuestView
from moxwell.lab.proxmox.qemu import checks, cloudinit, hotplug, open_volumes
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import Call, Desk
from moxwell.lab.proxmox.state import Guest
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes.volume_store import Stock


async def start(call: Call, guest: Guest, work: Work, *, resumed: bool = False) -> None:
    """Bring the process up; the file lock is held."""
    if not resumed and files.is_pending(guest):
        hotplug.apply(call, guest)
    if cloudinit.regenerate(call, guest):
        work.log("generating cloud-init ISO")
    checks.check_start(call, guest, work)
    await work.sleep(call.region.pace.start)
    started(call.desk, guest)


def started(desk: Desk, guest: Guest, *, paused: bool = False) -> None:
    """Mark a guest running and let it boot."""
    guest.running, guest.paused, guest.booted = True, paused, False
    guest.live = dict(guest.conf)
    guest.pid, guest.started = desk.region.next_number() + 10000, desk.now()
    open_volumes.note(desk, guest)
    desk.touch(guest.vmid)
    boot(desk, guest)


def boot(desk: Desk, guest: Guest) -> None:
    """Let what is inside come up after the world's boot time."""
    mark = (guest.pid, guest.started)
    guest.booted = False

    async def come_up() -> None:
        await desk.clock.sleep(desk.region.pace.boot)
        if guest.running and (guest.pid, guest.started) == mark:
            guest.booted = True
            await desk.inside.booted(view(desk, guest))

    desk.later(come_up())


def resume(desk: Desk) -> None:
    """After a restart of the simulator: guests that run come up again, all in one go."""
    running = [guest for guest in desk.region.guests.values() if guest.running]
    if not running:
        return

    async def come_up() -> None:
        await desk.clock.sleep(desk.region.pace.boot)
        for guest in running:
            if guest.running:
                guest.booted = True
                await desk.inside.booted(view(desk, guest))

    desk.later(come_up())


async def ended(desk: Desk, guest: Guest) -> None:
    """The process is gone, for whatever reason."""
    if not guest.running:
        return
    open_volumes.forget(desk, guest)
    guest.running = guest.paused = guest.booted = False
    guest.live, guest.pid = {}, 0
    for key in [k for k in guest.special if k.startswith("ghost:")]:
        del guest.special[key]
    desk.touch(guest.vmid)
    await desk.inside.stopped(desk.region.name, guest.vmid)


def view(desk: Desk, guest: Guest) -> GuestView:
    """What the guest can see of itself."""
    conf = guest.live or guest.conf
    smbios = devices.read(devices.SMBIOS, conf.get("smbios1", ""))
    return GuestView(
        region=desk.region.name,
        node=guest.node,
        vmid=guest.vmid,
        kind=guest.kind,
        name=str(conf.get("name") or conf.get("hostname") or f"VM{guest.vmid}"),
        uuid=smbios.get("uuid", ""),
        conf=dict(conf),
        media=lambda slot: medium(desk, guest, slot),
        power_off=lambda: desk.later(ended(desk, guest)),
        reboot=lambda: boot(desk, guest),
        plugged=lambda: plugged(guest),
        setup_seconds=desk.region.pace.setup,
    )


def plugged(guest: Guest) -> dict[str, Any]:
    """What the running guest's kernel sees: hot-plugged hardware too, ghosts not."""
    ghosts = {k.removeprefix("ghost:") for k in guest.special if k.startswith("ghost:")}
    return {k: v for k, v in (guest.live or guest.conf).items() if k not in ghosts}


def medium(desk: Desk, guest: Guest, slot: str) -> bytes | None:
    """The bytes in a drive: an uploaded image, or the cloud-init ISO as last written."""
    text = guest.conf.get(slot)
    drive = find_drive(slot, text) if text is not None else None
    if drive is None:
        return None
    if drive.is_cloudinit:
        return cloudinit.image(desk, guest)
    volume = Stock(desk, guest.node).find(drive.file)
    return volume.data if volume is not None else None


async def autostart(call: Call, guest: Guest, work: Work) -> None:
    """The start that a create request asked for; its failure is only a remark."""

    async def run(inner: Work) -> None:
        async with call.hold("qemu", guest.vmid):
            await start(call, guest, inner)

    try:
        call.spawn("qmstart", guest.vmid, run)
    except PveError as problem:
        work.log(problem.message)


def agent_enabled(guest: Guest, *, live: bool = False) -> bool:
    """Is the agent switched on, in the configuration or in the running process?"""
    conf = guest.live if live and guest.running else guest.conf
    return devices.read(devices.AGENT, conf.get("agent", "0")).get("enabled") == "1"
