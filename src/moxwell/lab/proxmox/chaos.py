"""
Things that happen to a world behind everybody's back.

Each is a function of a desk and a few values, reached by name through the control API: a host goes
down, a lock is held, a storage fills, a stranger takes a VMID, a guest is deleted or moved, an
agent falls silent, the resource list goes stale, copying gets slow.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from moxwell.errors import Invalid, Missing
from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.qemu import open_volumes
from moxwell.lab.proxmox.request_context import Desk
from moxwell.lab.proxmox.state import Guest, Pace, Region

Args = dict[str, Any]


def _guest(region: Region, args: Args) -> Guest:
    guest = region.guests.get(int(args.get("vmid", 0)))
    if guest is None:
        raise Missing(f"there is no guest {args.get('vmid')}")
    return guest


def host_down(desk: Desk, args: Args) -> None:
    """A node loses its power: its guests stop, its API is gone, HA will notice."""
    host = desk.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"there is no node {args.get('node')!r}")
    host.online, host.lost_at = False, desk.now()
    for task in desk.workers.active():
        if task.node == host.name:
            desk.workers.stop(task.upid, "unexpected status")
    for guest in desk.region.guests.values():
        if guest.node == host.name:
            _kill(desk, guest)
    ha_manager.wake(desk)


def _kill(desk: Desk, guest: Guest) -> None:
    """The process of a guest is gone at once."""
    if guest.running:
        open_volumes.forget(desk, guest)
        guest.running, guest.paused, guest.booted = False, False, False
        guest.live, guest.pid = {}, 0
        desk.later(desk.inside.stopped(desk.region.name, guest.vmid))
    desk.touch(guest.vmid)


def host_up(desk: Desk, args: Args) -> None:
    """A node comes back; guests with onboot start."""
    host = desk.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"there is no node {args.get('node')!r}")
    host.online, host.lost_at, host.boot = True, None, desk.now()
    for guest in desk.region.guests.values():
        if guest.node == host.name:
            desk.touch(guest.vmid)
            if guest.conf.get("onboot") and not ha_manager.managed(desk.region, guest):
                path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/status/start"
                desk.later(desk.extras["perform"]("POST", path, {}))
    ha_manager.wake(desk)


def maintenance_on(desk: Desk, args: Args) -> None:
    """``ha-manager crm-command node-maintenance enable``: HA moves its guests off the node."""
    _maintain(desk, args, on=True)


def maintenance_off(desk: Desk, args: Args) -> None:
    """The node is back in service; HA's guests return to it."""
    _maintain(desk, args, on=False)


def _maintain(desk: Desk, args: Args, *, on: bool) -> None:
    host = desk.region.hosts.get(str(args.get("node")))
    if host is None:
        raise Missing(f"there is no node {args.get('node')!r}")
    host.maintenance = on
    ha_manager.wake(desk)


def lock(desk: Desk, args: Args) -> None:
    """A lock stands in a guest's configuration, left by nobody."""
    guest = _guest(desk.region, args)
    text = str(args.get("lock", "backup"))
    if text:
        guest.conf["lock"] = text
    else:
        guest.conf.pop("lock", None)
    desk.touch(guest.vmid)


def hold_file(desk: Desk, args: Args) -> None:
    """Somebody holds a guest's lock file for some seconds."""
    guest, seconds = _guest(desk.region, args), float(args.get("seconds", 15))

    async def hold() -> None:
        async with desk.locks.hold(guest.kind, guest.vmid, 3600):
            await desk.clock.sleep(seconds)

    desk.later(hold())


def fill_storage(desk: Desk, args: Args) -> None:
    """A storage has only so many bytes left (0 unless said)."""
    storage = desk.region.storages.get(str(args.get("storage")))
    if storage is None:
        raise Missing(f"there is no storage {args.get('storage')!r}")
    node = str(args.get("node", desk.region.api_node))
    storage.used_extra = 0
    left = int(args.get("left", 0))
    storage.used_extra = max(storage.capacity - storage.used(node) - left, 0)


def free_storage(desk: Desk, args: Args) -> None:
    storage = desk.region.storages.get(str(args.get("storage")))
    if storage is None:
        raise Missing(f"there is no storage {args.get('storage')!r}")
    storage.used_extra = 0


def take_vmid(desk: Desk, args: Args) -> None:
    """A guest of somebody else appears under an id."""
    vmid, region = int(args.get("vmid", 0)), desk.region
    if vmid in region.guests:
        raise Invalid(f"{vmid} is taken already")
    node = str(args.get("node", region.api_node))
    guest = Guest(vmid, "qemu", node, {"name": str(args.get("name", "stranger")), "memory": "512"})
    guest.incarnation = region.next_number()
    region.guests[vmid] = guest
    desk.touch(vmid)


def delete_guest(desk: Desk, args: Args) -> None:
    """A guest and its volumes are gone."""
    guest, region = _guest(desk.region, args), desk.region
    _kill(desk, guest)
    del region.guests[guest.vmid]
    for storage in region.storages.values():
        shelf = storage.shelf(guest.node)
        for name in [n for n, v in shelf.items() if v.vmid == guest.vmid]:
            del shelf[name]
    for pool in region.pools.values():
        pool.vms = [v for v in pool.vms if v != guest.vmid]
    ha_manager.forget(desk, ha_manager.sid_of(guest))
    desk.touch(guest.vmid)


def move_guest(desk: Desk, args: Args) -> None:
    """A guest is on another node now, with its local volumes."""
    guest, region = _guest(desk.region, args), desk.region
    target = str(args.get("node"))
    if target not in region.hosts:
        raise Missing(f"there is no node {target!r}")
    for storage in region.storages.values():
        if not storage.shared:
            shelf = storage.shelf(guest.node)
            for name in [n for n, v in shelf.items() if v.vmid == guest.vmid]:
                storage.shelf(target)[name] = shelf.pop(name)
    guest.node = target
    desk.touch(guest.vmid)


def stop_guest(desk: Desk, args: Args) -> None:
    """A guest's process ends (crashed, or turned off from inside)."""
    _kill(desk, _guest(desk.region, args))
    ha_manager.wake(desk)


def silence_agent(desk: Desk, args: Args) -> None:
    desk.silenced.add(_guest(desk.region, args).vmid)


def wake_agent(desk: Desk, args: Args) -> None:
    desk.silenced.discard(int(args.get("vmid", 0)))


def stale(desk: Desk, args: Args) -> None:
    """pvestatd says nothing new for so many seconds."""
    desk.region.reported_at = desk.now() + float(args.get("seconds", 60))


def pace(desk: Desk, args: Args) -> None:
    """Change how long things take: ``bandwidth`` for a slow clone, ``boot``, ``statd``, ..."""
    known = {f.name for f in fields(Pace)}
    for name, value in args.items():
        if name not in known:
            raise Invalid(f"pace has no {name!r}; it has {', '.join(sorted(known))}")
        setattr(desk.region.pace, name, float(value))


ACTIONS: dict[str, Callable[[Desk, Args], None]] = {
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
    "stale": stale,
    "pace": pace,
}


def perform(desk: Desk, what: str, args: Args) -> None:
    """Do one of the actions by its name."""
    if what not in ACTIONS:
        raise Invalid(f"unknown action {what!r}; there are {', '.join(sorted(ACTIONS))}")
    pvestatd.round_due(desk.region, desk.now())
    ACTIONS[what](desk, args)
