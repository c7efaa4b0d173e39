"""The routes below ``/nodes/{node}/lxc`` except the firewall."""

from functools import partial

from moxwell.lab.proxmox.config_schema import ct, formats
from moxwell.lab.proxmox.config_schema.drives import UNUSED
from moxwell.lab.proxmox.lxc import conf, create, manage, move, power
from moxwell.lab.proxmox.qemu import clone as vm_clone
from moxwell.lab.proxmox.qemu import params, snapshot
from moxwell.lab.proxmox.route import ApiRoute, Check, Handler, Param, Params
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
_NAMED = {**params.BASE, "snapname": params.SNAPSHOT}
_RATE = Param(type="number", minimum=0)


def _ct(
    method: str, path: str, handler: Handler, check: Check, given: Params = params.BASE
) -> ApiRoute:
    return ApiRoute(method, _CT + path, handler, given, check)


def _options(major: int) -> Params:
    return ct.options(major)


_CLONE = {
    **params.BASE,
    "newid": params.VMID,
    "hostname": Param(format=formats.dns_name),
    "description": params.TEXT,
    "pool": Param(format=formats.pool_id),
    "snapname": Param(format=formats.config_id, max_length=40),
    "storage": params.STORAGE,
    "full": params.BOOL,
    "target": Param(format=formats.node),
    "bwlimit": _RATE,
}
_MOVE = {
    **params.BASE,
    "volume": Param(optional=False, enum=(*ct.DISKS, *UNUSED)),
    "storage": params.STORAGE,
    "delete": params.BOOL,
    "digest": params.DIGEST,
    "bwlimit": _RATE,
    "target-vmid": Param(type="integer", format=formats.vmid, minimum=100, maximum=999999999),
    "target-volume": Param(enum=(*ct.DISKS, *UNUSED)),
    "target-digest": params.DIGEST,
}
_MIGRATE = {
    **params.BASE,
    "target": params.NODE,
    "target-storage": Param(format=formats.storage_pairs),
    "online": params.BOOL,
    "restart": params.BOOL,
    "timeout": params.INTEGER,
    "bwlimit": _RATE,
}
_STOP = {**params.BASE, "skiplock": params.BOOL, "overrule-shutdown": params.BOOL}
_START = {**params.BASE, "skiplock": params.BOOL, "debug": params.BOOL}
_SHUTDOWN = {**params.BASE, "timeout": params.WHOLE, "forceStop": params.BOOL}
_DESTROY = {
    **params.BASE,
    "force": params.BOOL,
    "purge": params.BOOL,
    "destroy-unreferenced-disks": params.BOOL,
}
_RESIZE = {
    **params.BASE,
    "disk": Param(optional=False, enum=ct.DISKS),
    "size": Param(optional=False, pattern=r"\+?\d+(\.\d+)?[KMGT]?"),
    "digest": params.DIGEST,
}
_SEEN = {
    **params.BASE,
    "current": params.BOOL,
    "snapshot": Param(format=formats.config_id, max_length=40),
}

ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("POST", _ROOT, create.create, {}, anyone, options=_options),
    ApiRoute("PUT", f"{_CT}/config", conf.put, {}, _CONFIG, options=_options),
    ApiRoute("GET", _ROOT, power.list_cts, {"node": params.NODE}, anyone),
    _ct("GET", "", power.index, anyone),
    _ct("DELETE", "", manage.destroy, _ALLOCATE, _DESTROY),
    _ct("GET", "/config", power.get_config, _AUDIT, _SEEN),
    _ct("GET", "/pending", power.get_pending, _AUDIT),
    _ct("GET", "/feature", manage.feature, _AUDIT, params.FEATURE),
    _ct("GET", "/interfaces", power.interfaces, _AUDIT),
    _ct("PUT", "/resize", manage.resize, _DISK, _RESIZE),
    _ct("POST", "/move_volume", move.move_volume, _DISK, _MOVE),
    _ct("POST", "/clone", manage.clone, vm_clone.check_permission, _CLONE),
    _ct("POST", "/template", manage.template, _ALLOCATE),
    _ct("POST", "/migrate", manage.migrate, perm("/vms/{vmid}", "VM.Migrate"), _MIGRATE),
    _ct("GET", "/status", power.commands, anyone),
    _ct("GET", "/status/current", power.current, _AUDIT),
    _ct("POST", "/status/start", power.power_on, _POWER, _START),
    _ct("POST", "/status/stop", power.power_off, _POWER, _STOP),
    _ct("POST", "/status/shutdown", power.shut_down, _POWER, _SHUTDOWN),
    _ct("POST", "/status/suspend", power.suspend, _POWER),
    _ct("POST", "/status/resume", power.resume, _POWER),
    _ct("POST", "/status/reboot", power.reboot, _POWER, {**params.BASE, "timeout": params.WHOLE}),
    _ct("GET", "/snapshot", partial(snapshot.list_snapshots, kind="lxc"), _AUDIT),
    _ct(
        "POST",
        "/snapshot",
        partial(snapshot.create, kind="lxc"),
        _SNAPSHOT,
        {**_NAMED, "description": params.TEXT},
    ),
    _ct("GET", "/snapshot/{snapname}", snapshot.index, anyone, _NAMED),
    _ct(
        "DELETE",
        "/snapshot/{snapname}",
        partial(snapshot.delete, kind="lxc"),
        _SNAPSHOT,
        {**_NAMED, "force": params.BOOL},
    ),
    _ct(
        "GET",
        "/snapshot/{snapname}/config",
        partial(snapshot.get_config, kind="lxc"),
        perm("/vms/{vmid}", "VM.Snapshot", "VM.Snapshot.Rollback", "VM.Audit", any_of=True),
        _NAMED,
    ),
    _ct(
        "PUT",
        "/snapshot/{snapname}/config",
        partial(snapshot.put_config, kind="lxc"),
        _SNAPSHOT,
        {**_NAMED, "description": params.TEXT},
    ),
    _ct(
        "POST",
        "/snapshot/{snapname}/rollback",
        partial(snapshot.rollback, kind="lxc"),
        _ROLLBACK,
        {**_NAMED, "start": params.BOOL},
    ),
)
