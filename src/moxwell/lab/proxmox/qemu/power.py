"""
Start, stop, shutdown, reboot, reset, suspend, resume: the buttons of a VM.

Most refusals happen inside the worker; a few at once. A guest that HA manages is not touched:
its manager is asked instead.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from moxwell.errors import Invalid, Unreachable
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.guest import AgentSilent
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import hotplug, start, vmstate
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Guest
from moxwell.lab.proxmox.tasks import Work

_ROOT_ONLY = words(
    "stateuri skiplock migratedfrom migration_type migration_network targetstorage force-cpu"
    " nets-host-mtu keepActive nocheck"
)
AGENT_SILENT = (
    "QEMU Guest Agent is not running - VM {} qmp command 'guest-ping' failed - got timeout"
)


def _check_root(call: Call) -> None:
    for name in _ROOT_ONLY:
        if call.get(name) and not call.is_root:
            raise param_error({name: "Only root may use this option."})


def _managed(call: Call, guest: Guest | None) -> bool:
    return (
        guest is not None and not call.via_ha and ha_manager.managed(call.region, guest) is not None
    )


def _locked(call: Call, vmid: int, action: Callable[[Work], Awaitable[None]]) -> Any:
    async def worker(work: Work) -> None:
        async with call.hold("qemu", vmid):
            await action(work)

    return worker


def power_on(call: Call) -> str:
    """POST start."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "start")

    async def action(work: Work) -> None:
        await _power_on(call, vmid, work)

    return call.spawn("qmstart", vmid, _locked(call, vmid, action))


async def _power_on(call: Call, vmid: int, work: Work) -> None:
    guest = call.get_guest(vmid)
    if guest.template:
        raise die("you can't start a vm if it's a template")
    if guest.lock == "backup" and guest.running:
        guest.paused = False
        return
    if not call.get("skiplock") and guest.lock != "suspended":
        files.check_lock(guest)
    if guest.running:
        raise die(f"VM {vmid} already running")
    resumed = vmstate.is_suspended(guest)
    if resumed:
        work.log("Resuming suspended VM")
    await start.start(call, guest, work, resumed=resumed)
    if resumed:
        vmstate.drop(call, guest)


def power_off(call: Call) -> str:
    """POST stop."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and _managed(call, guest):
        if call.get("overrule-shutdown"):
            raise param_error({"overrule-shutdown": "Not applicable for HA resources."})
        return ha_manager.delegate(call, guest, "stop")

    async def worker(work: Work) -> None:
        if call.get("overrule-shutdown"):
            _overrule(call, vmid, work)
        async with call.hold("qemu", vmid):
            await _stop(call, vmid)

    return call.spawn("qmstop", vmid, worker)


def _overrule(call: Call, vmid: int, work: Work) -> None:
    others = [
        task.upid
        for task in call.desk.workers.active()
        if task.type == "qmshutdown" and task.id == str(vmid)
    ]
    for upid in others:
        call.desk.workers.stop(upid)
    if others:
        work.log(f"overruled qmshutdown tasks: {', '.join(others)}")


async def _stop(call: Call, vmid: int) -> None:
    guest = files.assert_here(call, vmid)
    if not guest.running:
        return
    if not call.get("skiplock"):
        files.check_lock(guest)
    await _clean(call, guest)


async def _clean(call: Call, guest: Guest) -> None:
    """The process ended in our hands: pending changes become real."""
    await start.ended(call.desk, guest)
    if files.is_pending(guest):
        hotplug.apply(call, guest)


def shut_down(call: Call) -> str:
    """POST shutdown."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    gentle = True
    if guest is not None and guest.running and guest.paused:
        if not call.get("forceStop"):
            raise die("VM is paused - cannot shutdown")
        gentle = False
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "shutdown")

    async def action(work: Work) -> None:
        await _shut_down(call, vmid, work, gentle=gentle, force=bool(call.get("forceStop")))

    return call.spawn("qmshutdown", vmid, _locked(call, vmid, action))


async def _shut_down(call: Call, vmid: int, work: Work, *, gentle: bool, force: bool) -> None:
    guest = files.assert_here(call, vmid)
    if not guest.running:
        return
    if not call.get("skiplock"):
        files.check_lock(guest)
    timeout = _patience(call, guest)
    if not gentle or await _asked_to_leave(call, guest, work, timeout):
        await _clean(call, guest)
        return
    if guest.running and not force:
        raise die("VM quit/powerdown failed - got timeout")
    if guest.running:
        work.log("VM still running - terminating now with SIGTERM")
    await _clean(call, guest)


def _patience(call: Call, guest: Guest) -> float:
    given = call.get("timeout")
    if given is not None:
        return float(given)
    for part in str(guest.conf.get("startup", "")).split(","):
        if part.strip().startswith("down="):
            return float(part.strip()[5:])
    return 60.0


