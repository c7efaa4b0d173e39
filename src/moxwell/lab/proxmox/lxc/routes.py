"""The routes below ``/nodes/{node}/lxc`` except the firewall."""

from functools import partial

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.lxc import conf, create, manage, move, power, update
from moxwell.lab.proxmox.qemu import clone as vm_clone
from moxwell.lab.proxmox.qemu import snapshot
from moxwell.lab.proxmox.route import ApiRoute, Check, Handler, Params
from moxwell.lab.proxmox.route_permissions import anyone, perm

_ROOT = "/nodes/{node}/lxc"
_CT = "/nodes/{node}/lxc/{vmid}"
_AUDIT = perm("/vms/{vmid}", "VM.Audit")
_POWER = perm("/vms/{vmid}", "VM.PowerMgmt")
_CONFIG = perm("/vms/{vmid}", *conf.PRIVILEGES, any_of=True)
_DISK = perm("/vms/{vmid}", "VM.Config.Disk")
_ALLOCATE = perm("/vms/{vmid}", "VM.Allocate")
_SNAPSHOT = perm("/vms/{vmid}", "VM.Snapshot")
_ROLLBACK = perm("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", any_of=True)


def _ct(method: str, path: str, handler: Handler, check: Check) -> ApiRoute:
    return ApiRoute(method, _CT + path, handler, permission=check)


def _options(major: int) -> Params:
    return ct.options(major)


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("POST", _ROOT, create.create, permission=anyone, options=_options),
    ApiRoute("PUT", f"{_CT}/config", update.put, permission=_CONFIG, options=_options),
    ApiRoute("GET", _ROOT, power.list_cts, permission=anyone),
    _ct("GET", "", power.index, anyone),
    _ct("DELETE", "", manage.destroy, _ALLOCATE),
    _ct("GET", "/config", power.get_config, _AUDIT),
    _ct("GET", "/pending", power.get_pending, _AUDIT),
    _ct("GET", "/feature", manage.feature, _AUDIT),
    _ct("GET", "/interfaces", power.interfaces, _AUDIT),
    _ct("PUT", "/resize", manage.resize, _DISK),
    _ct("POST", "/move_volume", move.move_volume, _DISK),
    _ct("POST", "/clone", manage.clone, vm_clone.check_permission),
    _ct("POST", "/template", manage.template, _ALLOCATE),
    _ct("POST", "/migrate", manage.migrate, perm("/vms/{vmid}", "VM.Migrate")),
    _ct("GET", "/status", power.commands, anyone),
    _ct("GET", "/status/current", power.current, _AUDIT),
    _ct("POST", "/status/start", power.power_on, _POWER),
    _ct("POST", "/status/stop", power.power_off, _POWER),
    _ct("POST", "/status/shutdown", power.shut_down, _POWER),
    _ct("POST", "/status/suspend", power.suspend, _POWER),
    _ct("POST", "/status/resume", power.resume, _POWER),
    _ct("POST", "/status/reboot", power.reboot, _POWER),
    _ct("GET", "/snapshot", partial(snapshot.list_snapshots, kind="lxc"), _AUDIT),
    _ct(
        "POST",
        "/snapshot",
        partial(snapshot.create, kind="lxc"),
        _SNAPSHOT,
    ),
    _ct("GET", "/snapshot/{snapname}", snapshot.index, anyone),
    _ct(
        "DELETE",
        "/snapshot/{snapname}",
        partial(snapshot.delete, kind="lxc"),
        _SNAPSHOT,
    ),
    _ct(
        "GET",
        "/snapshot/{snapname}/config",
        partial(snapshot.get_config, kind="lxc"),
        perm("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit", any_of=True),
    ),
    _ct(
        "PUT",
        "/snapshot/{snapname}/config",
        partial(snapshot.put_config, kind="lxc"),
        _SNAPSHOT,
    ),
    _ct(
        "POST",
        "/snapshot/{snapname}/rollback",
        partial(snapshot.rollback, kind="lxc"),
        _ROLLBACK,
    ),
)
