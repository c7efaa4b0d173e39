"""
VM endpoints: start, stop, shutdown, reboot, reset, suspend, resume.

Most errors occur in the worker. For a guest that HA manages, the request is delegated to the HA
manager.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from moxwell.errors import Invalid, Unreachable
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.guest import AgentRefusal, GuestAgentNotRunning
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import hotplug, start, vmstate
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext

_ROOT_ONLY = words(
    "stateuri skiplock migratedfrom migration_type migration_network targetstorage force-cpu"
    " with-conntrack-state nets-host-mtu keepActive nocheck"
)
_NEED_RESET = ("internal-error", "guest-panicked")
AGENT_SILENT = (
    "QEMU Guest Agent is not running - VM {} qmp command 'guest-ping' failed - got timeout"
)


def _check_root(call: PveCall) -> None:
    for name in _ROOT_ONLY:
        if call.get(name) and not call.is_root:
            raise param_error({name: "Only root may use this option."})


def _managed(call: PveCall, guest: SimGuest | None) -> bool:
    return (
        guest is not None
        and not call.via_ha
        and ha_manager.find_managed(call.region, guest) is not None
    )


def _locked(call: PveCall, vmid: int, action: Callable[[WorkerContext], Awaitable[None]]) -> Any:
    async def worker(ctx: WorkerContext) -> None:
        async with call.hold("qemu", vmid):
            await action(ctx)

    return worker


def power_on(call: PveCall) -> str:
    """POST start."""
    _check_root(call)
    if call.get("targetstorage") and not call.get("migratedfrom"):
        text = "targetstorage can only by used with migratedfrom."
        raise param_error({"targetstorage": text})
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "start")

    async def action(ctx: WorkerContext) -> None:
        await _power_on(call, vmid, ctx)

    return call.spawn("qmstart", vmid, _locked(call, vmid, action))


async def _power_on(call: PveCall, vmid: int, ctx: WorkerContext) -> None:
    guest = call.get_guest(vmid)
    if guest.template:
        raise die("you can't start a vm if it's a template")
    if guest.lock == "backup" and guest.running:
        await _resume(call, vmid)
        return
    if not call.get("skiplock") and guest.lock != "suspended":
        files.check_lock(guest)
    if guest.running:
        raise die(f"VM {vmid} already running")
    resumed = vmstate.is_suspended(guest) or "vmstate" in guest.conf
    if resumed:
        ctx.log("Resuming suspended VM")
    await start.start(call, guest, ctx, resumed=resumed)
    if resumed:
        vmstate.drop(call, guest)


def power_off(call: PveCall) -> str:
    """POST stop."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and _managed(call, guest):
        if call.get("overrule-shutdown"):
            raise param_error({"overrule-shutdown": "Not applicable for HA resources."})
        return ha_manager.delegate(call, guest, "stop")

    async def worker(ctx: WorkerContext) -> None:
        if call.get("overrule-shutdown"):
            _abort_shutdown_tasks(call, vmid, ctx)
        async with call.hold("qemu", vmid):
            await _stop(call, vmid)

    return call.spawn("qmstop", vmid, worker)


def _abort_shutdown_tasks(call: PveCall, vmid: int, ctx: WorkerContext) -> None:
    others = [
        task.upid
        for task in call.runtime.workers.active()
        if task.type == "qmshutdown" and task.id == str(vmid)
    ]
    for upid in others:
        call.runtime.workers.stop(upid)
    if others:
        ctx.log(f"overruled qmshutdown tasks: {', '.join(others)}")


async def _stop(call: PveCall, vmid: int) -> None:
    guest = files.get_local_guest(call, vmid)
    if not guest.running:
        return
    if not call.get("skiplock"):
        files.check_lock(guest)
    await _apply_pending(call, guest)


async def _apply_pending(call: PveCall, guest: SimGuest) -> None:
    """Apply pending changes after the process was stopped by a request."""
    await start.mark_stopped(call.runtime, guest)
    if files.is_pending(guest):
        hotplug.apply(call, guest)


