"""
The HA manager: makes what is asked of a resource true, round by round.

A round happens every ``pace.ha`` seconds, but only while something is not yet as asked: when all is
settled the loop ends, and a change wakes it again. It acts through the API like anybody
(``via_ha``), so its starts, stops and migrations are ordinary tasks of root@pam. A lost node is
fenced after a minute; its guests then move, configuration only, to a node that may have them.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.request_context import Call, Desk
from moxwell.lab.proxmox.state import Guest, HaResource, Region
from moxwell.lab.proxmox.tasks import Work

FENCE_SECONDS = 60.0
Perform = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
WORDS = {"stop": "stop", "shutdown": "stop", "start": "start"}


def sid_of(guest: Guest) -> str:
    return f"{'vm' if guest.kind == 'qemu' else 'ct'}:{guest.vmid}"


def listed(region: Region, guest: Guest) -> HaResource | None:
    """The resource of a guest, whatever is asked of it."""
    return region.ha.resources.get(sid_of(guest))


def managed(region: Region, guest: Guest) -> HaResource | None:
    """The resource of a guest if the manager acts on it."""
    found = listed(region, guest)
    return None if found is None or asked(found) == "ignored" else found


def asked(resource: HaResource) -> str:
    state = str(resource.options.get("state", "started"))
    return {"enabled": "started"}.get(state, state)


def verbose(region: Region, resource: HaResource) -> str:
    """The state as people are told it: with what is still to happen."""
    wanted, now = asked(resource), resource.shown
    guest = region.guests.get(int(resource.sid.partition(":")[2]))
    if wanted == "ignored" or guest is None:
        return "ignored" if wanted == "ignored" else "not found"
    if now == "stopped":
        return {"started": "starting", "disabled": "disabled"}.get(wanted, now)
    if now == "started":
        if not guest.running:
            return "starting"
        return "stopping" if wanted in {"stopped", "disabled"} else now
    return "clearing error flag" if now == "error" and wanted == "disabled" else now


def status_of(region: Region, guest: Guest) -> dict[str, Any]:
    """The ``ha`` part of a guest's status."""
    resource = managed(region, guest)
    if resource is None:
        return {"managed": 0}
    row: dict[str, Any] = {"managed": 1, "state": asked(resource)}
    return row | ({"group": resource.options["group"]} if "group" in resource.options else {})


def delegate(call: Call, guest: Guest, verb: str, target: str = "") -> str:
    """A start, stop or migrate of a managed guest: a task that only leaves a request."""
    resource, desk = managed(call.region, guest), call.desk
    if resource is None:
        raise die(f"'{sid_of(guest)}' is not HA managed")
    kind = "VM" if guest.kind == "qemu" else "CT"

    async def worker(work: Work) -> None:
        if verb == "migrate":
            work.log(f"Requesting HA migration for {kind} {guest.vmid} to node {target}")
            request_move(desk, resource, target)
        else:
            word = WORDS[verb]
            work.log(f"Requesting HA {word} for {kind} {guest.vmid}")
            resource.options["state"] = "started" if word == "start" else "stopped"
            wake(desk)

    name = {"migrate": "hamigrate", "start": "hastart"}.get(verb, "hastop")
    return call.spawn(name, guest.vmid, worker)


def request_move(desk: Desk, resource: HaResource, target: str) -> None:
    resource.moving_to = target
    wake(desk)


def forget(desk: Desk, sid: str) -> None:
    """Drop a resource, and what rules say about it."""
    ha = desk.region.ha
    ha.resources.pop(sid, None)
    for name, rule in list(ha.rules.items()):
        rest = [s for s in rule["resources"].split(",") if s != sid]
        if not rest:
            del ha.rules[name]
        else:
            rule["resources"] = ",".join(rest)


def wake(desk: Desk) -> None:
    """Start the rounds unless they are running or nothing is to be done."""
    if desk.extras.get("ha_running") or not desk.region.ha.resources:
        return
    desk.extras["ha_running"] = True
    desk.later(_rounds(desk))


async def _rounds(desk: Desk) -> None:
    try:
        if not desk.region.ha.master:
            desk.region.ha.master = desk.region.api_node
        while True:
            await desk.clock.sleep(desk.region.pace.ha)
            moved = [await _step(desk, r) for r in list(desk.region.ha.resources.values())]
            if not any(moved):
                return
    finally:
        desk.extras["ha_running"] = False


async def _step(desk: Desk, resource: HaResource) -> bool:
    """One resource, one round; says whether there is more to do."""
    region = desk.region
    guest = region.guests.get(int(resource.sid.partition(":")[2]))
    if guest is None or resource.sid not in region.ha.resources:
        return _show(desk, resource, "deleting")
    resource.node = guest.node
    if asked(resource) == "ignored":
        return _show(desk, resource, "ignored")
    if not region.hosts[guest.node].online:
        return _fence(desk, resource, guest)
    if resource.shown == "error" and asked(resource) == "started":
        return False
    if not resource.moving_to:
        _evade(region, resource, guest)
    if resource.moving_to:
        return await _move(desk, resource, guest)
    if asked(resource) == "started":
        return await _start(desk, resource, guest)
    return await _stop(desk, resource, guest)


