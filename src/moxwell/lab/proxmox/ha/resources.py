"""
``/cluster/ha``: resources, groups (8.x) and status.

On 9.x the group endpoints respond that groups have been migrated to rules.
"""

import re

from moxwell.lab.proxmox.cluster import digest_of, quorate
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import perm
from moxwell.lab.proxmox.state import Row, SimHaResource, SimHost, SimRegion

_VMID = re.compile(r"[1-9][0-9]+")
MIGRATED = "ha groups have been migrated to rules"


def parse_sid(call: PveCall) -> tuple[str, str]:
    """(sid, type) of the parameter; a bare VMID is resolved."""
    text = call.params["sid"]
    if text.isdigit():
        guest = call.region.guests.get(int(text))
        if guest is None:
            error_prefix = (
                "unable to detect SID from VMID" if call.major >= 9 else "unable do add resource"
            )
            raise die(f"{error_prefix} - VM/CT {text} does not exist")
        return ha_manager.sid_of(guest), "vm" if guest.kind == "qemu" else "ct"
    kind, colon, _ = text.partition(":")
    if not colon:
        raise die(f"unable to parse service id '{text}'")
    if kind not in {"vm", "ct"}:
        raise die(f"unknown section type '{kind}'")
    return text, kind


def resources_digest(call: PveCall) -> str:
    return digest_of({r.sid: r.options for r in call.region.ha.resources.values()})


def _row(call: PveCall, resource: SimHaResource) -> Row:
    digest = resources_digest(call)
    row = {"sid": resource.sid, "type": resource.type, "digest": digest, **resource.options}
    group = row.get("group")
    if group is not None and group not in call.region.ha.groups:
        row["errors"] = {"group": f"group '{group}' does not exist"}
    return row


def list_resources(call: PveCall) -> list[Row]:
    wanted = call.get("type")
    found = call.region.ha.resources.values()
    return [_row(call, r) for r in found if wanted in {None, r.type}]


def _find(call: PveCall, text: str) -> SimHaResource:
    sid, _ = parse_sid(call)
    resource = call.region.ha.resources.get(sid)
    if resource is None:
        raise die(text.format(sid))
    return resource


def get_resource(call: PveCall) -> Row:
    row = _row(call, _find(call, "no such resource '{}'"))
    row.pop("errors", None)
    return row


def create_resource(call: PveCall) -> None:
    sid, kind = parse_sid(call)
    if call.get("type", kind) != kind:
        raise die("types does not match")
    if "group" in call.params and call.major >= 9:
        raise die(f"invalid parameter 'group': {MIGRATED}")
    number = sid.partition(":")[2]
    if not _VMID.fullmatch(number):
        raise die("invalid VMID")
    guest = call.region.guests.get(int(number))
    if guest is None:
        raise die(f"resource '{sid}' does not exist in cluster")
    if ha_manager.sid_of(guest) != sid:
        what = "VM" if kind == "vm" else "container"
        raise die(f"resource '{sid}' - guest with ID {number} is not a {what}")
    if sid in call.region.ha.resources:
        raise die(f"create resource failed: resource ID '{sid}' already defined")
    options = {k: v for k, v in call.params.items() if k not in {"sid", "type"}}
    resource = SimHaResource(sid, kind, options, node=guest.node, state_changed_at=call.now())
    call.region.ha.resources[sid] = resource
    ha_manager.start_manager(call.runtime)


def update_resource(call: PveCall) -> None:
    if "group" in call.params:
        _check_group(call, call.params["group"])
    sid, kind = parse_sid(call)
    if call.get("type", kind) != kind:
        raise die("types does not match")
    if sid in call.region.ha.resources:
        _check_state(call.region.ha.resources[sid], call.params.get("state"))
    _check_digest(call, resources_digest(call), "update resources config failed: ")
    resource = _find(call, "update resources config failed: no such resource '{}'")
    for name in formats.split_list(call.params.get("delete", "")):
        if name not in _RESOURCE:
            raise die(f"update resources config failed: no such option '{name}'")
        resource.options.pop(name, None)
    kept = {"sid", "delete", "digest"}
    resource.options.update({k: v for k, v in call.params.items() if k not in kept})
    if resource.crm_state == "error" and ha_manager.requested_state(resource) != "started":
        resource.crm_state = "stopped"
    ha_manager.start_manager(call.runtime)


