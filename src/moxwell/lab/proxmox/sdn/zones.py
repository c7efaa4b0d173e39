"""
``/cluster/sdn``: zones, controllers, IPAMs and DNS.

Changes are pending until ``PUT /cluster/sdn``; only then nodes list the zones and vnets become
bridges. Identifiers are validated by schema on 9 and by code with other messages on 8.
"""

import copy
import re
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.params import DIGEST
from moxwell.lab.proxmox.errors import FormatError, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Check, Checker, Handler, Param, Params
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.sdn import ipam as sdn_ipam
from moxwell.lab.proxmox.state import Row
from moxwell.lab.proxmox.tasks import WorkerContext

ZONES = ("evpn", "faucet", "qinq", "simple", "vlan", "vxlan")
REQUIRED = {
    "vlan": ("bridge",),
    "qinq": ("bridge", "tag"),
    "vxlan": ("peers",),
    "evpn": ("controller", "vrf-vxlan"),
    "simple": (),
    "faucet": ("controller", "dp-id"),
}


def short_id(error_prefix: str) -> Checker:
    """Identifiers of zones and vnets on 8.x."""

    def check(value: str) -> None:
        if not re.match(r"^[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]$", value):
            raise FormatError(f"{error_prefix} ID '{value}' contains illegal characters\n")
        if len(value) > 8:
            raise FormatError(
                f"{error_prefix} ID '{value}' can't be more length than 8 characters\n"
            )

    return check


def id_param(error_prefix: str, major: int) -> Param:
    if major >= 9:
        return Param(
            optional=False, pattern=r"[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]", min_length=2, max_length=8
        )
    return Param(optional=False, format=short_id(error_prefix))


def by_version(
    method: str, path: str, handler: Handler, params: Params, check: Check, name: str
) -> tuple[ApiRoute, ...]:
    """
    The same endpoint for both major versions, with the identifier ``name`` validated for each.
    """
    eight = {**params, name: id_param(name, 8)}
    nine = {**params, name: id_param(name, 9)}
    return (
        ApiRoute(method, path, handler, eight, check, until=8),
        ApiRoute(method, path, handler, nine, check, version=9),
    )


def object_row(call: PveCall, kind: str, ident: str, key: str) -> Row | None:
    """One object: as configured (default), running, or with pending changes."""
    edited: dict[str, Row] = getattr(call.region.sdn, kind)
    running = call.region.sdn.running.get(kind, {})
    if call.get("running"):
        return {key: ident, **running[ident]} if ident in running else None
    if call.get("pending"):
        return pending_row(key, ident, edited.get(ident), running.get(ident))
    if ident not in edited:
        return None
    return {key: ident, "digest": digest_of(edited), **edited[ident]}


def pending_row(key: str, ident: str, new: Row | None, old: Row | None) -> Row | None:
    if new is None and old is None:
        return None
    row: Row = {key: ident, "digest": None, "type": (new or old or {}).get("type")}
    if new is None or old is None:
        only = {k: v for k, v in (new or old or {}).items() if k != "type"}
        if new is None:
            return row | only | {"state": "deleted", "pending": {}}
        return row | {"state": "new", "pending": only}
    changed = {k: v for k, v in new.items() if old.get(k) != v}
    changed |= {k: "deleted" for k in old if k not in new}
    row |= old
    return row | ({"state": "changed", "pending": changed} if changed else {})


def listing(call: PveCall, kind: str, key: str) -> list[Row]:
    sdn = call.region.sdn
    names = dict.fromkeys([*getattr(sdn, kind), *sdn.running.get(kind, {})])
    rows = [object_row(call, kind, name, key) for name in names]
    return [row for row in rows if row is not None]


# ---------------------------------------------------------------- zones


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
    for option in REQUIRED[call.params["type"]]:
        if option not in call.params:
            raise die(f"missing value for required option '{option}'")
    error_prefix = "create sdn zone object failed: "
    if name in zones:
        raise die(f"{error_prefix}sdn zone object ID '{name}' already defined")
    _check_services(call, call.params, error_prefix)
    zones[name] = dict(call.params)


def _check_services(call: PveCall, row: Row, error_prefix: str) -> None:
    """Check the references of a zone; PVE reports a 400 inside a 500."""
    sdn, nested = call.region.sdn, f"{error_prefix}400 Parameter verification failed.\n"
    for option in ("dns", "reversedns"):
        if option in row and row[option] not in sdn.dns:
            raise die(f"{nested}{option}: {row[option]} don't exist")
    if "dnszone" in row and "dns" not in row:
        raise die(f"{nested}dnszone: missing dns server")
    if "ipam" in row and row["ipam"] not in sdn.ipams:
        raise die(f"{nested}ipam: {row['ipam']} not existing")


