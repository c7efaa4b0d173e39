"""IP sets and aliases of a firewall scope."""

from collections.abc import Iterable

from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.firewall.formats import (
    ALIAS,
    clean_cidr,
)
from moxwell.lab.proxmox.firewall.scopes import FirewallScope, check_digest, digest, with_digest
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute, Handler
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
        if "rename" in call.params:
            old = call.params["rename"]
            check_digest(call, digest(sets))
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
        firewall = scope.find(call)
        found = _entries(firewall, call)
        known = {**call.region.firewall.aliases, **firewall.aliases}
        rows = [{"cidr": cidr, **row, **_dangling(cidr, known)} for cidr, row in found.items()]
        return with_digest(rows, found)

    return handler


def _dangling(cidr: str, known: dict[str, Row]) -> Row:
    """The error of an entry whose alias is gone."""
    alias = ALIAS.match(cidr)
    if alias is None or alias[3].lower() in known:
        return {}
    return {"errors": {"cidr": f"no such alias '{alias[3]}'"}}


def _entry_fields(call: PveCall) -> Row:
    row: Row = {"nomatch": 1} if call.get("nomatch") else {}
    return row | _comment(call)


def _comment(call: PveCall) -> Row:
    """The comment of a request as a configuration line keeps it: trimmed, if there is any."""
    text = str(call.get("comment", "")).strip()
    return {"comment": text} if text else {}


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
        check_digest(call, digest(found))
        if cidr not in found:
            raise param_error({"cidr": "no such IP/Network"})
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
    cidr = str(call.params["cidr"])
    whole = "/128" if ":" in cidr else "/32"
    row: Row = {"name": name, "cidr": cidr.removesuffix(whole)}
    row["ipversion"] = 6 if ":" in cidr else 4
    return row | _comment(call)


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
        return dict(found[name])

    return handler


def _change_alias(scope: FirewallScope) -> Handler:
    def handler(call: PveCall) -> None:
        check_digest(call, digest(scope.find(call).aliases))
        found, name = _find_alias(scope, call)
        new = call.get("rename", call.params["name"])
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


def set_routes(scope: FirewallScope) -> Iterable[ApiRoute]:
    """The routes for IP sets and aliases of one scope."""
    sets, aliases = f"{scope.path}/ipset", f"{scope.path}/aliases"
    one, entry, alias = f"{sets}/{{name}}", f"{sets}/{{name}}/{{cidr}}", f"{aliases}/{{name}}"
    for method, path, handler, check in (
        ("GET", sets, _sets(scope), scope.read),
        ("POST", sets, _create_set(scope), scope.write),
        ("GET", one, _list_entries(scope), scope.read),
        ("POST", one, _add_entry(scope), scope.write),
        ("DELETE", one, _delete_set(scope), scope.write),
        ("GET", entry, _get_entry(scope), scope.read),
        ("PUT", entry, _change_entry(scope), scope.write),
        ("DELETE", entry, _drop_entry(scope), scope.write),
        ("GET", aliases, _aliases(scope), scope.read),
        ("POST", aliases, _create_alias(scope), scope.write),
        ("GET", alias, _get_alias(scope), scope.read),
        ("PUT", alias, _change_alias(scope), scope.write),
        ("DELETE", alias, _drop_alias(scope), scope.write),
    ):
        yield ApiRoute(method, path, handler, permission=check, deep=path == entry)
