"""
Actions of the control API that change a region outside the PVE API.

Each takes a region and arguments: power off a host, hold a lock, fill a storage, create a foreign
guest under a VMID, delete or move a guest, disable an agent, freeze pvestatd, change timings.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import open_volumes
from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.state import RegionPace, SimGuest, SimRegion

Args = dict[str, Any]


QEMU_STATUS = frozenset(
    words(
        "colo debug finish-migrate guest-panicked inmigrate internal-error io-error paused"
        " postmigrate prelaunch restore-vm running save-vm shutdown suspended watchdog"
    )
)


def _guest(region: SimRegion, args: Args) -> SimGuest:
    guest = region.guests.get(int(args.get("vmid", 0)))
    if guest is None:
        raise Missing(f"guest {args.get('vmid')} does not exist")
    return guest


def host_down(runtime: RegionRuntime, args: Args) -> None:
    """Power off a node: its guests stop, its API fails with 595, HA fences it."""
    host = runtime.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"node {args.get('node')!r} does not exist")
    host.online, host.lost_at = False, runtime.now()
    for task in runtime.workers.active():
        if task.node == host.name:
            runtime.workers.stop(task.upid, "unexpected status")
    for guest in runtime.region.guests.values():
        if guest.node == host.name:
            _kill(runtime, guest)
    ha_manager.start_manager(runtime)


def _kill(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Stop the process of a guest immediately."""
    if guest.running:
        open_volumes.remove(runtime, guest)
        guest.running, guest.paused, guest.booted = False, False, False
        guest.live, guest.pid = {}, 0
        runtime.run_in_background(runtime.guest_os.stopped(runtime.region.name, guest.vmid))
    runtime.mark_changed(guest.vmid)


def host_up(runtime: RegionRuntime, args: Args) -> None:
    """Power on a node; guests with onboot start."""
    host = runtime.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"node {args.get('node')!r} does not exist")
    host.online, host.lost_at, host.boot = True, None, runtime.now()
    for guest in runtime.region.guests.values():
        if guest.node == host.name:
            runtime.mark_changed(guest.vmid)
            if guest.conf.get("onboot") and not ha_manager.find_managed(runtime.region, guest):
                path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/status/start"
                runtime.run_in_background(runtime.module_data["perform"]("POST", path, {}))
    ha_manager.start_manager(runtime)


def maintenance_on(runtime: RegionRuntime, args: Args) -> None:
    """Enable node maintenance, as ``ha-manager crm-command node-maintenance enable``."""
    _maintain(runtime, args, enabled=True)


def maintenance_off(runtime: RegionRuntime, args: Args) -> None:
    """Disable node maintenance; HA resources return to the node."""
    _maintain(runtime, args, enabled=False)


def _maintain(runtime: RegionRuntime, args: Args, *, enabled: bool) -> None:
    host = runtime.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"node {args.get('node')!r} does not exist")
    host.maintenance = enabled
    ha_manager.start_manager(runtime)


def lock(runtime: RegionRuntime, args: Args) -> None:
    """Set a lock in the configuration of a guest without a task."""
    guest = _guest(runtime.region, args)
    text = str(args.get("lock", "backup"))
    if text:
        guest.conf["lock"] = text
    else:
        guest.conf.pop("lock", None)
    runtime.mark_changed(guest.vmid)


def hold_file(runtime: RegionRuntime, args: Args) -> None:
    """Hold the lock file of a guest for some seconds."""
    guest, seconds = _guest(runtime.region, args), float(args.get("seconds", 15))

    async def hold() -> None:
        async with runtime.locks.hold(guest.kind, guest.vmid, 3600):
            await runtime.clock.sleep(seconds)

    runtime.run_in_background(hold())


def fill_storage(runtime: RegionRuntime, args: Args) -> None:
    """Leave only ``left`` bytes free on a storage (default 0)."""
    storage = runtime.region.storages.get(str(args.get("storage")))
    if storage is None:
        raise Missing(f"storage {args.get('storage')!r} does not exist")
    node = str(args.get("node", runtime.region.api_node))
    storage.used_extra = 0
    left = int(args.get("left", 0))
    storage.used_extra = max(storage.capacity - storage.used(node) - left, 0)


def free_storage(runtime: RegionRuntime, args: Args) -> None:
    storage = runtime.region.storages.get(str(args.get("storage")))
    if storage is None:
        raise Missing(f"storage {args.get('storage')!r} does not exist")
    storage.used_extra = 0


