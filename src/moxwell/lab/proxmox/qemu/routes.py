"""The routes below ``/nodes/{node}/qemu`` except agent and firewall."""

from moxwell.lab.proxmox.config_schema import formats, vm
from moxwell.lab.proxmox.config_schema.drives import DRIVES
from moxwell.lab.proxmox.qemu import (
    clone,
    cloudinit,
    create,
    destroy,
    migrate,
    move,
    params,
    power,
    snapshot,
    status,
    update,
)
from moxwell.lab.proxmox.qemu.privileges import CONFIG_PRIVILEGES
from moxwell.lab.proxmox.route import ApiRoute, Check, Handler, Param, Params
from moxwell.lab.proxmox.route_permissions import anyone, perm

_ROOT = "/nodes/{node}/qemu"
_VM = "/nodes/{node}/qemu/{vmid}"
_AUDIT = perm("/vms/{vmid}", "VM.Audit")
_POWER = perm("/vms/{vmid}", "VM.PowerMgmt")
_CONFIG = perm("/vms/{vmid}", *CONFIG_PRIVILEGES, any_of=True)
_DISK = perm("/vms/{vmid}", "VM.Config.Disk")
_ALLOCATE = perm("/vms/{vmid}", "VM.Allocate")
_SNAPSHOT = perm("/vms/{vmid}", "VM.Snapshot")
_ROLLBACK = perm("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", any_of=True)
_SEE_SNAPSHOT = perm("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit", any_of=True)
_NAMED = {**params.BASE, "snapname": params.SNAPSHOT}


def _vm(
    method: str, path: str, handler: Handler, check: Check, given: Params = params.BASE
) -> ApiRoute:
    return ApiRoute(method, _VM + path, handler, given, check)


def _options(major: int) -> Params:
    return vm.options(major)


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("POST", _ROOT, create.create, {}, anyone, options=_options),
    ApiRoute("POST", f"{_VM}/config", update.post, {}, _CONFIG, options=_options),
    ApiRoute("PUT", f"{_VM}/config", update.put, {}, _CONFIG, options=_options),
    ApiRoute(
        "GET",
        _ROOT,
        status.list_vms,
        {"node": params.NODE, "full": params.BOOL},
        anyone,
    ),
    _vm("GET", "", status.index, anyone),
    _vm("DELETE", "", destroy.destroy, _ALLOCATE, params.DESTROY),
    _vm(
        "GET",
        "/config",
        status.get_config,
        _AUDIT,
        {
            **params.BASE,
            "current": params.BOOL,
            "snapshot": Param(format=formats.config_id, max_length=40),
        },
    ),
    _vm("GET", "/pending", status.get_pending, _AUDIT),
    _vm("GET", "/feature", status.feature, _AUDIT, params.FEATURE),
    _vm("GET", "/cloudinit", cloudinit.pending, _AUDIT),
    _vm("PUT", "/cloudinit", cloudinit.update, perm("/vms/{vmid}", "VM.Config.Cloudinit")),
    _vm(
        "GET",
        "/cloudinit/dump",
        cloudinit.dump,
        _AUDIT,
        {**params.BASE, "type": Param(optional=False, enum=("user", "network", "meta"))},
    ),
    _vm(
        "PUT",
        "/unlink",
        update.unlink,
        _DISK,
        {
            **params.BASE,
            "idlist": Param(optional=False, format=formats.listed(formats.config_id)),
            "force": params.BOOL,
        },
    ),
    _vm("PUT", "/resize", move.resize, _DISK, params.RESIZE),
    _vm("POST", "/move_disk", move.move_disk, _DISK, params.MOVE),
    _vm("POST", "/clone", clone.clone, clone.check_permission, params.CLONE),
    _vm(
        "POST",
        "/template",
        clone.template,
        _ALLOCATE,
        {**params.BASE, "disk": Param(enum=DRIVES)},
    ),
    _vm(
        "GET",
        "/migrate",
        migrate.precondition,
        perm("/vms/{vmid}", "VM.Migrate"),
        {**params.BASE, "target": Param(format=formats.node)},
    ),
    _vm("POST", "/migrate", migrate.migrate, perm("/vms/{vmid}", "VM.Migrate"), params.MIGRATE),
    _vm("GET", "/status", status.commands, anyone),
    _vm("GET", "/status/current", status.current, _AUDIT),
    _vm("POST", "/status/start", power.power_on, _POWER, params.START),
    _vm("POST", "/status/stop", power.power_off, _POWER, params.STOP),
    _vm("POST", "/status/shutdown", power.shut_down, _POWER, params.SHUTDOWN),
    _vm(
        "POST",
        "/status/reboot",
        power.reboot,
        _POWER,
        {**params.BASE, "timeout": params.WHOLE},
    ),
    _vm("POST", "/status/reset", power.reset, _POWER, {**params.BASE, "skiplock": params.BOOL}),
    _vm("POST", "/status/suspend", power.suspend, _POWER, params.SUSPEND),
    _vm(
        "POST",
        "/status/resume",
        power.resume,
        _POWER,
        {**params.BASE, "skiplock": params.BOOL, "nocheck": params.BOOL},
    ),
    _vm("GET", "/snapshot", snapshot.list_snapshots, _AUDIT),
    _vm(
        "POST",
        "/snapshot",
        snapshot.create,
        _SNAPSHOT,
        {**_NAMED, "vmstate": params.BOOL, "description": params.TEXT},
    ),
    _vm("GET", "/snapshot/{snapname}", snapshot.index, anyone, _NAMED),
    _vm(
        "DELETE",
        "/snapshot/{snapname}",
        snapshot.delete,
        _SNAPSHOT,
        {**_NAMED, "force": params.BOOL},
    ),
    _vm("GET", "/snapshot/{snapname}/config", snapshot.get_config, _SEE_SNAPSHOT, _NAMED),
    _vm(
        "PUT",
        "/snapshot/{snapname}/config",
        snapshot.put_config,
        _SNAPSHOT,
        {**_NAMED, "description": params.TEXT},
    ),
    _vm(
        "POST",
        "/snapshot/{snapname}/rollback",
        snapshot.rollback,
        _ROLLBACK,
        {**_NAMED, "start": params.BOOL},
    ),
)
