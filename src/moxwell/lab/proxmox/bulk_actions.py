"""``/nodes/{node}``: startall, stopall and migrateall, each a task over the guests of a node."""

from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die, forbidden, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext


def _chosen(call: PveCall, priv: str) -> list[SimGuest]:
    """The guests of a bulk action on which the caller has the privilege."""
    requested = [int(v) for v in formats.split_list(call.get("vms", ""))]
    if not call.has_privileges("/", priv):
        if not requested:
            raise forbidden(f"/, {priv}")
        for vmid in requested:
            call.check(f"/vms/{vmid}", priv)
    local_guests = [
        g for g in call.region.guests.values() if g.node == call.node and not g.template
    ]
    return sorted(
        (g for g in local_guests if not requested or g.vmid in requested), key=lambda g: g.vmid
    )


async def _each(
    call: PveCall, ctx: WorkerContext, guests: list[SimGuest], command: str, params: dict[str, Any]
) -> None:
    for guest in guests:
        path = f"/nodes/{call.node}/{guest.kind}/{guest.vmid}/{command}"
        try:
            upid = await call.runtime.module_data["perform"]("POST", path, params)
            task = await call.runtime.workers.wait(upid)
        except PveException as problem:
            ctx.log(problem.message)
            continue
        if task.exitstatus != "OK":
            ctx.log(f"{guest.vmid}: {task.exitstatus}")


def start_all(call: PveCall) -> str:
    chosen = _chosen(call, "VM.PowerMgmt")

    async def worker(ctx: WorkerContext) -> None:
        due = [g for g in chosen if not g.running and (call.get("force") or g.conf.get("onboot"))]
        await _each(call, ctx, due, "status/start", {})

    return call.spawn("startall", "", worker)


def stop_all(call: PveCall) -> str:
    chosen = _chosen(call, "VM.PowerMgmt")

    async def worker(ctx: WorkerContext) -> None:
        params = {"timeout": str(call.get("timeout", 180)), "forceStop": "1"}
        await _each(call, ctx, [g for g in chosen if g.running], "status/shutdown", params)

    return call.spawn("stopall", "", worker)


def migrate_all(call: PveCall) -> str:
    chosen, target = _chosen(call, "VM.Migrate"), call.params["target"]
    if target == call.node:
        raise param_error({"target": "target is local node."})
    if target not in call.region.hosts:
        raise die(f"no such cluster node '{target}'")

    async def worker(ctx: WorkerContext) -> None:
        for guest in chosen:
            online = {"online": "1"} if guest.running else {}
            await _each(call, ctx, [guest], "migrate", {"target": target, **online})

    return call.spawn("migrateall", "", worker)


ROUTES = (
    ApiRoute("POST", "/nodes/{node}/startall", start_all, permission=anyone),
    ApiRoute("POST", "/nodes/{node}/stopall", stop_all, permission=anyone),
    ApiRoute("POST", "/nodes/{node}/migrateall", migrate_all, permission=anyone),
)
