"""The routes below ``/nodes/{node}/qemu`` except agent and firewall."""

from moxwell.lab.proxmox.config_schema import vm
from moxwell.lab.proxmox.qemu import (
    clone,
    cloudinit,
    create,
    destroy,
    migrate,
    migrate_preconditions,
    move,
    power,
    snapshot,
    status,
    template,
    update,
)
from moxwell.lab.proxmox.qemu.privileges import CONFIG_PRIVILEGES
from moxwell.lab.proxmox.route import ApiRoute, Check, Handler, Params
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


def _vm(method: str, path: str, handler: Handler, check: Check) -> ApiRoute:
    return ApiRoute(method, _VM + path, handler, permission=check)


def _options(major: int) -> Params:
    return vm.options(major)


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("POST", _ROOT, create.create, permission=anyone, options=_options),
    ApiRoute("POST", f"{_VM}/config", update.post, permission=_CONFIG, options=_options),
    ApiRoute("PUT", f"{_VM}/config", update.put, permission=_CONFIG, options=_options),
    ApiRoute(
        "GET",
        _ROOT,
        status.list_vms,
        permission=anyone,
    ),
    _vm("GET", "", status.index, anyone),
    _vm("DELETE", "", destroy.destroy, _ALLOCATE),
    _vm(
        "GET",
        "/config",
        status.get_config,
        _AUDIT,
    ),
    _vm("GET", "/pending", status.get_pending, _AUDIT),
    _vm("GET", "/feature", status.feature, _AUDIT),
    _vm("GET", "/cloudinit", cloudinit.pending, _AUDIT),
    _vm("PUT", "/cloudinit", cloudinit.update, perm("/vms/{vmid}", "VM.Config.Cloudinit")),
    _vm(
        "GET",
        "/cloudinit/dump",
        cloudinit.dump,
        _AUDIT,
    ),
    _vm(
        "PUT",
        "/unlink",
        update.unlink,
        _DISK,
    ),
    _vm("PUT", "/resize", move.resize, _DISK),
    _vm("POST", "/move_disk", move.move_disk, _DISK),
    _vm("POST", "/clone", clone.clone, clone.check_permission),
    _vm(
        "POST",
        "/template",
        template.template,
        _ALLOCATE,
    ),
    _vm(
        "GET",
        "/migrate",
        migrate_preconditions.precondition,
        perm("/vms/{vmid}", "VM.Migrate"),
    ),
    _vm("POST", "/migrate", migrate.migrate, perm("/vms/{vmid}", "VM.Migrate")),
    _vm("GET", "/status", status.commands, anyone),
    _vm("GET", "/status/current", status.current, _AUDIT),
    _vm("POST", "/status/start", power.power_on, _POWER),
    _vm("POST", "/status/stop", power.power_off, _POWER),
    _vm("POST", "/status/shutdown", power.shut_down, _POWER),
    _vm(
        "POST",
        "/status/reboot",
        power.reboot,
        _POWER,
    ),
    _vm("POST", "/status/reset", power.reset, _POWER),
    _vm("POST", "/status/suspend", power.suspend, _POWER),
    _vm(
        "POST",
        "/status/resume",
        power.resume,
        _POWER,
    ),
    _vm("GET", "/snapshot", snapshot.list_snapshots, _AUDIT),
    _vm(
        "POST",
        "/snapshot",
        snapshot.create,
        _SNAPSHOT,
    ),
    _vm("GET", "/snapshot/{snapname}", snapshot.index, anyone),
    _vm(
        "DELETE",
        "/snapshot/{snapname}",
        snapshot.delete,
        _SNAPSHOT,
    ),
    _vm("GET", "/snapshot/{snapname}/config", snapshot.get_config, _SEE_SNAPSHOT),
    _vm(
        "PUT",
        "/snapshot/{snapname}/config",
        snapshot.put_config,
        _SNAPSHOT,
    ),
    _vm(
        "POST",
        "/snapshot/{snapname}/rollback",
        snapshot.rollback,
        _ROLLBACK,
    ),
)
