"""``/cluster/sdn/controllers``: EVPN, BGP and IS-IS controllers."""

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.locking import locked
from moxwell.lab.proxmox.sdn.objects import check_digest, listing, new_row, object_row
from moxwell.lab.proxmox.sdn.section_types import controller_type
from moxwell.lab.proxmox.state import Row

_PLUGINS = "/usr/share/perl5/PVE/Network/SDN/Controllers"
_PER_NODE = {"bgp": "bgp controller", "isis": "bgp or isis controller"}


def list_controllers(call: PveCall) -> list[Row]:
    wanted, see = call.get("type"), ("SDN.Audit", "SDN.Allocate")
    return [
        row
        for row in listing(call, "controllers", "controller")
        if wanted in (None, row["type"])
        and call.has_privileges(f"/sdn/controllers/{row['controller']}", *see, any_of=True)
    ]


def get_controller(call: PveCall) -> Row:
    name = call.params["controller"]
    row = object_row(call, "controllers", name, "controller")
    if row is None:
        raise die(f"sdn '{name}' does not exist")
    return row


def create_controller(call: PveCall) -> None:
    name, rows = call.params.pop("controller"), call.region.sdn.controllers
    given = {k: v for k, v in call.params.items() if k not in ("type", "lock-token")}
    controller_type(call.params["type"], call.major).check(given, create=True)
    with locked(call, "create sdn controller object failed"):
        if name in rows:
            raise die(f"sdn controller object ID '{name}' already defined")
        _check(call, name, call.params)
        rows[name] = dict(call.params)


def _check(call: PveCall, name: str, row: Row) -> None:
    """The checks of the controller type."""
    kind = row["type"]
    others = [c for ident, c in call.region.sdn.controllers.items() if ident != name]
    same = [other for other in others if other["type"] == kind]
    if kind == "evpn":
        where = f"at {_PLUGINS}/EvpnPlugin.pm line 491."
        if same:
            raise die(f"only 1 global evpn controller can be defined {where}")
        if call.major >= 9 and bool(row.get("peers")) == bool(row.get("fabric")):
            raise die(f"must have exactly one of peers / fabric defined {where}")
    here = [other for other in same if other.get("node") == call.node]
    if kind in _PER_NODE and len(here) > 1:
        where = f"at {_PLUGINS}/{kind.capitalize()}Plugin.pm line 183."
        raise die(f"only 1 {_PER_NODE[kind]} can be defined {where}")


def update_controller(call: PveCall) -> None:
    rows, name = call.region.sdn.controllers, call.params.pop("controller")
    with locked(call, "update sdn controller object failed"):
        check_digest(call, digest_of(rows))
        if name not in rows:
            raise die(f"sdn '{name}' does not exist")
        changed = new_row(call, rows[name], controller_type(rows[name]["type"], call.major))
        _check(call, name, changed)
        rows[name] = changed


def delete_controller(call: PveCall) -> None:
    name, rows = call.params["controller"], call.region.sdn.controllers
    with locked(call, "delete sdn controller object failed"):
        if name not in rows:
            raise die(f"sdn '{name}' does not exist")
        for zone, row in call.region.sdn.zones.items():
            if rows[name]["type"] in ("evpn", "bgp") and row.get("controller") == name:
                where = f"at {_PLUGINS}/EvpnPlugin.pm line 475."
                raise die(f"controller {name} is used by {zone} {where}")
        del rows[name]


_BASE, _ONE = "/cluster/sdn/controllers", "/cluster/sdn/controllers/{controller}"
_ALLOCATE = perm("/sdn/controllers", "SDN.Allocate")
_READ = perm("/sdn/controllers/{controller}", "SDN.Allocate")
ROUTES = (
    ApiRoute("GET", _BASE, list_controllers, permission=anyone),
    ApiRoute("POST", _BASE, create_controller, permission=_ALLOCATE, proxy=False),
    ApiRoute("GET", _ONE, get_controller, permission=_READ),
    ApiRoute("PUT", _ONE, update_controller, permission=_ALLOCATE, proxy=False),
    ApiRoute("DELETE", _ONE, delete_controller, permission=_ALLOCATE),
)
