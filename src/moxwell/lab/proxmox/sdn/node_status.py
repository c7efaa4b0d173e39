"""``/nodes/{node}/sdn``: zones with their VNets; on 9 also bridges, and routes of EVPN zones."""

from moxwell.lab.proxmox.config_schema import devices, formats
from moxwell.lab.proxmox.errors import bad_params
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, by_schema, perm
from moxwell.lab.proxmox.sdn.vnets import check_vnet
from moxwell.lab.proxmox.state import Row, SimGuest

_LOCAL = "localnetwork"


def sdn_zones(call: PveCall) -> list[Row]:
    zones = [_LOCAL, *call.region.sdn.running.get("zones", {})]
    privs = ("SDN.Audit", "SDN.Allocate")
    return [
        {"zone": zone, "status": "available"}
        for zone in zones
        if call.has_privileges(f"/sdn/zones/{zone}", *privs, any_of=True)
    ]


def sdn_zone_content(call: PveCall) -> list[Row]:
    zone = call.params["zone"]
    if zone == _LOCAL:
        names = [n for n, row in call.host.bridges.items() if row["type"] == "bridge"]
    else:
        vnets = call.region.sdn.running.get("vnets", {})
        names = [n for n, row in vnets.items() if row["zone"] == zone]
    return [{"vnet": name, "status": "available"} for name in names]


def bridges(call: PveCall) -> list[Row]:
    """GET zones/ZONE/bridges: the bridges of a node with their ports."""
    zone, running = call.params["zone"], call.region.sdn.running
    if zone == _LOCAL:
        names = [n for n, row in call.host.bridges.items() if row["type"] == "bridge"]
    else:
        if zone not in running.get("zones", {}):
            raise bad_params(zone="zone does not exist")
        names = [n for n, row in running.get("vnets", {}).items() if row["zone"] == zone]
    see = ("SDN.Audit", "SDN.Allocate")
    return [
        {"name": name, "vlan_filtering": _filtering(call, name), "ports": _ports(call, name)}
        for name in names
        if call.has_privileges(f"/sdn/zones/{zone}/{name}", *see, any_of=True)
    ]


def _filtering(call: PveCall, name: str) -> int:
    """Whether a bridge is aware of VLANs."""
    vnet = call.region.sdn.running.get("vnets", {}).get(name, {})
    local = call.host.bridges.get(name, {})
    return int(bool(vnet.get("vlanaware") or local.get("bridge_vlan_aware")))


def _ports(call: PveCall, name: str) -> list[Row]:
    """The devices of a bridge: its own, and the network devices of running guests."""
    own = formats.split_list(str(call.host.bridges.get(name, {}).get("bridge_ports") or ""))
    found: list[Row] = [{"name": port} for port in own]
    for guest in call.region.guests.values():
        if guest.running and guest.node == call.node:
            found += _guest_ports(guest, name)
    return found


def _guest_ports(guest: SimGuest, bridge: str) -> list[Row]:
    prefix = "tap" if guest.kind == "qemu" else "veth"
    return [
        {"name": f"{prefix}{guest.vmid}i{key[3:]}", "index": key, "vmid": guest.vmid}
        for key, value in guest.live.items()
        if key.startswith("net")
        and key[3:].isdigit()
        and devices.read(devices.NET, str(value)).get("bridge") == bridge
    ]


def zone_routes(call: PveCall) -> list[Row]:
    """GET zones/ZONE/ip-vrf: no route is learned."""
    zone = call.region.sdn.running.get("zones", {}).get(call.params["zone"])
    if zone is None:
        raise bad_params(zone="zone does not exist")
    if zone["type"] != "evpn":
        raise bad_params(zone="zone is not an EVPN zone")
    nodes = formats.split_list(str(zone.get("nodes") or ""))
    if nodes and call.node not in nodes:
        raise bad_params(zone=f"zone does not exist on node {call.node}")
    return []


def vnet_routes(call: PveCall) -> list[Row]:
    """GET vnets/VNET/mac-vrf: no route is learned."""
    name, running = call.params["vnet"], call.region.sdn.running
    check_vnet(call, name, "SDN.Audit")
    vnet = running.get("vnets", {}).get(name)
    if vnet is None:
        raise bad_params(vnet="vnet does not exist")
    zone = running.get("zones", {}).get(vnet["zone"])
    if zone is None:
        raise bad_params(zone=f"zone {vnet['zone']} does not exist")
    if zone["type"] != "evpn":
        raise bad_params(zone=f"zone {vnet['zone']} is not an EVPN zone.")
    nodes = formats.split_list(str(zone.get("nodes") or ""))
    if nodes and call.node not in nodes:
        text = f"zone {vnet['zone']} of vnet {name} does not exist on node {call.node}"
        raise bad_params(zone=text)
    return []


def _sdn_index(call: PveCall) -> list[Row]:
    names = ("fabrics", "vnets", "zones") if call.major >= 9 else ("zones",)
    return [{"name": name} for name in names]


def _zone_index(call: PveCall) -> list[Row]:
    new = ("bridges", "ip-vrf") if call.major >= 9 else ()
    return [{"subdir": name} for name in ("content", *new)]


_SDN = "/nodes/{node}/sdn"
_ZONE = perm("/sdn/zones/{zone}", "SDN.Audit")
ROUTES = (
    ApiRoute("GET", _SDN, _sdn_index, permission=anyone),
    ApiRoute("GET", f"{_SDN}/zones", sdn_zones, permission=anyone),
    ApiRoute("GET", f"{_SDN}/zones/{{zone}}", _zone_index, permission=_ZONE),
    ApiRoute("GET", f"{_SDN}/zones/{{zone}}/content", sdn_zone_content, permission=_ZONE),
    ApiRoute("GET", f"{_SDN}/zones/{{zone}}/bridges", bridges, permission=by_schema, version=9),
    ApiRoute("GET", f"{_SDN}/zones/{{zone}}/ip-vrf", zone_routes, permission=by_schema, version=9),
    ApiRoute("GET", f"{_SDN}/vnets/{{vnet}}/mac-vrf", vnet_routes, permission=by_schema, version=9),
)