def take_vmid(runtime: RegionRuntime, args: Args) -> None:
    """Create a foreign guest under a VMID."""
    vmid, region = int(args.get("vmid", 0)), runtime.region
    if vmid in region.guests:
        raise Invalid(f"{vmid} is already in use")
    node = str(args.get("node", region.api_node))
    guest = SimGuest(
        vmid, "qemu", node, {"name": str(args.get("name", "stranger")), "memory": "512"}
    )
    guest.incarnation = region.next_number()
    region.guests[vmid] = guest
    runtime.mark_changed(vmid)


def delete_guest(runtime: RegionRuntime, args: Args) -> None:
    """Delete a guest and its volumes."""
    guest, region = _guest(runtime.region, args), runtime.region
    _kill(runtime, guest)
    del region.guests[guest.vmid]
    for storage in region.storages.values():
        volumes = storage.volumes_on(guest.node)
        for name in [n for n, v in volumes.items() if v.vmid == guest.vmid]:
            del volumes[name]
    for pool in region.pools.values():
        pool.vms = [v for v in pool.vms if v != guest.vmid]
    ha_manager.delete_resource(runtime, ha_manager.sid_of(guest))
    runtime.mark_changed(guest.vmid)


def move_guest(runtime: RegionRuntime, args: Args) -> None:
    """Move a guest and its local volumes to another node."""
    guest, region = _guest(runtime.region, args), runtime.region
    target = str(args.get("node"))
    if target not in region.hosts:
        raise Missing(f"node {target!r} does not exist")
    for storage in region.storages.values():
        if not storage.shared:
            volumes = storage.volumes_on(guest.node)
            for name in [n for n, v in volumes.items() if v.vmid == guest.vmid]:
                storage.volumes_on(target)[name] = volumes.pop(name)
    guest.node = target
    runtime.mark_changed(guest.vmid)


def stop_guest(runtime: RegionRuntime, args: Args) -> None:
    """Stop the process of a guest (a crash, or a shutdown from inside)."""
    _kill(runtime, _guest(runtime.region, args))
    ha_manager.start_manager(runtime)


def silence_agent(runtime: RegionRuntime, args: Args) -> None:
    runtime.silent_agents.add(_guest(runtime.region, args).vmid)


def wake_agent(runtime: RegionRuntime, args: Args) -> None:
    runtime.silent_agents.discard(int(args.get("vmid", 0)))


def set_load(runtime: RegionRuntime, args: Args) -> None:
    """Set how much of its CPUs and memory a guest uses (0 to 1)."""
    guest = _guest(runtime.region, args)
    for name in ("cpu", "memory"):
        if name in args:
            setattr(guest, f"{name}_load", min(max(float(args[name]), 0.0), 1.0))
    runtime.mark_changed(guest.vmid)


def set_status(runtime: RegionRuntime, args: Args) -> None:
    """Set the status of QEMU (paused, internal-error, io-error, ...); "" means running again."""
    guest, word = _guest(runtime.region, args), str(args.get("status", ""))
    if word and word not in QEMU_STATUS:
        raise Invalid(f"unknown status {word!r}; known are {', '.join(sorted(QEMU_STATUS))}")
    guest.paused = word == "paused"
    guest.fault_status = "" if word in ("paused", "running") else word
    runtime.mark_changed(guest.vmid)


def stale(runtime: RegionRuntime, args: Args) -> None:
    """Stop pvestatd updates for some seconds."""
    runtime.region.status_updated_at = runtime.now() + float(args.get("seconds", 60))


def pace(runtime: RegionRuntime, args: Args) -> None:
    """Change timings: ``bandwidth``, ``boot``, ``statd``, ..."""
    known = {f.name for f in fields(RegionPace)}
    for name, value in args.items():
        if name not in known:
            raise Invalid(f"unknown pace setting {name!r}; known are {', '.join(sorted(known))}")
        setattr(runtime.region.pace, name, float(value))


ACTIONS: dict[str, Callable[[RegionRuntime, Args], None]] = {
    "host-down": host_down,
    "host-up": host_up,
    "maintenance-on": maintenance_on,
    "maintenance-off": maintenance_off,
    "lock": lock,
    "hold-file": hold_file,
    "fill-storage": fill_storage,
    "free-storage": free_storage,
    "take-vmid": take_vmid,
    "delete-guest": delete_guest,
    "move-guest": move_guest,
    "stop-guest": stop_guest,
    "silence-agent": silence_agent,
    "wake-agent": wake_agent,
    "load": set_load,
    "qemu-status": set_status,
    "stale": stale,
    "pace": pace,
}


def perform(runtime: RegionRuntime, action: str, args: Args) -> None:
    """Run an action by name."""
    if action not in ACTIONS:
        raise Invalid(f"unknown action {action!r}; known are {', '.join(sorted(ACTIONS))}")
    pvestatd.update_if_due(runtime.region, runtime.now())
    ACTIONS[action](runtime, args)
