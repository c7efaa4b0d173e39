"""Firewall endpoints per scope: options, rules, aliases, IP sets, security groups, references."""

from collections.abc import Callable, Iterable
from typing import Any

from moxwell.lab.proxmox.config_schema.formats import split_list
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.firewall import rules
from moxwell.lab.proxmox.firewall.formats import LOG_LEVELS, MACROS, NAME
from moxwell.lab.proxmox.firewall.scopes import (
    CLUSTER,
    CT,
    GROUP,
    HOST,
    SECURITY_GROUP,
    VM,
    FirewallScope,
    check_digest,
    digest,
    with_digest,
)
from moxwell.lab.proxmox.firewall.sets import set_routes
from moxwell.lab.proxmox.request_context import ApiCall
from moxwell.lab.proxmox.route import ApiRoute, Param
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import Row

Made = Callable[[ApiCall], Any]
_POS = {"pos": Param("integer", minimum=0)}


def _list_rules(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> list[Row]:
        found = place.find(call).rules
        return with_digest([{"pos": n, **rule} for n, rule in enumerate(found)], found)

    return handler


def _get_rule(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> Row:
        found, pos = place.find(call).rules, call.params["pos"]
        return {**rules.at(found, pos), "pos": str(pos), "digest": digest(found)}

    return handler


def _create_rule(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> None:
        firewall = place.find(call)
        check_digest(call, digest(firewall.rules))
        firewall.rules.insert(0, rules.make(call.region, place.env, firewall, call.params))

    return handler


def _update_rule(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> None:
        firewall, pos = place.find(call), call.params["pos"]
        old = rules.at(firewall.rules, pos)
        check_digest(call, digest(firewall.rules))
        if call.params.get("moveto", pos) != pos:
            firewall.rules[:] = rules.move(firewall.rules, pos, call.params["moveto"])
            return
        values = rules.changed(old, call.params)
        firewall.rules[pos] = rules.make(call.region, place.env, firewall, values)

    return handler


def _delete_rule(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> None:
        firewall = place.find(call)
        rules.at(firewall.rules, call.params["pos"])
        check_digest(call, digest(firewall.rules))
        del firewall.rules[call.params["pos"]]

    return handler


def rule_routes(place: FirewallScope) -> Iterable[ApiRoute]:
    base = place.path + place.rules_path
    one = {**place.params, **_POS}
    yield ApiRoute("GET", base, _list_rules(place), place.params, place.read)
    yield ApiRoute("POST", base, _create_rule(place), place.params | rules.NEW, place.write)
    yield ApiRoute("GET", base + "/{pos}", _get_rule(place), one, place.read)
    yield ApiRoute("PUT", base + "/{pos}", _update_rule(place), one | rules.CHANGE, place.write)
    yield ApiRoute(
        "DELETE", base + "/{pos}", _delete_rule(place), {**one, "digest": Param()}, place.write
    )


# ---------------------------------------------------------------- options

_POLICY = Param(enum=("ACCEPT", "REJECT", "DROP"))
_FORWARD = Param(enum=("ACCEPT", "DROP"))
_LEVEL = Param(enum=LOG_LEVELS)
_BOOL = Param("boolean")
_COUNT = Param("integer", minimum=0)
OPTIONS: dict[str, dict[str, Param]] = {
    "cluster": {
        "enable": _COUNT,
        "ebtables": _BOOL,
        "policy_in": _POLICY,
        "policy_out": _POLICY,
        "policy_forward": _FORWARD,
        "log_ratelimit": Param(),
    },
    "host": {
        **dict.fromkeys(("log_level_in", "log_level_out", "log_level_forward"), _LEVEL),
        **dict.fromkeys(("smurf_log_level", "tcp_flags_log_level"), _LEVEL),
        **dict.fromkeys(("enable", "ndp", "nftables", "nosmurfs", "tcpflags"), _BOOL),
        **dict.fromkeys(("log_nf_conntrack", "nf_conntrack_allow_invalid"), _BOOL),
        "protection_synflood": _BOOL,
        "protection_synflood_burst": _COUNT,
        "protection_synflood_rate": _COUNT,
        "nf_conntrack_helpers": Param(),
        "nf_conntrack_max": Param("integer", minimum=32768),
        "nf_conntrack_tcp_timeout_established": Param("integer", minimum=7875),
        "nf_conntrack_tcp_timeout_syn_recv": Param("integer", minimum=30, maximum=60),
    },
    "vm": {
        **dict.fromkeys(("enable", "dhcp", "ipfilter", "macfilter", "ndp", "radv"), _BOOL),
        **dict.fromkeys(("log_level_in", "log_level_out"), _LEVEL),
        **dict.fromkeys(("policy_in", "policy_out"), _POLICY),
    },
}
OPTIONS["ct"] = OPTIONS["vm"]


def _get_options(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> Row:
        options = place.find(call).options
        return {**options, "digest": digest(options)}

    return handler


def _set_options(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> None:
        options, known = place.find(call).options, OPTIONS[place.env]
        check_digest(call, digest(options))
        for name in split_list(call.params.get("delete", "")):
            if name not in known:
                raise param_error({"delete": f"no such option '{name}'"})
            options.pop(name, None)
        options.update({k: v for k, v in call.params.items() if k in known})

    return handler


def option_routes(place: FirewallScope) -> Iterable[ApiRoute]:
    path = f"{place.path}/options"
    params = {**place.params, **OPTIONS[place.env], "delete": Param(), "digest": Param()}
    yield ApiRoute("GET", path, _get_options(place), place.params, place.read)
    yield ApiRoute("PUT", path, _set_options(place), params, place.write)


# ---------------------------------------------------------------- groups, references, macros


def list_groups(call: ApiCall) -> list[Row]:
    groups = call.region.firewall.groups
    rows = [
        {"group": name} | ({"comment": g["comment"]} if g.get("comment") is not None else {})
        for name, g in groups.items()
    ]
    return with_digest(rows, groups)


def create_group(call: ApiCall) -> None:
    groups, name = call.region.firewall.groups, call.params["group"]
    check_digest(call, digest(groups))
    if "rename" in call.params:
        old = call.params["rename"]
        if old not in groups:
            raise param_error({"group": f"Security group '{old}' does not exist"})
        if name != old and name in groups:
            raise param_error({"group": f"Security group '{name}' does already exist"})
        group = groups.pop(old)
        groups[name] = group | ({"comment": c} if (c := call.get("comment")) else {})
        return
    if name in groups:
        raise param_error({"group": f"Security group '{name}' already exists"})
    groups[name] = {"comment": call.get("comment"), "rules": []}


def delete_group(call: ApiCall) -> None:
    groups, name = call.region.firewall.groups, call.params["group"]
    if name not in groups:
        raise die(f"no such security group '{name}'")
    if groups[name]["rules"]:
        raise die(f"Security group '{name}' is not empty")
    del groups[name]


def _refs(place: FirewallScope) -> Made:
    def handler(call: ApiCall) -> list[Row]:
        asked, rows = call.get("type"), []
        files = [("dc", CLUSTER.find(call))]
        if place.env in {"vm", "ct"}:
            files.append(("guest", place.find(call)))
        for scope, file in files:
            for name, row in file.ipsets.items() if asked in {None, "ipset"} else ():
                ref = {"type": "ipset", "name": name, "ref": f"+{scope}/{name}", "scope": scope}
                rows.append(ref | ({"comment": row["comment"]} if row.get("comment") else {}))
            for row in file.aliases.values() if asked in {None, "alias"} else ():
                ref = {"type": "alias", "name": row["name"], "ref": f"{scope}/{row['name']}"}
                rows.append(ref | {"scope": scope})
        return rows

    return handler


def list_macros(call: ApiCall) -> list[Row]:
    return [{"macro": name, "descr": f"{name} traffic"} for name in MACROS]


def _ref_route(place: FirewallScope) -> ApiRoute:
    params = {**place.params, "type": Param(enum=("alias", "ipset"))}
    return ApiRoute("GET", f"{place.path}/refs", _refs(place), params, place.read)


_RENAME = Param(pattern=NAME, min_length=2, max_length=18)
ROUTES = (
    *(route for place in (CLUSTER, HOST, VM, CT, SECURITY_GROUP) for route in rule_routes(place)),
    *(route for place in (CLUSTER, HOST, VM, CT) for route in option_routes(place)),
    *(route for place in (CLUSTER, VM, CT) for route in set_routes(place)),
    *(_ref_route(place) for place in (CLUSTER, VM, CT)),
    ApiRoute("GET", "/cluster/firewall/macros", list_macros, permission=anyone),
    ApiRoute("GET", "/cluster/firewall/groups", list_groups, permission=anyone),
    ApiRoute(
        "POST",
        "/cluster/firewall/groups",
        create_group,
        {"group": GROUP, "comment": Param(), "rename": _RENAME, "digest": Param(max_length=64)},
        CLUSTER.write,
    ),
    ApiRoute(
        "DELETE", "/cluster/firewall/groups/{group}", delete_group, {"group": GROUP}, CLUSTER.write
    ),
)