def _evade(region: Region, resource: HaResource, guest: Guest) -> None:
    """Off a node in maintenance, and back when that is over; what is stopped stays."""
    if region.hosts[guest.node].maintenance:
        target = choose_node(region, resource)
        if guest.running and target is not None:
            resource.home = resource.home or guest.node
            resource.moving_to = target
    elif resource.home and guest.running:
        home = region.hosts.get(resource.home)
        if home is None or guest.node == resource.home:
            resource.home = ""
        elif home.online and not home.maintenance:
            resource.moving_to, resource.home = resource.home, ""


def _show(desk: Desk, resource: HaResource, state: str) -> bool:
    changed = resource.shown != state
    resource.shown, resource.since = state, desk.now() if changed else resource.since
    return changed


async def _start(desk: Desk, resource: HaResource, guest: Guest) -> bool:
    if guest.running or resource.shown != "started":
        return _show(desk, resource, "started")
    problem = await _do(desk, guest, "status/start", {})
    if problem:
        _show(desk, resource, "error")
    return True


async def _stop(desk: Desk, resource: HaResource, guest: Guest) -> bool:
    if not guest.running:
        return _show(desk, resource, "stopped")
    if resource.shown != "request_stop":
        return _show(desk, resource, "request_stop")
    await _do(desk, guest, "status/stop", {})
    return True


async def _move(desk: Desk, resource: HaResource, guest: Guest) -> bool:
    target, resource.moving_to = resource.moving_to, None
    if target == guest.node or target not in desk.region.hosts:
        return True
    _show(desk, resource, "migrate")
    await _do(desk, guest, "migrate", {"target": target, "online": "1"})
    resource.node = guest.node
    return _show(desk, resource, "started" if guest.running else "stopped") or True


async def _do(desk: Desk, guest: Guest, what: str, params: dict[str, Any]) -> str | None:
    """Perform and wait; the text of what went wrong, or None."""
    perform: Perform | None = desk.extras.get("perform")
    if perform is None:
        return "nothing to act with"
    try:
        path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/{what}"
        upid = await perform("POST", path, params)
        task = await desk.workers.wait(upid)
    except PveError as problem:
        return problem.message
    return None if task.exitstatus == "OK" else task.exitstatus


def _fence(desk: Desk, resource: HaResource, guest: Guest) -> bool:
    """Wait out the dead node's watchdog, then take its guests elsewhere."""
    host = desk.region.hosts[guest.node]
    if resource.shown not in {"fence", "recovery"}:
        return _show(desk, resource, "fence")
    if desk.now() - (host.lost_at or 0.0) < FENCE_SECONDS:
        return True
    target = choose_node(desk.region, resource)
    if target is None:
        _show(desk, resource, "recovery")
        return True
    guest.node = resource.node = target
    guest.running, guest.paused, guest.live = False, False, {}
    desk.touch(guest.vmid)
    return _show(desk, resource, asked(resource)) or True


def choose_node(region: Region, resource: HaResource) -> str | None:
    """An online node that the resource's group or rules allow, the least loaded first."""
    allowed = _allowed(region, resource)
    load = dict.fromkeys(region.hosts, 0)
    for guest in region.guests.values():
        load[guest.node] += 1
    online = [h.name for h in region.hosts.values() if h.online and not h.maintenance]
    preferred = [n for n in online if n in allowed] if allowed else online
    if not preferred and not _strict(region, resource):
        preferred = online
    top = max((allowed.get(n, 0) for n in preferred), default=0)
    best = [n for n in preferred if allowed.get(n, 0) == top]
    return min(best, key=lambda n: (load[n], n), default=None)


def _allowed(region: Region, resource: HaResource) -> dict[str, int]:
    group = region.ha.groups.get(str(resource.options.get("group", "")))
    rules = [
        rule
        for rule in region.ha.rules.values()
        if rule["type"] == "node-affinity"
        and resource.sid in rule["resources"].split(",")
        and not rule.get("disable")
    ]
    found: dict[str, int] = {}
    for source in [group, *rules]:
        for item in str(source["nodes"]).split(",") if source else ():
            node, _, priority = item.partition(":")
            found[node] = int(priority or 0)
    return found


def _strict(region: Region, resource: HaResource) -> bool:
    group = region.ha.groups.get(str(resource.options.get("group", "")))
    if group and group.get("restricted"):
        return True
    return any(
        rule.get("strict") and resource.sid in rule["resources"].split(",")
        for rule in region.ha.rules.values()
    )
