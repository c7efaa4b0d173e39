"""
``/access/groups``, ``/access/roles`` and ``/access/acl``.

Deleting a role, a group, a user or a token deletes its ACL entries. An ACL path is checked for its
syntax only, not for existence.
"""

import re
from typing import Any

from moxwell.lab.proxmox.access.permissions import (
    CallerPermissions,
    normalize_path,
    role_privileges,
)
from moxwell.lab.proxmox.access.privileges import builtin_roles
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die, failing_as, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import SimAccess, SimAcl, SimGroup

_CHARACTERS = re.compile(r"[A-Za-z0-9.\-_/]+")
_N = r"[A-Za-z0-9.\-_]+"
_PATHS = re.compile(
    rf"/|/access(/groups(/{_N})?|/realm(/{_N})?)?|/nodes(/{_N})?|/pool(/{_N}){{0,3}}"
    rf"|/sdn(/(controllers|dns|fabrics|ipams)(/{_N})?|/zones(/{_N}(/{_N}(/[1-9][0-9]{{0,3}})?)?)?)?"
    rf"|/storage(/{_N})?|/vms(/[1-9][0-9]{{2,}})?|/mapping(/{_N}(/{_N})?)?"
)


def _role_row(roleid: str, privs: list[str], special: int) -> dict[str, Any]:
    return {"roleid": roleid, "privs": ",".join(sorted(privs)), "special": special}


def list_roles(call: PveCall) -> list[dict[str, Any]]:
    own = [_role_row(name, privs, 0) for name, privs in call.region.access.roles.items()]
    return own + [_role_row(n, list(p), 1) for n, p in builtin_roles(call.major).items()]


def create_role(call: PveCall) -> None:
    roleid, roles = call.params["roleid"], call.region.access.roles
    if roleid.upper().startswith("PVE"):
        text = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace"
        raise param_error({"roleid": text})
    if roleid in roles or roleid in builtin_roles(call.major):
        raise die(f"create role failed: role '{roleid}' already exists")
    roles[roleid] = sorted(set(formats.split_list(call.get("privs", ""))))


def get_role(call: PveCall) -> dict[str, int]:
    roleid = call.params["roleid"]
    privs = builtin_roles(call.major).get(roleid)
    found = call.region.access.roles.get(roleid) if privs is None else sorted(privs)
    if found is None:
        raise die(f"role '{roleid}' does not exist")
    return dict.fromkeys(found, 1)


def _own_role(call: PveCall, error_prefix: str, verb: str) -> str:
    roleid: str = call.params["roleid"]
    if roleid in builtin_roles(call.major):
        raise die(f"auto-generated role '{roleid}' cannot be {verb}")
    if roleid not in call.region.access.roles:
        raise die(f"{error_prefix} failed: role '{roleid}' does not exist")
    return roleid


def update_role(call: PveCall) -> None:
    roleid = _own_role(call, "update role", "modified")
    roles = call.region.access.roles
    new = formats.split_list(call.get("privs", ""))
    roles[roleid] = sorted({*(roles[roleid] if call.get("append") else ()), *new})


def delete_role(call: PveCall) -> None:
    roleid = _own_role(call, "delete role", "deleted")
    access = call.region.access
    del access.roles[roleid]
    access.acl = [a for a in access.acl if a.roleid != roleid]


# ---------------------------------------------------------------- groups


def list_groups(call: PveCall) -> list[dict[str, Any]]:
    privs = ("User.Modify", "Sys.Audit", "Group.Allocate")
    return [
        _group_row(group)
        for group in call.region.access.groups.values()
        if call.has_privileges(f"/access/groups/{group.groupid}", *privs, any_of=True)
    ]


def _group_row(group: SimGroup) -> dict[str, Any]:
    row: dict[str, Any] = {"groupid": group.groupid, "users": ",".join(group.users)}
    return row | ({"comment": group.comment} if group.comment is not None else {})


def create_group(call: PveCall) -> None:
    groupid, groups = call.params["groupid"], call.region.access.groups
    if groupid in groups:
        raise die(f"create group failed: group '{groupid}' already exists")
    groups[groupid] = SimGroup(groupid, call.get("comment") or None)


def get_group(call: PveCall) -> dict[str, Any]:
    group = _group(call, "")
    row: dict[str, Any] = {"members": list(group.users)}
    return row | ({"comment": group.comment} if group.comment is not None else {})


def _group(call: PveCall, error_prefix: str) -> SimGroup:
    groupid = call.params["groupid"]
    group = call.region.access.groups.get(groupid)
    if group is None:
        raise die(f"{error_prefix}group '{groupid}' does not exist")
    return group


def update_group(call: PveCall) -> None:
    group = _group(call, "update group failed: ")
    if "comment" in call.params:
        group.comment = call.params["comment"] or None


def delete_group(call: PveCall) -> None:
    group = _group(call, "delete group failed: ")
    access = call.region.access
    del access.groups[group.groupid]
    access.acl = [a for a in access.acl if (a.type, a.ugid) != ("group", group.groupid)]


# ---------------------------------------------------------------- acl


def list_acl(call: PveCall) -> list[dict[str, Any]]:
    everything = call.has_privileges("/access", "Sys.Audit")
    return [
        {
            "path": a.path,
            "type": a.type,
            "ugid": a.ugid,
            "roleid": a.roleid,
            "propagate": a.propagate,
        }
        for a in call.region.access.acl
        if everything or call.has_privileges(a.path, *_modifiers(a.path), any_of=True)
    ]


