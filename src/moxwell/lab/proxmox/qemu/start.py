"""
Starts and stops the QEMU process of a VM and its guest operating system.

A start applies pending changes, writes the cloud-init drive, runs :mod:`.checks` and marks the
guest as running; ``GuestOs.booted`` is called ``pace.boot`` seconds later. Everything that stops a
VM calls ``ended``.
"""

from typing import Any

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.drives import find_drive
from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.guest import GuestVm
from moxwell.lab.proxmox.qemu import checks, cloudinit, hotplug, open_volumes
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


async def start(
    call: PveCall, guest: SimGuest, ctx: WorkerContext, *, resumed: bool = False
) -> None:
    """Start the process; the caller holds the lock file."""
    if not resumed and files.is_pending(guest):
        hotplug.apply(call, guest)
    if cloudinit.regenerate(call, guest):
        ctx.log("generating cloud-init ISO")
    checks.check_start(call, guest, ctx)
    await ctx.sleep(call.region.pace.start)
    mark_running(call.runtime, guest)


def mark_running(runtime: RegionRuntime, guest: SimGuest, *, paused: bool = False) -> None:
    """Mark a guest as running and boot it."""
    guest.running, guest.paused, guest.booted = True, paused, False
    guest.live = dict(guest.conf)
    guest.pid, guest.started = runtime.region.next_number() + 10000, runtime.now()
    open_volumes.add(runtime, guest)
    runtime.mark_changed(guest.vmid)
    boot(runtime, guest)


def boot(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Boot the guest operating system after the configured boot time."""
    process = (guest.pid, guest.started)
    guest.booted = False

    async def come_up() -> None:
        await runtime.clock.sleep(runtime.region.pace.boot)
        if guest.running and (guest.pid, guest.started) == process:
            guest.booted = True
            await runtime.guest_os.booted(guest_vm(runtime, guest))

    runtime.run_in_background(come_up())


def resume(runtime: RegionRuntime) -> None:
    """Boot all running guests after a restart of the simulator."""
    running = [guest for guest in runtime.region.guests.values() if guest.running]
    if not running:
        return

    async def come_up() -> None:
        await runtime.clock.sleep(runtime.region.pace.boot)
        for guest in running:
            if guest.running:
                guest.booted = True
                await runtime.guest_os.booted(guest_vm(runtime, guest))

    runtime.run_in_background(come_up())


async def mark_stopped(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Clean up after the process stopped."""
    if not guest.running:
        return
    open_volumes.remove(runtime, guest)
    guest.running = guest.paused = guest.booted = False
    guest.live, guest.pid = {}, 0
    guest.used_cpu = guest.used_memory = 0.0
    guest.fault_status = ""
    for key in [k for k in guest.special if k.startswith(("unattached:", "pci:"))]:
        del guest.special[key]
    runtime.mark_changed(guest.vmid)
    if guest.kind == "qemu" and runtime.region.pace.cleanup > 0:
        runtime.run_in_background(_clean_up(runtime, guest.vmid))
    await runtime.guest_os.stopped(runtime.region.name, guest.vmid)


async def _clean_up(runtime: RegionRuntime, vmid: int) -> None:
    """``qm cleanup``, which qmeventd starts: it holds the lock file when a start may follow."""
    seconds = runtime.region.pace.cleanup
    try:
        async with runtime.locks.hold("qemu", vmid, runtime.region.pace.file_lock):
            await runtime.clock.sleep(seconds)
    except PveException:
        return  # another task holds the lock file; the next stop cleans up


def guest_vm(runtime: RegionRuntime, guest: SimGuest) -> GuestVm:
    """The VM as its guest operating system sees it."""
    conf = guest.live or guest.conf
    smbios = devices.read(devices.SMBIOS, conf.get("smbios1", ""))
    return GuestVm(
        region=runtime.region.name,
        node=guest.node,
        vmid=guest.vmid,
        kind=guest.kind,
        name=str(conf.get("name") or conf.get("hostname") or f"VM{guest.vmid}"),
        uuid=smbios.get("uuid", ""),
        conf=dict(conf),
        media=lambda slot: medium(runtime, guest, slot),
        power_off=lambda: runtime.run_in_background(mark_stopped(runtime, guest)),
        reboot=lambda: boot(runtime, guest),
        live_config=lambda: live_config(guest),
        setup_seconds=runtime.region.pace.setup,
        load=lambda: (guest.cpu_load, guest.memory_load),
        report_load=lambda cpu, memory: _use(runtime, guest, cpu, memory),
    )


def _use(runtime: RegionRuntime, guest: SimGuest, cpu: float, memory: float) -> None:
    """The operating system of a guest uses these shares of its vCPUs and its memory."""
    shares = (min(cpu, 1.0), min(memory, 1.0))
    if guest.running and (guest.used_cpu, guest.used_memory) != shares:
        guest.used_cpu, guest.used_memory = shares
        runtime.mark_changed(guest.vmid)


def live_config(guest: SimGuest) -> dict[str, Any]:
    """The hardware of the running VM, including hotplugged devices that QEMU accepted."""
    unattached = {
        k.removeprefix("unattached:") for k in guest.special if k.startswith("unattached:")
    }
    return {k: v for k, v in (guest.live or guest.conf).items() if k not in unattached}


def medium(runtime: RegionRuntime, guest: SimGuest, slot: str) -> bytes | None:
    """The bytes in a drive: an uploaded image, or the current cloud-init ISO."""
    text = guest.conf.get(slot)
    drive = find_drive(slot, text) if text is not None else None
    if drive is None:
        return None
    if drive.is_cloudinit:
        return cloudinit.image(runtime, guest)
    volume = VolumeStore(runtime, guest.node).find(drive.file)
    return volume.data if volume is not None else None


async def autostart(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """Start a VM after its creation (``start=1``); a failure is only logged."""

    async def run(inner: WorkerContext) -> None:
        async with call.hold("qemu", guest.vmid):
            await start(call, guest, inner)

    try:
        call.spawn("qmstart", guest.vmid, run)
    except PveException as problem:
        ctx.log(problem.message)


def agent_enabled(guest: SimGuest, *, live: bool = False) -> bool:
    """Whether the agent is enabled in the configuration, or in the running process."""
    conf = guest.live if live and guest.running else guest.conf
    return devices.read(devices.AGENT_9, conf.get("agent", "0")).get("enabled") == "1"