def shut_down(call: PveCall) -> str:
    """POST shutdown."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    graceful = True
    if guest is not None and _paused(guest):
        if not call.get("forceStop"):
            raise die("VM is paused - cannot shutdown")
        graceful = False
    if guest is not None and _managed(call, guest):
        return ha_manager.delegate(call, guest, "shutdown")

    async def action(ctx: WorkerContext) -> None:
        await _shut_down(call, vmid, ctx, graceful=graceful, force=bool(call.get("forceStop")))

    return call.spawn("qmshutdown", vmid, _locked(call, vmid, action))


def _paused(guest: SimGuest) -> bool:
    return guest.running and guest.status_word in ("paused", "suspended", "prelaunch")


async def _shut_down(
    call: PveCall, vmid: int, ctx: WorkerContext, *, graceful: bool, force: bool
) -> None:
    guest = files.get_local_guest(call, vmid)
    if not guest.running:
        return
    if not call.get("skiplock"):
        files.check_lock(guest)
    timeout = _shutdown_timeout(call, guest)
    if not graceful or await _request_shutdown(call, guest, ctx, timeout):
        await _apply_pending(call, guest)
        return
    if guest.running and not force:
        raise die("VM quit/powerdown failed - got timeout")
    if guest.running:
        ctx.log("VM still running - terminating now with SIGTERM")
    await _apply_pending(call, guest)


def _shutdown_timeout(call: PveCall, guest: SimGuest) -> float:
    given = call.get("timeout")
    if given is not None:
        return float(given)
    for part in str(guest.conf.get("startup", "")).split(","):
        if part.strip().startswith("down="):
            return float(part.strip()[5:])
    return 60.0


async def _request_shutdown(
    call: PveCall, guest: SimGuest, ctx: WorkerContext, timeout: float
) -> bool:
    """Request a shutdown by agent or ACPI; returns whether the guest stopped in time."""
    runtime, seen = call.runtime, start.guest_vm(call.runtime, guest)
    if start.agent_enabled(guest):
        try:
            await ask_agent(call, guest, "ping")
            await ask_agent(call, guest, "shutdown")
        except GuestAgentNotRunning:
            ctx.log(AGENT_SILENT.format(guest.vmid))
        else:
            await ctx.sleep(min(call.region.pace.shutdown, timeout))
            return call.region.pace.shutdown <= timeout
    if guest.booted and runtime.guest_os.handles_shutdown(seen):
        await ctx.sleep(min(call.region.pace.shutdown, timeout))
        return call.region.pace.shutdown <= timeout
    process_id = guest.pid
    await ctx.sleep(timeout)
    return not guest.running or guest.pid != process_id


async def ask_agent(
    call: PveCall, guest: SimGuest, command: str, args: dict[str, Any] | None = None
) -> Any:
    """Run a guest agent command; without an agent, waits for the timeout."""
    runtime = call.runtime
    try:
        if not guest.booted or guest.status_word or guest.vmid in runtime.silent_agents:
            raise GuestAgentNotRunning
        return await runtime.guest_os.agent(start.guest_vm(runtime, guest), command, args or {})
    except (GuestAgentNotRunning, Unreachable) as problem:
        await call.sleep(call.region.pace.agent_timeout)
        raise GuestAgentNotRunning from problem
    except Invalid as refusal:
        raise AgentRefusal(str(refusal)) from refusal


def reboot(call: PveCall) -> str:
    """POST reboot: shut down and start with pending changes applied."""
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    if guest is not None and _paused(guest):
        raise die("VM is paused - cannot shutdown")
    _running(call, vmid)

    async def action(ctx: WorkerContext) -> None:
        await _shut_down(call, vmid, ctx, graceful=True, force=False)
        if not call.get_guest(vmid).running:
            await start.start(call, call.get_guest(vmid), ctx)

    return call.spawn("qmreboot", vmid, _locked(call, vmid, action))


def _running(call: PveCall, vmid: int) -> SimGuest:
    guest = files.get_local_guest(call, vmid)
    if not guest.running:
        raise die(f"VM {vmid} not running")
    return guest


def reset(call: PveCall) -> str:
    """POST reset."""
    _check_root(call)
    vmid = call.params["vmid"]
    _running(call, vmid)

    async def action(ctx: WorkerContext) -> None:
        guest = call.get_guest(vmid)
        if not call.get("skiplock"):
            files.check_lock(guest)
        await call.runtime.guest_os.stopped(call.region.name, vmid)
        if guest.status_word:
            guest.paused, guest.fault_status = False, "prelaunch"
        start.boot(call.runtime, guest)

    return call.spawn("qmreset", vmid, _locked(call, vmid, action))


def suspend(call: PveCall) -> str:
    """POST suspend: pause, or with ``todisk`` save the memory and stop."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = _running(call, vmid)
    if call.get("todisk"):
        return _suspend_to_disk(call, guest)

    async def action(ctx: WorkerContext) -> None:
        current = call.get_guest(vmid)
        if not call.get("skiplock") and current.lock != "backup":
            files.check_lock(current)
        current.paused = True
        call.runtime.mark_changed(vmid)

    return call.spawn("qmpause", vmid, _locked(call, vmid, action))


def _suspend_to_disk(call: PveCall, guest: SimGuest) -> str:
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

    async def action(ctx: WorkerContext) -> None:
        if not call.get("skiplock") and guest.lock != "backup":
            files.check_lock(guest)
        if guest.lock == "backup":
            raise die("cannot suspend to disk during backup")
        vmstate.check_blockers(guest.conf, state=True)
        volid = await vmstate.save(call, guest, ctx, storage)
        await start.mark_stopped(call.runtime, guest)
        guest.conf["vmstate"] = volid
        guest.conf |= vmstate.running_options(call, guest)
        guest.conf["lock"] = "suspended"
        files.write(call.runtime, guest)

    return call.spawn("qmsuspend", guest.vmid, _locked(call, guest.vmid, action))


def resume(call: PveCall) -> str:
    """POST resume."""
    _check_root(call)
    vmid = call.params["vmid"]
    guest = call.find_guest(vmid, "qemu")
    to_disk = guest is not None and guest.lock == "suspended"
    if not to_disk:
        _running(call, vmid)

    async def action(ctx: WorkerContext) -> None:
        if to_disk:
            await _power_on(call, vmid, ctx)
            return
        await _resume(call, vmid)

    return call.spawn("qmresume", vmid, _locked(call, vmid, action))


async def _resume(call: PveCall, vmid: int) -> None:
    """Continue a paused guest; one that QEMU shut down is reset, a broken one is refused."""
    guest = call.get_guest(vmid)
    if guest.template:
        raise die(f"VM {vmid} is a template and cannot be resumed!")
    if not guest.status_word:
        return
    if not call.get("skiplock") and guest.lock != "backup":
        files.check_lock(guest)
    if guest.fault_status in _NEED_RESET:
        text = "Resetting the Virtual Machine is required"
        raise die(f"VM {vmid} qmp command 'cont' failed - {text}")
    if guest.fault_status == "shutdown":
        await call.runtime.guest_os.stopped(call.region.name, vmid)
        start.boot(call.runtime, guest)
    guest.paused, guest.fault_status = False, ""
    call.runtime.mark_changed(vmid)