def _modifiers(path: str) -> tuple[str, ...]:
    """The privileges of which any one allows changing the ACL of a path."""
    parts = path.split("/")
    more = {"storage": "Datastore.Allocate", "vms": "VM.Allocate", "pool": "Pool.Allocate"}
    if len(parts) > 2 and parts[1] in more:
        return "Permissions.Modify", more[parts[1]]
    return ("Permissions.Modify",)


def may_modify(call: PveCall) -> None:
    check_modify(call, normalize_path(str(call.params.get("path", "/"))))


def check_modify(call: PveCall, path: str) -> None:
    """Check that the caller may change the ACL of a path, or move what is there to a pool."""
    call.check(path, *_modifiers(path), any_of=True)


def update_acl(call: PveCall) -> None:
    path = normalize_path(call.params["path"])
    if not any(call.params.get(name) for name in ("users", "groups", "tokens")):
        text = "either 'users', 'groups' or 'tokens' is required."
        raise param_error(dict.fromkeys(("users", "groups", "tokens"), text))
    known = _CHARACTERS if call.get("delete") else _PATHS
    if not call.params["path"] or not known.fullmatch(path):
        raise param_error({"path": f"invalid ACL path '{call.params['path']}'"})
    before = list(call.region.access.acl)
    try:
        with failing_as("ACL update failed"):
            _change_acl(call, path)
    except PveException:
        call.region.access.acl = before
        raise


def _change_acl(call: PveCall, path: str) -> None:
    for role in formats.split_list(call.params["roles"]):
        if role not in call.region.access.roles and role not in builtin_roles(call.major):
            raise die(f"role '{role}' does not exist")
        _check_subset(call, path, role)
        for kind, name in _named(call):
            _put(call, SimAcl(path, kind, name, role, call.get("propagate", 1)))


def _check_subset(call: PveCall, path: str, role: str) -> None:
    """A caller without Permissions.Modify may grant only privileges that it has itself."""
    if call.has_privileges(path, "Permissions.Modify"):
        return
    verb = "remove" if call.get("delete") else "add"
    own = CallerPermissions(call.region, call.user, call.token).privileges_on(path)
    if role == "NoAccess":
        text = f"Cannot {verb} role '{role}' - requires 'Permissions.Modify'"
        raise param_error({"role": text})
    for name in role_privileges(call.region, role):
        if name not in own:
            more = "requires 'Permissions.Modify' or superset of privileges."
            raise param_error({"role": f"Cannot {verb} role '{role}' - {more}"})
        if call.get("propagate", 1) and not own[name] and verb == "add":
            more = "requires 'Permissions.Modify' or propagated superset of privileges."
            raise param_error({"role": f"Cannot add role '{role}' with propagation - {more}"})


def _named(call: PveCall) -> list[tuple[str, str]]:
    access, found = call.region.access, []
    for group in formats.split_list(call.get("groups", "")):
        if group not in access.groups:
            raise die(f"group '{group}' does not exist")
        found.append(("group", group))
    for user in formats.split_list(call.get("users", "")):
        if user not in access.users:
            raise die(f"user '{user}' does not exist")
        found.append(("user", user))
    for full in formats.split_list(call.get("tokens", "")):
        user, _, token = full.partition("!")
        if user not in access.users or token not in access.users[user].tokens:
            raise die(_unknown_token(access, user, token))
        found.append(("token", full))
    return found


def _unknown_token(access: SimAccess, user: str, token: str) -> str:
    if user not in access.users:
        return f"no such user ('{user}')"
    return f"no such token '{token}' for user '{user}'"


def _put(call: PveCall, new: SimAcl) -> None:
    access: SimAccess = call.region.access
    same = (new.path, new.type, new.ugid, new.roleid)
    access.acl = [a for a in access.acl if (a.path, a.type, a.ugid, a.roleid) != same]
    if not call.get("delete"):
        access.acl.append(new)


_MODIFY = perm("/access", "Sys.Modify")
_GROUPS = perm("/access/groups", "Group.Allocate")

ROUTES = (
    ApiRoute("GET", "/access/roles", list_roles, permission=anyone),
    ApiRoute(
        "POST",
        "/access/roles",
        create_role,
        permission=_MODIFY,
    ),
    ApiRoute("GET", "/access/roles/{roleid}", get_role, permission=anyone),
    ApiRoute(
        "PUT",
        "/access/roles/{roleid}",
        update_role,
        permission=_MODIFY,
    ),
    ApiRoute("DELETE", "/access/roles/{roleid}", delete_role, permission=_MODIFY),
    ApiRoute("GET", "/access/groups", list_groups, permission=anyone),
    ApiRoute("POST", "/access/groups", create_group, permission=_GROUPS),
    ApiRoute(
        "GET",
        "/access/groups/{groupid}",
        get_group,
        permission=perm("/access/groups", "Sys.Audit", "Group.Allocate", any_of=True),
    ),
    ApiRoute(
        "PUT",
        "/access/groups/{groupid}",
        update_group,
        permission=_GROUPS,
    ),
    ApiRoute("DELETE", "/access/groups/{groupid}", delete_group, permission=_GROUPS),
    ApiRoute("GET", "/access/acl", list_acl, permission=anyone),
    ApiRoute(
        "PUT",
        "/access/acl",
        update_acl,
        permission=may_modify,
    ),
)
