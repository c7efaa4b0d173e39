"""IP sets and aliases of a firewall scope."""

from collections.abc import Iterable

from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.firewall.formats import (
    ALIAS,
    NAME,
    clean_cidr,
    ip_or_cidr,
    ip_or_cidr_or_alias,
)
from moxwell.lab.proxmox.firewall.scopes import FirewallScope, check_digest, digest, with_digest
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler, Param
from moxwell.lab.proxmox.state import Row, SimFirewall


def _sets(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        found = scope.find(call).ipsets
        rows = [
            {"name": name} | ({"comment": s["comment"]} if s.get("comment") is not None else {})
            for name, s in found.items()
        ]
        return with_digest(rows, found)

    return handler


def _create_set(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        sets, name = scope.find(call).ipsets, call.params["name"]
        check_digest(call, digest(sets))
        if "rename" in call.params:
            old = call.params["rename"]
            if old not in sets:
                raise param_error({"name": f"IPSet '{old}' does not exist"})
            if name != old and name in sets:
                raise param_error({"name": f"IPSet '{name}' does already exist"})
            sets[name] = sets.pop(old)
            if "comment" in call.params:
                sets[name]["comment"] = call.params["comment"]
            return
        if name in sets:
            raise param_error({"name": f"IPSet '{name}' already exists"})
        sets[name] = {"comment": call.get("comment"), "entries": {}}

    return handler


def _entries(firewall: SimFirewall, call: PveCall) -> dict[str, Row]:
    name = call.params["name"]
    if name not in firewall.ipsets:
        raise die(f"no such IPSet '{name}'")
    found: dict[str, Row] = firewall.ipsets[name]["entries"]
    return found


def _delete_set(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall, name = scope.find(call), call.params["name"]
        if _entries(firewall, call) and not call.get("force"):
            raise die(f"IPSet '{name}' is not empty")
        del firewall.ipsets[name]

    return handler


def _list_entries(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        found = _entries(scope.find(call), call)
        return with_digest([{"cidr": cidr, **row} for cidr, row in found.items()], found)

    return handler


def _entry_fields(call: PveCall) -> Row:
    row: Row = {"nomatch": 1} if call.get("nomatch") else {}
    return row | ({"comment": call.params["comment"]} if "comment" in call.params else {})


def _add_entry(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        firewall, cidr = scope.find(call), clean_cidr(call.params["cidr"])
        found, alias = _entries(firewall, call), ALIAS.match(cidr)
        known = {**call.region.firewall.aliases, **firewall.aliases}
        if alias and alias[3].lower() not in known:
            raise die(f"no such alias '{alias[3]}'")
        if cidr in found:
            raise param_error({"cidr": f"address '{cidr}' already exists"})
        if cidr.endswith("/0"):
            raise param_error({"cidr": "a zero prefix is not allowed in ipset entries"})
        found[cidr] = _entry_fields(call)

    return handler


def _get_entry(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        found, cidr = _entries(scope.find(call), call), call.params["cidr"]
        if cidr not in found:
            raise param_error({"cidr": "no such IP/Network"})
        return {"cidr": cidr, **found[cidr], "digest": digest(found)}

    return handler


def _change_entry(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        found, cidr = _entries(scope.find(call), call), call.params["cidr"]
        if cidr not in found:
            raise param_error({"cidr": "no such IP/Network"})
        check_digest(call, digest(found))
        found[cidr] = _entry_fields(call)

    return handler


def _drop_entry(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        found = _entries(scope.find(call), call)
        check_digest(call, digest(found))
        found.pop(call.params["cidr"], None)

    return handler


# ---------------------------------------------------------------- aliases


def _aliases(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> list[Row]:
        found = scope.find(call).aliases
        return with_digest(list(found.values()), found)

    return handler


def _alias_row(call: PveCall, name: str) -> Row:
    row: Row = {"name": name, "cidr": call.params["cidr"]}
    row["ipversion"] = 6 if ":" in row["cidr"] else 4
    return row | ({"comment": call.params["comment"]} if "comment" in call.params else {})


def _create_alias(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        found, name = scope.find(call).aliases, call.params["name"]
        if name.lower() in found:
            raise param_error({"name": f"alias '{name}' already exists"})
        found[name.lower()] = _alias_row(call, name)

    return handler


def _find_alias(scope: FirewallScope, call: PveCall) -> tuple[dict[str, Row], str]:
    found, name = scope.find(call).aliases, call.params["name"].lower()
    if name not in found:
        raise param_error({"name": "no such alias"})
    return found, name


def _get_alias(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> Row:
        found, name = _find_alias(scope, call)
        return {**found[name], "digest": digest(found)}

    return handler


def _change_alias(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        found, name = _find_alias(scope, call)
        check_digest(call, digest(found))
        new = call.get("rename", found[name]["name"])
        if new.lower() != name and new.lower() in found:
            raise param_error({"name": f"alias '{new}' already exists"})
        del found[name]
        found[new.lower()] = _alias_row(call, new)

    return handler


def _drop_alias(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        found, name = scope.find(call).aliases, call.params["name"].lower()
        check_digest(call, digest(found))
        found.pop(name, None)

    return handler


_NAME = Param(optional=False, pattern=NAME, min_length=2, max_length=64)
_NEW_NAME = Param(pattern=NAME, min_length=2, max_length=64)
_CIDR = {"cidr": Param(optional=False, format=ip_or_cidr_or_alias)}
_DIGEST = {"digest": Param(max_length=64)}
_COMMENT = {"comment": Param()}


def set_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    """The routes for IP sets and aliases of one scope."""
    sets, aliases = f"{scope.path}/ipset", f"{scope.path}/aliases"
    one = {**scope.params, "name": _NAME}
    entry, nomatch = one | _CIDR, {"nomatch": Param("boolean")}
    new_set = one | _COMMENT | _DIGEST | {"rename": _NEW_NAME}
    yield ApiRoute("GET", sets, _sets(scope), scope.params, scope.read)
    yield ApiRoute("POST", sets, _create_set(scope), new_set, scope.write)
    yield ApiRoute("GET", sets + "/{name}", _list_entries(scope), one, scope.read)
    yield ApiRoute(
        "POST", sets + "/{name}", _add_entry(scope), entry | _COMMENT | nomatch, scope.write
    )
    yield ApiRoute(
        "DELETE", sets + "/{name}", _delete_set(scope), one | {"force": Param("boolean")},
        scope.write,
    )  # fmt: skip
    path = sets + "/{name}/{cidr}"
    changes = entry | _COMMENT | nomatch | _DIGEST
    yield ApiRoute("GET", path, _get_entry(scope), entry, scope.read, deep=True)
    yield ApiRoute("PUT", path, _change_entry(scope), changes, scope.write, deep=True)
    yield ApiRoute("DELETE", path, _drop_entry(scope), entry | _DIGEST, scope.write, deep=True)
    alias = one | {"cidr": Param(optional=False, format=ip_or_cidr)} | _COMMENT
    yield ApiRoute("GET", aliases, _aliases(scope), scope.params, scope.read)
    yield ApiRoute("POST", aliases, _create_alias(scope), alias, scope.write)
    path = aliases + "/{name}"
    yield ApiRoute("GET", path, _get_alias(scope), one, scope.read)
    yield ApiRoute(
        "PUT", path, _change_alias(scope), alias | _DIGEST | {"rename": _NEW_NAME}, scope.write
    )
    yield ApiRoute("DELETE", path, _drop_alias(scope), one | _DIGEST, scope.write)
