"""
``/cluster/sdn``: zones and apply.

Objects are pending until ``PUT /cluster/sdn``; only the running configuration has effects.
"""

import copy

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.qemu.identity import new_mac
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn.locking import APPLIED, locked, release_with_change
from moxwell.lab.proxmox.sdn.objects import check_digest, listing, new_row, object_row
from moxwell.lab.proxmox.sdn.section_types import zone_type
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext

_PLUGINS = "/usr/share/perl5/PVE/Network/SDN/Zones"


def list_zones(call: PveCall) -> list[Row]:
    return [
        row
        for row in listing(call, "zones", "zone")
        if call.get("type", row["type"]) == row["type"]
        and call.has_privileges(
            f"/sdn/zones/{row['zone']}", "SDN.Audit", "SDN.Allocate", any_of=True
        )
    ]


def get_zone(call: PveCall) -> Row:
    row = object_row(call, "zones", call.params["zone"], "zone")
    if row is None:
        raise die(f"sdn '{call.params['zone']}' does not exist")
    return row


def create_zone(call: PveCall) -> None:
    name, zones = call.params.pop("zone"), call.region.sdn.zones
    given = {k: v for k, v in call.params.items() if k not in ("type", "lock-token")}
    zone_type(call.params["type"], call.major).check(given, create=True)
    with locked(call, "create sdn zone object failed"):
        if name in zones:
            raise die(f"sdn zone object ID '{name}' already defined")
        _check_references(call)
        zones[name] = _checked(call, name, dict(call.params))


def _check_references(call: PveCall) -> None:
    """Check what a request refers to."""
    sdn, row = call.region.sdn, call.params
    for option in ("dns", "reversedns"):
        if row.get(option) and row[option] not in sdn.dns:
            raise bad_params(**{option: f"{row[option]} don't exist"})
    if row.get("dnszone") and not row.get("dns"):
        raise bad_params(dnszone="missing dns server")
    if row.get("ipam") and row["ipam"] not in sdn.ipams:
        raise bad_params(ipam=f"{row['ipam']} not existing")


def _checked(call: PveCall, name: str, row: Row) -> Row:
    """The zone after the checks of its type."""
    if row["type"] == "vxlan" and call.major >= 9:
        _one_of_peers(row)
    if row["type"] == "evpn":
        _check_evpn(call, name, row)
        row.setdefault("mac", new_mac(call))
    return row


def _one_of_peers(row: Row) -> None:
    """Peers or a fabric, not both and not neither."""
    if bool(row.get("peers")) == bool(row.get("fabric")):
        text = "must have exactly one of peers / fabric defined"
        raise bad_params(fabric=text, peers=text)


def _check_evpn(call: PveCall, name: str, row: Row) -> None:
    where, controllers = f"at {_PLUGINS}/EvpnPlugin.pm line 354.", call.region.sdn.controllers
    if row["controller"] not in controllers:
        raise die(f"controller {row['controller']} don't exist {where}")
    if controllers[row["controller"]]["type"] != "evpn":
        raise die(f"{row['controller']} is not a evpn controller type {where}")
    for other, zone in call.region.sdn.zones.items():
        if other != name and zone.get("vrf-vxlan") == row["vrf-vxlan"]:
            raise die(f"vrf-vxlan {row['vrf-vxlan']} is already declared in {other} {where}")


def update_zone(call: PveCall) -> None:
    zones, name = call.region.sdn.zones, call.params.pop("zone")
    with locked(call, "update sdn zone object failed"):
        check_digest(call, digest_of(zones))
        if name not in zones:
            raise die(f"sdn '{name}' does not exist")
        changed = new_row(call, zones[name], zone_type(zones[name]["type"], call.major))
        subnets = [s for s in call.region.sdn.subnets.values() if s["zone"] == name]
        if subnets and (changed.get("ipam") or "") != (zones[name].get("ipam") or ""):
            raise bad_params(ipam="can't change ipam if a subnet is already defined in this zone")
        _check_references(call)
        zones[name] = _checked(call, name, changed)


def delete_zone(call: PveCall) -> None:
    name, sdn = call.params["zone"], call.region.sdn
    with locked(call, "delete sdn zone object failed"):
        if name not in sdn.zones:
            raise die(f"sdn '{name}' does not exist")
        for vnet, row in sdn.vnets.items():
            if row["zone"] == name:
                raise die(f"zone {name} is used by vnet {vnet} at {_PLUGINS}/Plugin.pm line 148.")
        del sdn.zones[name]


def apply(call: PveCall) -> str:
    """PUT /cluster/sdn: the configuration becomes the running one."""
    sdn, token = call.region.sdn, call.get("lock-token")
    with locked(call, "could not commit SDN config"):
        for kind in APPLIED:
            sdn.running[kind] = copy.deepcopy(getattr(sdn, kind))
        sdn.version += 1
        release_with_change(call, token)

    async def worker(ctx: WorkerContext) -> None:
        for host in call.region.hosts.values():
            if host.online:
                ctx.log(f"{host.name}: reloading network config")

    return call.spawn("reloadnetworkall", "", worker)


_BASE, _ONE = "/cluster/sdn/zones", "/cluster/sdn/zones/{zone}"
_ALLOCATE, _EDIT = perm("/sdn/zones", "SDN.Allocate"), perm("/sdn/zones/{zone}", "SDN.Allocate")

ROUTES = (
    ApiRoute("PUT", "/cluster/sdn", apply, permission=perm("/sdn", "SDN.Allocate")),
    ApiRoute("GET", _BASE, list_zones, permission=anyone),
    ApiRoute("POST", _BASE, create_zone, permission=_ALLOCATE),
    ApiRoute("GET", _ONE, get_zone, permission=_EDIT),
    ApiRoute("PUT", _ONE, update_zone, permission=_EDIT),
    ApiRoute("DELETE", _ONE, delete_zone, permission=_EDIT),
)
