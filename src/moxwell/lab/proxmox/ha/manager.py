"""
The HA manager (pve-ha-crm): brings HA resources to their requested state.

Runs every ``pace.ha`` seconds while a resource is not in its requested state; otherwise the loop
ends and a change starts it again. It acts through the API as root@pam (``via_ha``), so starts,
stops and migrations are ordinary tasks. A lost node is fenced after a minute; its guests are then
recovered on another node by moving their configuration.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import SimGuest, SimHaResource, SimRegion
from moxwell.lab.proxmox.tasks import WorkerContext

FENCE_SECONDS = 60.0
Perform = Callable[[str, str, dict[str, Any]], Awaitable[Any]]
VERBS = {"stop": "stop", "shutdown": "stop", "start": "start"}


_IDLE_ROUNDS = 90


def sid_of(guest: SimGuest) -> str:
    return f"{'vm' if guest.kind == 'qemu' else 'ct'}:{guest.vmid}"


def find_resource(region: SimRegion, guest: SimGuest) -> SimHaResource | None:
    """The HA resource of a guest, or None."""
    return region.ha.resources.get(sid_of(guest))


def find_managed(region: SimRegion, guest: SimGuest) -> SimHaResource | None:
    """The HA resource of a guest unless its requested state is ``ignored``."""
    found = find_resource(region, guest)
    return None if found is None or requested_state(found) == "ignored" else found


def requested_state(resource: SimHaResource) -> str:
    state = str(resource.options.get("state", "started"))
    return {"enabled": "started"}.get(state, state)


def displayed_state(region: SimRegion, resource: SimHaResource) -> str:
    """The state that the API displays, including transitions."""
    wanted, now = requested_state(resource), resource.crm_state
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


def ha_status(region: SimRegion, guest: SimGuest) -> dict[str, Any]:
    """The ``ha`` property of a guest's status."""
    resource = find_managed(region, guest)
    if resource is None:
        return {"managed": 0}
    row: dict[str, Any] = {"managed": 1, "state": requested_state(resource)}
    return row if region.major >= 9 else row | {"group": resource.options.get("group")}