def update_zone(call: PveCall) -> None:
    error_prefix, zones = "update sdn zone object failed: ", call.region.sdn.zones
    name = call.params.pop("zone")
    if name not in zones:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    _check_services(call, zones[name] | call.params, error_prefix)
    change(call, zones[name], digest_of(zones), error_prefix)


def change(call: PveCall, row: Row, digest: str, error_prefix: str) -> None:
    call.params.pop("lock-token", None)
    if call.params.pop("digest", digest) != digest:
        raise die(
            f"{error_prefix}detected modified configuration - "
            "file changed by other user? Try again."
        )
    for option in formats.split_list(call.params.pop("delete", "")):
        row.pop(option, None)
    row.update(call.params)


def delete_zone(call: PveCall) -> None:
    error_prefix, name, sdn = (
        "delete sdn zone object failed: ",
        call.params["zone"],
        call.region.sdn,
    )
    if name not in sdn.zones:
        raise die(f"{error_prefix}sdn '{name}' does not exist")
    for vnet, row in sdn.vnets.items():
        if row["zone"] == name:
            where = "at /usr/share/perl5/PVE/Network/SDN/Zones/Plugin.pm line 159."
            raise die(f"{error_prefix}zone {name} is used by vnet {vnet} {where}")
    del sdn.zones[name]


# ---------------------------------------------------------------- apply


def apply(call: PveCall) -> str:
    sdn = call.region.sdn
    for kind in ("zones", "vnets", "subnets", "controllers"):
        sdn.running[kind] = copy.deepcopy(getattr(sdn, kind))
    sdn.version += 1

    async def worker(ctx: WorkerContext) -> None:
        for host in call.region.hosts.values():
            if host.online:
                ctx.log(f"{host.name}: reloading network config")

    return call.spawn("reloadnetworkall", "", worker)


# ---------------------------------------------------------------- controllers, ipams, dns


def _plain(kind: str, key: str) -> dict[str, Handler]:
    """CRUD handlers of objects without further checks."""

    def found(call: PveCall) -> dict[str, Row]:
        rows: dict[str, Row] = getattr(call.region.sdn, kind)
        return rows

    def everything(call: PveCall) -> list[Row]:
        rows = found(call)
        stamp = digest_of({k: v for k, v in rows.items() if k != "pve"})
        return [{key: name, "digest": stamp, **row} for name, row in rows.items()]

    def get(call: PveCall) -> Row:
        rows, name = found(call), call.params[key]
        if name not in rows:
            raise die(f"sdn '{name}' does not exist")
        return {key: name, "digest": digest_of(rows), **rows[name]}

    def create(call: PveCall) -> None:
        rows, name = found(call), call.params.pop(key)
        call.params.pop("lock-token", None)
        if name in rows:
            text = f"sdn {key} object ID '{name}' already defined"
            raise die(f"create sdn {key} object failed: {text}")
        rows[name] = dict(call.params)

    def update(call: PveCall) -> None:
        rows, name = found(call), call.params.pop(key)
        error_prefix = f"update sdn {key} object failed: "
        if name not in rows:
            raise die(f"{error_prefix}sdn '{name}' does not exist")
        change(call, rows[name], digest_of(rows), error_prefix)

    def delete(call: PveCall) -> None:
        rows, name = found(call), call.params[key]
        if name not in rows:
            raise die(f"delete sdn {key} object failed: sdn '{name}' does not exist")
        del rows[name]

    return {"LIST": everything, "GET": get, "POST": create, "PUT": update, "DELETE": delete}


def _plain_routes(kind: str, key: str, types: tuple[str, ...], fields: Params) -> list[ApiRoute]:
    made, base = _plain(kind, key), f"/cluster/sdn/{kind}"
    one: dict[str, Param] = {key: Param(optional=False, format=formats.config_id)}
    lock = {"lock-token": Param(version=9)}
    new = one | dict(fields) | lock | {"type": Param(optional=False, enum=types)}
    has_privileges = perm(f"/sdn/{kind}", "SDN.Allocate")
    read = {"pending": Param("boolean"), "running": Param("boolean"), "type": Param(enum=types)}
    edit = one | dict(fields) | lock | {"delete": Param(), "digest": DIGEST}
    return [
        ApiRoute("GET", base, made["LIST"], read, anyone),
        ApiRoute("POST", base, made["POST"], new, has_privileges),
        ApiRoute("GET", f"{base}/{{{key}}}", made["GET"], one, has_privileges),
        ApiRoute("PUT", f"{base}/{{{key}}}", made["PUT"], edit, has_privileges),
        ApiRoute("DELETE", f"{base}/{{{key}}}", made["DELETE"], one | lock, has_privileges),
    ]


