"""Firewall endpoints per scope: options, rules, aliases, IP sets, security groups, references."""

from collections.abc import Iterable

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
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler, Param
from moxwell.lab.proxmox.route_permissions import anyone
from moxwell.lab.proxmox.state import Row

_POS = {"pos": Param("integer", minimum=0)}


def _list_rules(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        found = scope.find(call).rules
        return with_digest([{"pos": n, **rule} for n, rule in enumerate(found)], found)

    return handler


def _get_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        found, pos = scope.find(call).rules, call.params["pos"]
        return {**rules.at(found, pos), "pos": str(pos), "digest": digest(found)}

    return handler


def _create_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall = scope.find(call)
        check_digest(call, digest(firewall.rules))
        firewall.rules.insert(0, rules.make(call.region, scope.env, firewall, call.params))

    return handler


def _update_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall, pos = scope.find(call), call.params["pos"]
        old = rules.at(firewall.rules, pos)
        check_digest(call, digest(firewall.rules))
        if call.params.get("moveto", pos) != pos:
            firewall.rules[:] = rules.move(firewall.rules, pos, call.params["moveto"])
            return
        values = rules.changed(old, call.params)
        firewall.rules[pos] = rules.make(call.region, scope.env, firewall, values)

    return handler


def _delete_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall = scope.find(call)
        rules.at(firewall.rules, call.params["pos"])
        check_digest(call, digest(firewall.rules))
        del firewall.rules[call.params["pos"]]

    return handler


def rule_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    base = scope.path + scope.rules_path
    one = {**scope.params, **_POS}
    yield ApiRoute("GET", base, _list_rules(scope), scope.params, scope.read)
    yield ApiRoute("POST", base, _create_rule(scope), scope.params | rules.NEW, scope.write)
    yield ApiRoute("GET", base + "/{pos}", _get_rule(scope), one, scope.read)
    yield ApiRoute("PUT", base + "/{pos}", _update_rule(scope), one | rules.CHANGE, scope.write)
    yield ApiRoute(
        "DELETE", base + "/{pos}", _delete_rule(scope), {**one, "digest": Param()}, scope.write
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


def _get_options(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        options = scope.find(call).options
        return {**options, "digest": digest(options)}

    return handler


def _set_options(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        options, known = scope.find(call).options, OPTIONS[scope.env]
        check_digest(call, digest(options))
        for name in split_list(call.params.get("delete", "")):
            if name not in known:
                raise param_error({"delete": f"no such option '{name}'"})
            options.pop(name, None)
        options.update({k: v for k, v in call.params.items() if k in known})

    return handler


def option_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    path = f"{scope.path}/options"
    params = {**scope.params, **OPTIONS[scope.env], "delete": Param(), "digest": Param()}
    yield ApiRoute("GET", path, _get_options(scope), scope.params, scope.read)
    yield ApiRoute("PUT", path, _set_options(scope), params, scope.write)


# ---------------------------------------------------------------- groups, references, macros


def list_groups(call: PveCall) -> list[Row]:
    groups = call.region.firewall.groups
    rows = [
        {"group": name} | ({"comment": g["comment"]} if g.get("comment") is not None else {})
        for name, g in groups.items()
    ]
    return with_digest(rows, groups)


def create_group(call: PveCall) -> None:
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


def delete_group(call: PveCall) -> None:
    groups, name = call.region.firewall.groups, call.params["group"]
    if name not in groups:
        raise die(f"no such security group '{name}'")
    if groups[name]["rules"]:
        raise die(f"Security group '{name}' is not empty")
    del groups[name]


def _refs(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        requested, rows = call.get("type"), []
        files = [("dc", CLUSTER.find(call))]
        if scope.env in {"vm", "ct"}:
            files.append(("guest", scope.find(call)))
        for prefix, file in files:
            for name, row in file.ipsets.items() if requested in {None, "ipset"} else ():
                ref = {"type": "ipset", "name": name, "ref": f"+{prefix}/{name}", "scope": prefix}
                rows.append(ref | ({"comment": row["comment"]} if row.get("comment") else {}))
            for row in file.aliases.values() if requested in {None, "alias"} else ():
                ref = {"type": "alias", "name": row["name"], "ref": f"{prefix}/{row['name']}"}
                rows.append(ref | {"scope": prefix})
        return rows

    return handler


def list_macros(call: PveCall) -> list[Row]:
    return [{"macro": name, "descr": f"{name} traffic"} for name in MACROS]


def _ref_route(scope: FirewallScope) -> ApiRoute:
    params = {**scope.params, "type": Param(enum=("alias", "ipset"))}
    return ApiRoute("GET", f"{scope.path}/refs", _refs(scope), params, scope.read)


_RENAME = Param(pattern=NAME, min_length=2, max_length=18)
ROUTES = (
    *(route for scope in (CLUSTER, HOST, VM, CT, SECURITY_GROUP) for route in rule_routes(scope)),
    *(route for scope in (CLUSTER, HOST, VM, CT) for route in option_routes(scope)),
    *(route for scope in (CLUSTER, VM, CT) for route in set_routes(scope)),
    *(_ref_route(scope) for scope in (CLUSTER, VM, CT)),
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
