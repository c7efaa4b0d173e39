"""Firewall endpoints per scope: options, rules, aliases, IP sets, security groups, references."""

from collections.abc import Iterable

from moxwell.lab.proxmox.config_schema.formats import split_list
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.firewall import rules
from moxwell.lab.proxmox.firewall.formats import MACROS
from moxwell.lab.proxmox.firewall.macro_descriptions import DESCRIPTIONS
from moxwell.lab.proxmox.firewall.scopes import (
    CLUSTER,
    CT,
    HOST,
    SECURITY_GROUP,
    VM,
    VNET,
    FirewallScope,
    check_digest,
    digest,
    with_digest,
)
from moxwell.lab.proxmox.firewall.sets import set_routes
from moxwell.lab.proxmox.request_context import PagedList, PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.state import Row


def _list_rules(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        firewall = scope.find(call)
        shown = [rules.as_read(call.region, firewall, rule) for rule in firewall.rules]
        return with_digest([{"pos": n, **rule} for n, rule in enumerate(shown)], firewall.rules)

    return handler


def _get_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        firewall, pos = scope.find(call), call.params["pos"]
        rule = rules.as_read(call.region, firewall, rules.at(firewall.rules, pos))
        return {**rule, "pos": str(pos), "digest": digest(firewall.rules)}

    return handler


def _create_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall = scope.find(call)
        firewall.rules.insert(0, rules.make(call.region, scope.env, firewall, call.params))

    return handler


def _update_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall, pos = scope.find(call), call.params["pos"]
        check_digest(call, digest(firewall.rules))
        old = rules.at(firewall.rules, pos)
        if call.params.get("moveto", pos) != pos:
            firewall.rules[:] = rules.move(firewall.rules, pos, call.params["moveto"])
            return
        values = rules.changed(old, call.params)
        firewall.rules[pos] = rules.make(call.region, scope.env, firewall, values)

    return handler


def _delete_rule(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall = scope.find(call)
        check_digest(call, digest(firewall.rules))
        rules.at(firewall.rules, call.params["pos"])
        del firewall.rules[call.params["pos"]]

    return handler


def rule_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    base, one = scope.path + scope.rules_path, f"{scope.path}{scope.rules_path}/{{pos}}"
    for method, path, handler, check in (
        ("GET", base, _list_rules(scope), scope.read),
        ("POST", base, _create_rule(scope), scope.write),
        ("GET", one, _get_rule(scope), scope.read),
        ("PUT", one, _update_rule(scope), scope.write),
        ("DELETE", one, _delete_rule(scope), scope.write),
    ):
        yield ApiRoute(method, path, handler, permission=check, version=scope.since)


# ---------------------------------------------------------------- options

_OWN = frozenset({"delete", "digest", "node", "vmid", "vnet"})


def _known_options(call: PveCall, scope: FirewallScope) -> frozenset[str]:
    """The options of a scope, from the schema."""
    facts = catalog(call.major).find("PUT", f"{scope.path}/options")
    return frozenset(facts.params if facts else ()) - _OWN


def _get_options(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        options = scope.find(call).options
        return {**options, "digest": digest(options)}

    return handler


def _set_options(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        options, known = scope.find(call).options, _known_options(call, scope)
        check_digest(call, digest(options))
        deleted = split_list(call.params.get("delete", ""))
        for name in deleted:
            if name not in known:
                raise param_error({"delete": f"no such option '{name}'"})
        for name in deleted:
            options.pop(name, None)
        options.update({k: v for k, v in call.params.items() if k in known})

    return handler


def option_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    path = f"{scope.path}/options"
    since = scope.since
    yield ApiRoute("GET", path, _get_options(scope), permission=scope.read, version=since)
    yield ApiRoute("PUT", path, _set_options(scope), permission=scope.write, version=since)


def _log(call: PveCall) -> PagedList:
    """The log of the firewall; no packet is logged."""
    return PagedList([{"n": 1, "t": "no content"}], total=1)


def log_route(scope: FirewallScope) -> ApiRoute:
    permission = perm("/nodes/{node}", "Sys.Syslog")
    if scope.env != "host":
        permission = perm("/vms/{vmid}", "VM.Console")
    return ApiRoute("GET", f"{scope.path}/log", _log, permission=permission)


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
    if "rename" in call.params:
        _rename_group(call, call.params["rename"], name)
        return
    if name in groups:
        raise param_error({"group": f"Security group '{name}' already exists"})
    groups[name] = {"comment": call.get("comment"), "rules": []}


def _rename_group(call: PveCall, old: str, name: str) -> None:
    """Rename a group, or change its comment; the rules that name it follow."""
    groups, region = call.region.firewall.groups, call.region
    check_digest(call, digest(groups))
    if old not in groups:
        raise param_error({"group": f"Security group '{old}' does not exist"})
    if name != old and name in groups:
        raise param_error({"group": f"Security group '{name}' does already exist"})
    groups[name] = groups.pop(old)
    if "comment" in call.params:
        groups[name]["comment"] = call.params["comment"]
    files = [region.firewall, *(host.firewall for host in region.hosts.values())]
    for file in (*files, *(guest.firewall for guest in region.guests.values())):
        for rule in file.rules:
            if rule["type"] == "group" and rule["action"] == old:
                rule["action"] = name


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
                ref = {"type": "ipset", "name": name, "ref": f"+{name}", "scope": prefix}
                rows.append(ref | ({"comment": row["comment"]} if row.get("comment") else {}))
            for row in file.aliases.values() if requested in {None, "alias"} else ():
                ref = {"type": "alias", "name": row["name"], "ref": row["name"]}
                rows.append(ref | {"scope": prefix})
        return rows

    return handler


def list_macros(call: PveCall) -> list[Row]:
    return [{"macro": name, "descr": DESCRIPTIONS.get(name, name)} for name in MACROS]


def _ref_route(scope: FirewallScope) -> ApiRoute:
    return ApiRoute("GET", f"{scope.path}/refs", _refs(scope), permission=scope.read)


_GROUPS = "/cluster/firewall/groups"
ROUTES = (
    *(r for scope in (CLUSTER, HOST, VM, CT, SECURITY_GROUP, VNET) for r in rule_routes(scope)),
    *(route for scope in (CLUSTER, HOST, VM, CT, VNET) for route in option_routes(scope)),
    *(route for scope in (CLUSTER, VM, CT) for route in set_routes(scope)),
    *(_ref_route(scope) for scope in (CLUSTER, VM, CT)),
    *(log_route(scope) for scope in (HOST, VM, CT)),
    ApiRoute("GET", "/cluster/firewall/macros", list_macros, permission=anyone),
    ApiRoute("GET", _GROUPS, list_groups, permission=anyone),
    ApiRoute("POST", _GROUPS, create_group, permission=CLUSTER.write),
    ApiRoute("DELETE", f"{_GROUPS}/{{group}}", delete_group, permission=CLUSTER.write),
)