def ipam_status(call: PveCall) -> list[Row]:
    if call.params["ipam"] != "pve":
        raise die("Currently only PVE IPAM is supported!")
    sdn_ipam.update_allocations(call.region)
    return [
        row
        for row in call.region.sdn.addresses
        if call.has_privileges(
            f"/sdn/zones/{row['zone']}/{row['vnet']}", "SDN.Audit", "SDN.Use", any_of=True
        )
    ]


_TEXT, _INT, _BOOL = Param(), Param("integer"), Param("boolean")
_ZONE: dict[str, Any] = {
    **dict.fromkeys(("bridge", "controller", "dns", "ipam", "reversedns", "peers", "mac"), _TEXT),
    **dict.fromkeys(("exitnodes", "exitnodes-primary", "rt-import", "fabric"), _TEXT),
    **dict.fromkeys(("mtu", "dp-id", "vxlan-port"), _INT),
    **dict.fromkeys(("advertise-subnets", "bridge-disable-mac-learning"), _BOOL),
    **dict.fromkeys(("disable-arp-nd-suppression", "exitnodes-local-routing"), _BOOL),
    "tag": Param("integer", minimum=0),
    "vrf-vxlan": Param("integer", minimum=1, maximum=16777215),
    "vlan-protocol": Param(enum=("802.1q", "802.1ad")),
    "dhcp": Param(enum=("dnsmasq",)),
    "dnszone": Param(format=formats.dns_name),
    "nodes": Param(format=formats.listed(formats.node)),
    "lock-token": Param(version=9),
}
_VIEW = {"pending": _BOOL, "running": _BOOL}
_EDIT = {"delete": Param(), "digest": DIGEST}
_KIND = {"type": Param(optional=False, enum=ZONES)}
_ALLOCATE, _ONE = perm("/sdn/zones", "SDN.Allocate"), perm("/sdn/zones/{zone}", "SDN.Allocate")
_PATH = "/cluster/sdn/zones/{zone}"
_LOCK = {"lock-token": Param(version=9)}

ROUTES = (
    ApiRoute(
        "PUT", "/cluster/sdn", apply, _LOCK | {"release-lock": Param("boolean", version=9)},
        perm("/sdn", "SDN.Allocate"),
    ),
    ApiRoute("GET", "/cluster/sdn/zones", list_zones, _VIEW | {"type": Param(enum=ZONES)}, anyone),
    *by_version("POST", "/cluster/sdn/zones", create_zone, _ZONE | _KIND, _ALLOCATE, "zone"),
    *by_version("GET", _PATH, get_zone, _VIEW, _ONE, "zone"),
    *by_version("PUT", _PATH, update_zone, _ZONE | _EDIT, _ONE, "zone"),
    *by_version("DELETE", _PATH, delete_zone, _LOCK, _ONE, "zone"),
    *_plain_routes(
        "controllers", "controller", ("bgp", "evpn", "faucet", "isis"),
        {
            **dict.fromkeys(("peers", "node", "loopback", "isis-domain", "isis-ifaces"), _TEXT),
            "isis-net": _TEXT, "fabric": Param(version=9),
            "asn": Param("integer", minimum=0, maximum=4294967296),
            "ebgp": _BOOL, "ebgp-multihop": _INT, "bgp-multipath-as-path-relax": _BOOL,
        },
    ),
    *_plain_routes(
        "ipams", "ipam", ("netbox", "phpipam", "pve"),
        {"url": _TEXT, "token": _TEXT, "section": _INT, "fingerprint": _TEXT},
    ),
    *_plain_routes(
        "dns", "dns", ("powerdns",),
        {"url": _TEXT, "key": _TEXT, "ttl": _INT, "fingerprint": _TEXT, "reversemaskv6": _INT},
    ),
    ApiRoute(
        "GET", "/cluster/sdn/ipams/{ipam}/status", ipam_status,
        {"ipam": Param(optional=False, format=formats.config_id)}, anyone,
    ),
)  # fmt: skip
