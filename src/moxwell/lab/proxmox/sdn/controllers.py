"""``/cluster/sdn/controllers``: EVPN, BGP and IS-IS controllers."""

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.objects import NESTED, check_digest, listing, new_row, object_row
from moxwell.lab.proxmox.sdn.section_types import controller_type
from moxwell.lab.proxmox.state import Row

_WHERE = "at /usr/share/perl5/PVE/Network/SDN/Controllers/EvpnPlugin.pm line 400."


def list_controllers(call: PveCall) -> list[Row]:
    wanted = call.get("type")
    rows = listing(call, "controllers", "controller")
    return [row for row in rows if wanted in (None, row["type"])]


def get_controller(call: PveCall) -> Row:
    name = call.params["controller"]
    row = object_row(call, "controllers", name, "controller")
    if row is None:
        raise die(f"sdn '{name}' does not exist")
    return row


def create_controller(call: PveCall) -> None:
    name, rows = call.params.pop("controller"), call.region.sdn.controllers
    call.params.pop("lock-token", None)
    kind = call.params["type"]
    given = {k: v for k, v in call.params.items() if k != "type"}
    controller_type(kind, call.major).check(given, create=True)
    error_prefix = "create sdn controller object failed: "
    if name in rows:
        raise die(f"{error_prefix}sdn controller object ID '{name}' already defined")
    _check(call, name, call.params, error_prefix)
    rows[name] = dict(call.params)


def _check(call: PveCall, name: str, row: Row, error_prefix: str) -> None:
    """A region has one EVPN controller; on 9.x it has peers or a fabric."""
    if row["type"] != "evpn":
        return
    if call.major >= 9:
        one_of_peers(row, error_prefix)
    others = call.region.sdn.controllers.items()
    if any(other["type"] == "evpn" for ident, other in others if ident != name):
        raise die(f"{error_prefix}only 1 global evpn controller can be defined {_WHERE}")


def one_of_peers(row: Row, error_prefix: str) -> None:
    """Peers or a fabric, not both and not neither."""
    if ("peers" in row) == ("fabric" in row):
        text = "must have exactly one of peers / fabric defined"
        raise die(f"{error_prefix}{NESTED}fabric: {text}\npeers: {text}")


def update_controller(call: PveCall) -> None:
    error_prefix, rows = "update sdn controller object failed: ", call.region.sdn.controllers
    name = call.params.pop("controller")
    if name not in rows:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    check_digest(call, digest_of(rows), error_prefix)
    section = controller_type(rows[name]["type"], call.major)
    changed = new_row(call, rows[name], error_prefix, section)
    _check(call, name, changed, error_prefix)
    rows[name] = changed


def delete_controller(call: PveCall) -> None:
    error_prefix, name = "delete sdn controller object failed: ", call.params["controller"]
    rows = call.region.sdn.controllers
    if name not in rows:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    for zone, row in call.region.sdn.zones.items():
        if row.get("controller") == name:
            raise die(f"{error_prefix}controller {name} is used by {zone} {_WHERE}")
    del rows[name]


_BASE, _ONE = "/cluster/sdn/controllers", "/cluster/sdn/controllers/{controller}"
_ALLOCATE = perm("/sdn/controllers", "SDN.Allocate")
ROUTES = (
    ApiRoute("GET", _BASE, list_controllers, permission=anyone),
    ApiRoute("POST", _BASE, create_controller, permission=_ALLOCATE, proxy=False),
    ApiRoute("GET", _ONE, get_controller, permission=_ALLOCATE),
    ApiRoute("PUT", _ONE, update_controller, permission=_ALLOCATE, proxy=False),
    ApiRoute("DELETE", _ONE, delete_controller, permission=_ALLOCATE),
)
