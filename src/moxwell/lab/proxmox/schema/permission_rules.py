"""Permission checks from the rules of the API schema, such as ``["perm", "/", ["Sys.Audit"]]``."""

from typing import Any

from moxwell.lab.proxmox.access import permissions
from moxwell.lab.proxmox.errors import forbidden
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import Check
from moxwell.lab.proxmox.route_permissions import (
    anyone,
    both,
    either,
    is_self,
    perm,
    realm_allocate,
    user_group,
)


def build_check(rule: dict[str, Any] | None) -> Check | None:
    """The check of a method; None if only root@pam may call it."""
    if rule is None:
        return None
    if "check" in rule:
        return _expression(rule["check"])
    return anyone if rule.get("user") in ("all", "world") else None


def refusal(rule: dict[str, Any] | None) -> str:
    """What a 403 says to a caller without any privilege; ``{name}`` stands for a parameter."""
    if rule is None:
        return "user != root@pam"
    return _refusal(rule["check"]) if "check" in rule else ""


def _refusal(rule: list[Any]) -> str:
    if rule[0] == "and":
        return _refusal(rule[1])
    if rule[0] != "perm":
        return ""
    any_of = bool(_named(rule[3:], "any", 0))
    return f"{rule[1]}, {'|'.join(rule[2]) if any_of else rule[2][0]}"


def _expression(rule: list[Any]) -> Check:
    kind, rest = rule[0], rule[1:]
    if kind == "and":
        return both(*(_expression(one) for one in rest))
    if kind == "or":
        return either(*(_expression(one) for one in rest))
    if kind == "perm":
        return _perm(rest)
    if kind == "userid-param":
        return is_self if rest[0] == "self" else realm_allocate
    if kind == "userid-group":
        return user_group(*rest[0], groups=_named(rest[1:], "groups_param", ""))
    return _modify_acl


def _perm(rest: list[Any]) -> Check:
    path, privileges, options = rest[0], rest[1], rest[2:]
    needs = _named(options, "require_param", None)
    return perm(path, *privileges, any_of=bool(_named(options, "any", 0)), needs=needs)


def _named(options: list[Any], name: str, default: Any) -> Any:
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    return pairs.get(name, default)


def _modify_acl(call: PveCall) -> None:
    """Permissions.Modify, or what delegates it, on the path of the request."""
    path = permissions.normalize_path(str(call.params.get("path", "")))
    if path is None or not call.has_privileges(path, "Permissions.Modify"):
        raise forbidden(f"{call.params.get('path', '')}, Permissions.Modify")