async def _asked_to_leave(call: Call, guest: Guest, work: Work, timeout: float) -> bool:
    """Ask through the agent or the power button; did the guest go in time?"""
    desk, seen = call.desk, start.view(call.desk, guest)
    if start.agent_enabled(guest):
        try:
            await ask_agent(call, guest, "ping")
            await ask_agent(call, guest, "shutdown")
        except AgentSilent:
            work.log(AGENT_SILENT.format(guest.vmid))
        else:
            await work.sleep(min(call.region.pace.shutdown, timeout))
            return call.region.pace.shutdown <= timeout
    if guest.booted and desk.inside.listens(seen):
        await work.sleep(min(call.region.pace.shutdown, timeout))
        return call.region.pace.shutdown <= timeout
    mark = guest.pid
    await work.sleep(timeout)
    return not guest.running or guest.pid != mark


async def ask_agent(
    call: Call, guest: Guest, command: str, args: dict[str, Any] | None = None
) -> Any:
    """The guest's own answer; silence takes the time it takes."""
    desk = call.desk
    try:
        if not guest.booted or guest.paused or guest.vmid in desk.silenced:
            raise AgentSilent
        return await desk.inside.agent(start.view(desk, guest), command, args or {})
    except (AgentSilent, Unreachable) as silence:
        await call.sleep(call.region.pace.agent_timeout)
        raise AgentSilent from silence
    except Invalid as refusal:
        raise die(f"Agent error: {refusal}") from refusal


def reboot(call: Call) -> str:
    """POST reboot: shut down and start again, with what was pending."""
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and guest.running and guest.paused:
        raise die("VM is paused - cannot shutdown")
    _running(call, vmid)

    async def action(work: Work) -> None:
        await _shut_down(call, vmid, work, gentle=True, force=False)
        if not call.get_guest(vmid).running:
            await start.start(call, call.get_guest(vmid), work)

    return call.spawn("qmreboot", vmid, _locked(call, vmid, action))


def _running(call: Call, vmid: int) -> Guest:
    guest = files.assert_here(call, vmid)
    if not guest.running:
        raise die(f"VM {vmid} not running")
    return guest


def reset(call: Call) -> str:
    """POST reset."""
    _check_root(call)
    vmid = call.params["vmid"]
    _running(call, vmid)

    async def action(work: Work) -> None:
        guest = call.get_guest(vmid)
        if not call.get("skiplock"):
            files.check_lock(guest)
        await call.desk.inside.stopped(call.region.name, vmid)
        start.boot(call.desk, guest)

    return call.spawn("qmreset", vmid, _locked(call, vmid, action))


def suspend(call: Call) -> str:
    """POST suspend: pause, or with ``todisk`` write the memory away and stop."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = _running(call, vmid)
    if call.get("todisk"):
        return _suspend_to_disk(call, guest)

    async def action(work: Work) -> None:
        here = call.get_guest(vmid)
        if not call.get("skiplock") and here.lock != "backup":
            files.check_lock(here)
        here.paused = True
        call.desk.touch(vmid)

    return call.spawn("qmpause", vmid, _locked(call, vmid, action))


def _suspend_to_disk(call: Call, guest: Guest) -> str:
    if _managed(call, guest):
        raise die("Cannot suspend HA managed VM to disk")
    call.check_vm(guest.vmid, "VM.Config.Disk")
    if any(key.startswith("hostpci") for key in guest.conf):
        raise die(
            "cannot suspend VM to disk due to passed-through PCI device(s), which lack the"
            " possibility to save/restore their internal state"
        )
    storage = call.get("statestorage") or vmstate.choose_storage(call, guest)
    call.check(f"/storage/{storage}", "Datastore.AllocateSpace")

    async def action(work: Work) -> None:
        if not call.get("skiplock"):
            files.check_lock(guest)
        volid = await vmstate.save(call, guest, work, storage)
        await start.ended(call.desk, guest)
        guest.conf["vmstate"] = volid
        guest.conf["runningmachine"] = vmstate.running_machine(call)
        guest.conf["lock"] = "suspended"
        files.write(call.desk, guest)

    return call.spawn("qmsuspend", guest.vmid, _locked(call, guest.vmid, action))


def resume(call: Call) -> str:
    """POST resume."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    to_disk = guest is not None and guest.lock == "suspended"
    if not to_disk:
        _running(call, vmid)

    async def action(work: Work) -> None:
        if to_disk:
            await _power_on(call, vmid, work)
            return
        here = call.get_guest(vmid)
        if not here.paused:
            return
        if not call.get("skiplock") and here.lock != "backup":
            files.check_lock(here)
        here.paused = False
        call.desk.touch(vmid)

    return call.spawn("qmresume", vmid, _locked(call, vmid, action))