def _check_state(resource: SimHaResource, requested: str | None) -> None:
    if resource.crm_state == "error" and requested != "disabled":
        text = f"service '{resource.sid}' in error state, must be disabled and fixed first"
        raise die(text)


def _check_group(call: PveCall, group: str) -> None:
    if call.major >= 9:
        raise die(f"invalid parameter 'group': {MIGRATED}")
    if group not in call.region.ha.groups:
        raise die(f"HA group '{group}' does not exist")


def _check_digest(call: PveCall, digest: str, error_prefix: str) -> None:
    if call.params.get("digest", digest) != digest:
        text = "detected modified configuration - file changed by other user? Try again."
        raise die(error_prefix + text)


def delete_resource(call: PveCall) -> None:
    resource = _find(call, "cannot delete service '{}', not HA managed!")
    ha_manager.delete_resource(call.runtime, resource.sid, purge=bool(call.get("purge", 1)))


def move(call: PveCall) -> Row:
    resource = _find(call, "resource '{}' is not HA managed")
    if resource.options.get("state") == "ignored":
        raise die(f"resource '{resource.sid}' is not HA managed")
    _check_state(resource, None)
    ha_manager.request_migration(call.runtime, resource, call.params["node"])
    return {"sid": resource.sid, "requested-node": call.params["node"]}


# ---------------------------------------------------------------- groups


def groups_digest(call: PveCall) -> str:
    return digest_of(call.region.ha.groups)


def _group_row(call: PveCall, name: str) -> Row:
    row = call.region.ha.groups[name]
    return {"group": name, "type": "group", "digest": groups_digest(call), **row}


def _only_8(call: PveCall, error_prefix: str) -> None:
    if call.major >= 9:
        raise die(f"cannot {error_prefix}: {MIGRATED}")


def list_groups(call: PveCall) -> list[Row]:
    _only_8(call, "index groups")
    return [_group_row(call, name) for name in call.region.ha.groups]


def get_group(call: PveCall) -> Row:
    _only_8(call, "read group")
    if call.params["group"] not in call.region.ha.groups:
        raise die(f"no such ha group '{call.params['group']}'")
    return _group_row(call, call.params["group"])


def create_group(call: PveCall) -> None:
    _only_8(call, "create group")
    name, groups = call.params["group"], call.region.ha.groups
    if name in groups:
        raise die(f"create ha group failed: ha group ID '{name}' already defined")
    groups[name] = {k: v for k, v in call.params.items() if k not in {"group", "type"}}


def update_group(call: PveCall) -> None:
    _only_8(call, "update group")
    name, groups = call.params["group"], call.region.ha.groups
    if name not in groups:
        raise die(f"update ha groups config failed: no such ha group '{name}'")
    _check_digest(call, groups_digest(call), "update ha groups config failed: ")
    for option in formats.split_list(call.params.get("delete", "")):
        if option == "nodes":
            raise die(f"update ha group failed: unable to delete required option '{option}'")
        groups[name].pop(option, None)
    kept = {"group", "delete", "digest"}
    groups[name].update({k: v for k, v in call.params.items() if k not in kept})


def delete_group(call: PveCall) -> None:
    _only_8(call, "delete group")
    name = call.params["group"]
    for resource in call.region.ha.resources.values():
        if resource.options.get("group") == name:
            text = f"ha group is used by service '{resource.sid}'"
            raise die(f"delete ha group failed: {text}")
    call.region.ha.groups.pop(name, None)


# ---------------------------------------------------------------- status


def current(call: PveCall) -> list[Row]:
    region = call.region
    ok = quorate(region)
    rows: list[Row] = [
        {
            "id": "quorum",
            "type": "quorum",
            "node": call.node,
            "status": "OK" if ok else f"No quorum on node '{call.node}'!",
            "quorate": int(ok),
        }
    ]
    master = ha_manager.active_master(region, call.now())
    if not master:
        if region.major >= 9:
            standby = {"status": "standby (CRM watchdog standby)", "armed-state": "standby"}
            rows.append({"id": "fencing", "type": "fencing", "node": call.node, **standby})
        return rows + [_service(call, r) for r in region.ha.resources.values()]
    stamp = int(call.now())
    text = call.runtime.clock.now().strftime("%a %b %e %H:%M:%S %Y")
    rows.append(
        {
            "id": "master",
            "type": "master",
            "node": master,
            "status": f"{master} (active, {text})",
            "timestamp": stamp,
        }
    )
    if region.major >= 9:
        armed = {"status": "armed (CRM watchdog active)", "armed-state": "armed"}
        rows.append({"id": "fencing", "type": "fencing", "node": master, **armed})
    for host in region.hosts.values():
        reported = f"{host.name} ({_lrm_state(region, host)}, {text})"
        row = {"id": f"lrm:{host.name}", "type": "lrm", "node": host.name, "status": reported}
        rows.append({**row, "timestamp": stamp})
    return rows + [_service(call, r) for r in region.ha.resources.values()]


