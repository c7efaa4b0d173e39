"""``/cluster`` endpoints: status, nextid, datacenter options, log, tasks, and ``/version``."""

import hashlib
from typing import Any

from moxwell.lab.proxmox import datacenter_options
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die, param_error
from moxwell.lab.proxmox.qemu import tags
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, by_schema, perm
from moxwell.lab.proxmox.state import Row, SimRegion


def status(call: PveCall) -> list[Row]:
    region, rows = call.region, []
    if region.cluster:
        rows.append(
            {
                "id": "cluster",
                "type": "cluster",
                "name": region.cluster,
                "nodes": len(region.hosts),
                "quorate": int(quorate(region)),
                "version": region.config_version,
            }
        )
    for host in region.hosts.values():
        rows.append(
            {
                "id": f"node/{host.name}",
                "type": "node",
                "name": host.name,
                "nodeid": host.nodeid if region.cluster else 0,
                "ip": host.address.partition("/")[0],
                "online": int(host.online),
                "local": int(host.name == call.node),
                "level": "",
            }
        )
    return rows


def quorate(region: SimRegion) -> bool:
    online = sum(host.online for host in region.hosts.values())
    return online * 2 > len(region.hosts)


def next_id(call: PveCall) -> str:
    region = call.region
    if "vmid" in call.params:
        vmid = call.params["vmid"]
        if vmid in region.guests:
            raise param_error({"vmid": f"VM {vmid} already exists"})
        return str(vmid)
    lower, upper = datacenter_options.vmid_range(region)
    for vmid in range(lower, upper):
        if vmid not in region.guests:
            return str(vmid)
    raise die(f"unable to get any free VMID in range [{lower}, {upper}]")


_PUBLIC_OPTIONS = ("console", "tag-style")


def get_options(call: PveCall) -> Row:
    options = datacenter_options.read(call.region)
    if not call.has_privileges("/", "Sys.Audit"):
        options = {name: options[name] for name in _PUBLIC_OPTIONS if name in options}
    return options | {"allowed-tags": sorted(tags.choose(call).allowed)}


def set_options(call: PveCall) -> None:
    deleted = formats.split_list(call.params.pop("delete", ""))
    datacenter_options.write(call.region, call.params, deleted)


def log(call: PveCall) -> list[Row]:
    rows = call.region.cluster_log[-int(call.get("max", 50)) :]
    if not call.has_privileges("/", "Sys.Syslog"):
        rows = [row for row in rows if row.get("user") == call.authid]
    return list(reversed(rows))


def config_nodes(call: PveCall) -> list[Row]:
    if not call.region.cluster:
        return []
    return [
        {
            "node": host.name,
            "name": host.name,
            "nodeid": str(host.nodeid),
            "ring0_addr": host.address.partition("/")[0],
            "quorum_votes": "1",
        }
        for host in call.region.hosts.values()
    ]


def _totem(region: SimRegion) -> Row:
    """The totem section of corosync.conf."""
    return {
        "cluster_name": region.cluster,
        "config_version": str(region.config_version),
        "interface": {"0": {"linknumber": "0"}},
        "ip_version": "ipv4-6",
        "link_mode": "passive",
        "secauth": "on",
        "version": "2",
    }


def totem(call: PveCall) -> Row:
    """GET config/totem: empty on a node without a cluster."""
    return _totem(call.region) if call.region.cluster else {}


def qdevice(call: PveCall) -> Row:
    """GET config/qdevice: no region has one."""
    return {}


def join_api_version(call: PveCall) -> int:
    return 1


def join_information(call: PveCall) -> Row:
    """GET config/join: what a new node needs."""
    region = call.region
    if not region.cluster:
        raise PveException(424, "node is not in a cluster, no join info available!")
    nodes = [
        {
            "name": host.name,
            "nodeid": str(host.nodeid),
            "pve_addr": host.address.partition("/")[0],
            "pve_fp": hashlib.sha256(host.name.encode()).digest().hex(":").upper(),
            "quorum_votes": "1",
            "ring0_addr": host.address.partition("/")[0],
        }
        for host in region.hosts.values()
    ]
    totem = _totem(region)
    return {
        "config_digest": digest_of(region.config_version),
        "nodelist": nodes,
        "preferred_node": call.get("node") or call.node,
        "totem": totem,
    }


def version(call: PveCall) -> Row:
    region = call.region
    return {"version": region.version, "release": region.release, "repoid": region.repoid}


def digest_of(value: Any) -> str:
    """A digest of a value; for an empty value, the digest of an empty file."""
    text = "" if not value else repr(value)
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


ROUTES = (
    ApiRoute("GET", "/version", version, permission=anyone),
    ApiRoute("GET", "/cluster/status", status, permission=perm("/", "Sys.Audit")),
    ApiRoute(
        "GET",
        "/cluster/nextid",
        next_id,
        permission=anyone,
    ),
    ApiRoute("GET", "/cluster/options", get_options, permission=anyone),
    ApiRoute(
        "PUT",
        "/cluster/options",
        set_options,
        permission=perm("/", "Sys.Modify"),
    ),
    ApiRoute("GET", "/cluster/log", log, permission=anyone),
    ApiRoute("GET", "/cluster/config/totem", totem, permission=by_schema),
    ApiRoute("GET", "/cluster/config/qdevice", qdevice, permission=by_schema),
    ApiRoute("GET", "/cluster/config/apiversion", join_api_version, permission=by_schema),
    ApiRoute("GET", "/cluster/config/nodes", config_nodes, permission=perm("/", "Sys.Audit")),
    ApiRoute(
        "GET",
        "/cluster/config/join",
        join_information,
        permission=perm("/", "Sys.Audit"),
        proxy=False,
    ),
)
