"""
``/cluster/sdn``: zones, apply, and the status of the IPAM.

Objects are pending until ``PUT /cluster/sdn``; only the running configuration has effects.
"""

import copy

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn import ipam as sdn_ipam
from moxwell.lab.proxmox.sdn.controllers import one_of_peers
from moxwell.lab.proxmox.sdn.objects import (
    NESTED,
    check_digest,
    listing,
    new_row,
    object_row,
    plain_routes,
)
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
    call.params.pop("lock-token", None)
    given = {k: v for k, v in call.params.items() if k != "type"}
    zone_type(call.params["type"], call.major).check(given, create=True)
    error_prefix = "create sdn zone object failed: "
    if name in zones:
        raise die(f"{error_prefix}sdn zone object ID '{name}' already defined")
    _check_references(call, name, call.params, error_prefix)
    zones[name] = dict(call.params)


def _check_references(call: PveCall, name: str, row: Row, error_prefix: str) -> None:
    """Check what a zone refers to; PVE reports a 400 inside a 500."""
    sdn, nested = call.region.sdn, error_prefix + NESTED
    _check_plugin(call, name, row, error_prefix)
    for option in ("dns", "reversedns"):
        if option in row and row[option] not in sdn.dns:
            raise die(f"{nested}{option}: {row[option]} don't exist")
    if "dnszone" in row and "dns" not in row:
        raise die(f"{nested}dnszone: missing dns server")
    if "ipam" in row and row["ipam"] not in sdn.ipams:
        raise die(f"{nested}ipam: {row['ipam']} not existing")


def _check_plugin(call: PveCall, name: str, row: Row, error_prefix: str) -> None:
    """The checks of the zone type."""
    if row["type"] == "vxlan" and call.major >= 9:
        one_of_peers(row, error_prefix)
    if row["type"] != "evpn":
        return
    where = f"at {_PLUGINS}/EvpnPlugin.pm line 311."
    if row["controller"] not in call.region.sdn.controllers:
        raise die(f"{error_prefix}controller {row['controller']} don't exist {where}")
    for other, zone in call.region.sdn.zones.items():
        if other != name and zone.get("vrf-vxlan") == row["vrf-vxlan"]:
            vrf = row["vrf-vxlan"]
            raise die(f"{error_prefix}vrf-vxlan {vrf} is already declared in {other} {where}")


def update_zone(call: PveCall) -> None:
    error_prefix, zones = "update sdn zone object failed: ", call.region.sdn.zones
    name = call.params.pop("zone")
    if name not in zones:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    check_digest(call, digest_of(zones), error_prefix)
    section = zone_type(zones[name]["type"], call.major)
    changed = new_row(call, zones[name], error_prefix, section)
    _check_references(call, name, changed, error_prefix)
    zones[name] = changed


def delete_zone(call: PveCall) -> None:
    error_prefix, name = "delete sdn zone object failed: ", call.params["zone"]
    sdn = call.region.sdn
    if name not in sdn.zones:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    for vnet, row in sdn.vnets.items():
        if row["zone"] == name:
            where = f"at {_PLUGINS}/Plugin.pm line 159."
            raise die(f"{error_prefix}zone {name} is used by vnet {vnet} {where}")
    del sdn.zones[name]


def apply(call: PveCall) -> str:
    """PUT /cluster/sdn: the configuration becomes the running one."""
    sdn = call.region.sdn
    for kind in ("zones", "vnets", "subnets", "controllers"):
        sdn.running[kind] = copy.deepcopy(getattr(sdn, kind))
    sdn.version += 1

    async def worker(ctx: WorkerContext) -> None:
        for host in call.region.hosts.values():
            if host.online:
                ctx.log(f"{host.name}: reloading network config")

    return call.spawn("reloadnetworkall", "", worker)


def ipam_status(call: PveCall) -> list[Row]:
    """The addresses of the running subnets."""
    if call.params["ipam"] != "pve":
        where = "at /usr/share/perl5/PVE/API2/Network/SDN/Ipams.pm line 319."
        raise die(f"Currently only PVE IPAM is supported! {where}")
    sdn_ipam.update_allocations(call.region)
    return [
        row
        for row in sdn_ipam.visible_addresses(call.region)
        if call.has_privileges(
            f"/sdn/zones/{row['zone']}/{row['vnet']}", "SDN.Audit", "SDN.Use", any_of=True
        )
    ]


_BASE, _ONE = "/cluster/sdn/zones", "/cluster/sdn/zones/{zone}"
_ALLOCATE, _EDIT = perm("/sdn/zones", "SDN.Allocate"), perm("/sdn/zones/{zone}", "SDN.Allocate")

ROUTES = (
    ApiRoute("PUT", "/cluster/sdn", apply, permission=perm("/sdn", "SDN.Allocate")),
    ApiRoute("GET", _BASE, list_zones, permission=anyone),
    ApiRoute("POST", _BASE, create_zone, permission=_ALLOCATE),
    ApiRoute("GET", _ONE, get_zone, permission=_EDIT),
    ApiRoute("PUT", _ONE, update_zone, permission=_EDIT),
    ApiRoute("DELETE", _ONE, delete_zone, permission=_EDIT),
    *plain_routes("ipams", "ipam"),
    *plain_routes("dns", "dns"),
    ApiRoute("GET", "/cluster/sdn/ipams/{ipam}/status", ipam_status, permission=anyone),
)