def _lrm_state(region: SimRegion, host: SimHost) -> str:
    """The state of the local resource manager of a node."""
    busy = any(r.node == host.name for r in region.ha.resources.values())
    label = ("active" if busy else "idle") if host.online else "old timestamp - dead?"
    if host.online and host.maintenance:
        label = "maintenance mode"
    return label + (f", watchdog {'active' if busy else 'standby'}" if region.major >= 9 else "")


def _service(call: PveCall, resource: SimHaResource) -> Row:
    state = ha_manager.displayed_state(call.region, resource)
    row: Row = {
        "id": f"service:{resource.sid}",
        "type": "service",
        "sid": resource.sid,
        "node": resource.node,
        "state": state,
        "request_state": ha_manager.requested_state(resource),
        "status": f"{resource.sid} ({resource.node}, {state})",
        "max_restart": resource.options.get("max_restart", 1),
        "max_relocate": resource.options.get("max_relocate", 1),
    }
    if call.major >= 9:
        row["failback"] = resource.options.get("failback", 1)
    for name in ("group", "comment"):
        if name in resource.options:
            row[name] = resource.options[name]
    return row | ({"crm_state": resource.crm_state} if resource.crm_state != "queued" else {})


def manager_status(call: PveCall) -> Row:
    region = call.region
    services = {
        r.sid: {"node": r.node, "state": r.crm_state, "running": int(r.crm_state == "started")}
        for r in region.ha.resources.values()
    }
    hosts = region.hosts.values()
    state: Row = {
        "master_node": region.ha.master,
        "node_status": {h.name: _node_state(h) for h in hosts},
        "service_status": services,
    }
    emptied = {h.name: {"maintenance": 1} for h in hosts if h.maintenance}
    if emptied:
        state["node_request"] = emptied
    lrm = {h.name: {"mode": "maintenance" if h.maintenance else "active"} for h in hosts}
    quorum = {"node": call.node, "quorate": "1"}
    return {"manager_status": state, "lrm_status": lrm, "quorum": quorum}


def _node_state(host: SimHost) -> str:
    if not host.online:
        return "unknown"
    return "maintenance" if host.maintenance else "online"


_AUDIT, _CONSOLE = perm("/", "Sys.Audit"), perm("/", "Sys.Console")
_RESOURCE = frozenset({"comment", "group", "failback", "max_relocate", "max_restart", "state"})

ROUTES = (
    ApiRoute("GET", "/cluster/ha/resources", list_resources, permission=_AUDIT),
    ApiRoute("POST", "/cluster/ha/resources", create_resource, permission=_CONSOLE),
    ApiRoute("GET", "/cluster/ha/resources/{sid}", get_resource, permission=_AUDIT),
    ApiRoute("PUT", "/cluster/ha/resources/{sid}", update_resource, permission=_CONSOLE),
    ApiRoute(
        "DELETE",
        "/cluster/ha/resources/{sid}",
        delete_resource,
        permission=_CONSOLE,
    ),
    ApiRoute("POST", "/cluster/ha/resources/{sid}/migrate", move, permission=_CONSOLE, proxy=False),
    ApiRoute(
        "POST", "/cluster/ha/resources/{sid}/relocate", move, permission=_CONSOLE, proxy=False
    ),
    ApiRoute("GET", "/cluster/ha/groups", list_groups, permission=_AUDIT),
    ApiRoute(
        "POST",
        "/cluster/ha/groups",
        create_group,
        permission=_CONSOLE,
    ),
    ApiRoute("GET", "/cluster/ha/groups/{group}", get_group, permission=_AUDIT),
    ApiRoute(
        "PUT",
        "/cluster/ha/groups/{group}",
        update_group,
        permission=_CONSOLE,
    ),
    ApiRoute("DELETE", "/cluster/ha/groups/{group}", delete_group, permission=_CONSOLE),
    ApiRoute("GET", "/cluster/ha/status/current", current, permission=_AUDIT),
    ApiRoute("GET", "/cluster/ha/status/manager_status", manager_status, permission=_AUDIT),
)