def manage_created(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """``ha-managed`` (PVE 9): add a new or restored guest as an HA resource."""
    if not call.get("ha-managed"):
        return
    ctx.log("Add as HA resource")
    sid, options = sid_of(guest), {"state": "started" if call.get("start") else "stopped"}
    known = call.region.ha.resources.get(sid)
    if known is not None:
        known.options |= options
    else:
        kind = sid.partition(":")[0]
        call.region.ha.resources[sid] = SimHaResource(sid, kind, options, node=guest.node)
    start_manager(call.runtime)


def delegate(call: PveCall, guest: SimGuest, verb: str, target: str = "") -> str:
    """Start a task that requests the start, stop or migration of a guest from the HA manager."""
    resource, runtime = find_managed(call.region, guest), call.runtime
    if resource is None:
        raise die(f"'{sid_of(guest)}' is not HA managed")
    kind = "VM" if guest.kind == "qemu" else "CT"

    async def worker(ctx: WorkerContext) -> None:
        if verb == "migrate":
            ctx.log(f"Requesting HA migration for {kind} {guest.vmid} to node {target}")
            request_migration(runtime, resource, target)
        else:
            label = VERBS[verb]
            ctx.log(f"Requesting HA {label} for {kind} {guest.vmid}")
            resource.options["state"] = "started" if label == "start" else "stopped"
            start_manager(runtime)

    name = {"migrate": "hamigrate", "start": "hastart"}.get(verb, "hastop")
    return call.spawn(name, guest.vmid, worker)


def request_migration(runtime: RegionRuntime, resource: SimHaResource, target: str) -> None:
    resource.migration_target = target
    start_manager(runtime)


def delete_resource(runtime: RegionRuntime, sid: str, *, purge: bool = True) -> None:
    """Delete a resource, and with ``purge`` remove it from all rules."""
    ha = runtime.region.ha
    ha.resources.pop(sid, None)
    if not ha.resources:
        ha.idle_since = runtime.now()
    for name, rule in list(ha.rules.items()) if purge else ():
        rest = [s for s in rule["resources"].split(",") if s != sid]
        if not rest:
            del ha.rules[name]
        else:
            rule["resources"] = ",".join(rest)


def active_master(region: SimRegion, now: float) -> str:
    """The node of the active CRM; it is idle after 90 rounds without a resource."""
    idle = region.ha.idle_since
    if idle is not None and now - idle >= _IDLE_ROUNDS * region.pace.ha:
        return ""
    return region.ha.master


def start_manager(runtime: RegionRuntime) -> None:
    """Start the manager loop unless it runs or there is no resource."""
    if runtime.module_data.get("ha_running") or not runtime.region.ha.resources:
        return
    runtime.module_data["ha_running"] = True
    runtime.region.ha.idle_since = None
    runtime.run_in_background(_run_manager(runtime))


async def _run_manager(runtime: RegionRuntime) -> None:
    try:
        if not runtime.region.ha.master:
            runtime.region.ha.master = runtime.region.api_node
        while True:
            await runtime.clock.sleep(runtime.region.pace.ha)
            moved = [await _process(runtime, r) for r in list(runtime.region.ha.resources.values())]
            if not any(moved):
                return
    finally:
        runtime.module_data["ha_running"] = False


async def _process(runtime: RegionRuntime, resource: SimHaResource) -> bool:
    """Process one resource; returns whether its state changed."""
    region = runtime.region
    guest = region.guests.get(int(resource.sid.partition(":")[2]))
    if guest is None or resource.sid not in region.ha.resources:
        return _set_state(runtime, resource, "deleting")
    resource.node = guest.node
    if requested_state(resource) == "ignored":
        return _set_state(runtime, resource, "ignored")
    if not region.hosts[guest.node].online:
        return _fence(runtime, resource, guest)
    if resource.crm_state == "error" and requested_state(resource) == "started":
        return False
    if not resource.migration_target:
        _handle_maintenance(region, resource, guest)
    if resource.migration_target:
        return await _migrate(runtime, resource, guest)
    if requested_state(resource) == "started":
        return await _start(runtime, resource, guest)
    return await _stop(runtime, resource, guest)


def _handle_maintenance(region: SimRegion, resource: SimHaResource, guest: SimGuest) -> None:
    """Migrate a running guest off a node in maintenance, and back afterwards."""
    if region.hosts[guest.node].maintenance:
        target = choose_node(region, resource)
        if guest.running and target is not None:
            resource.maintenance_node = resource.maintenance_node or guest.node
            resource.migration_target = target
    elif resource.maintenance_node and guest.running:
        maintenance_node = region.hosts.get(resource.maintenance_node)
        if maintenance_node is None or guest.node == resource.maintenance_node:
            resource.maintenance_node = ""
        elif maintenance_node.online and not maintenance_node.maintenance:
            resource.migration_target, resource.maintenance_node = resource.maintenance_node, ""


def _set_state(runtime: RegionRuntime, resource: SimHaResource, state: str) -> bool:
    changed = resource.crm_state != state
    resource.crm_state, resource.state_changed_at = (
        state,
        runtime.now() if changed else resource.state_changed_at,
    )
    return changed


async def _start(runtime: RegionRuntime, resource: SimHaResource, guest: SimGuest) -> bool:
    if guest.running or resource.crm_state != "started":
        return _set_state(runtime, resource, "started")
    problem = await _request(runtime, guest, "status/start", {})
    if problem:
        _set_state(runtime, resource, "error")
    return True


async def _stop(runtime: RegionRuntime, resource: SimHaResource, guest: SimGuest) -> bool:
    if not guest.running:
        return _set_state(runtime, resource, "stopped")
    if resource.crm_state != "request_stop":
        return _set_state(runtime, resource, "request_stop")
    await _request(runtime, guest, "status/stop", {})
    return True


async def _migrate(runtime: RegionRuntime, resource: SimHaResource, guest: SimGuest) -> bool:
    target, resource.migration_target = resource.migration_target, None
    if target == guest.node or target not in runtime.region.hosts:
        return True
    _set_state(runtime, resource, "migrate")
    await _request(runtime, guest, "migrate", {"target": target, "online": "1"})
    resource.node = guest.node
    return _set_state(runtime, resource, "started" if guest.running else "stopped") or True


async def _request(
    runtime: RegionRuntime, guest: SimGuest, command: str, params: dict[str, Any]
) -> str | None:
    """Send a request and wait for its task; returns the error message or None."""
    perform: Perform | None = runtime.module_data.get("perform")
    if perform is None:
        return "nothing to act with"
    try:
        path = f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/{command}"
        upid = await perform("POST", path, params)
        task = await runtime.workers.wait(upid)
    except PveException as problem:
        return problem.message
    return None if task.exitstatus == "OK" else task.exitstatus


def _fence(runtime: RegionRuntime, resource: SimHaResource, guest: SimGuest) -> bool:
    """Wait for the watchdog timeout of the lost node, then recover the guest on another node."""
    host = runtime.region.hosts[guest.node]
    if resource.crm_state not in {"fence", "recovery"}:
        return _set_state(runtime, resource, "fence")
    if runtime.now() - (host.lost_at or 0.0) < FENCE_SECONDS:
        return True
    target = choose_node(runtime.region, resource)
    if target is None:
        _set_state(runtime, resource, "recovery")
        return True
    guest.node = resource.node = target
    guest.running, guest.paused, guest.live = False, False, {}
    runtime.mark_changed(guest.vmid)
    return _set_state(runtime, resource, requested_state(resource)) or True


def choose_node(region: SimRegion, resource: SimHaResource) -> str | None:
    """
    Choose an online node that the group or rules allow, with the highest priority and fewest
    guests.
    """
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


def _allowed(region: SimRegion, resource: SimHaResource) -> dict[str, int]:
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


def _strict(region: SimRegion, resource: SimHaResource) -> bool:
    group = region.ha.groups.get(str(resource.options.get("group", "")))
    if group and group.get("restricted"):
        return True
    return any(
        rule.get("strict") and resource.sid in rule["resources"].split(",")
        for rule in region.ha.rules.values()
    )
