"""
``/access/users`` and their API tokens.

The secret of a token is returned only when the token is created. PVE returns submitted values as
strings and defaults as numbers; the simulator does the same.
"""

from dataclasses import replace
from typing import Any

from moxwell.lab.proxmox.access.realms import check_password_change
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die, failing_as, param_error
from moxwell.lab.proxmox.qemu.identity import new_uuid
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import (
    anyone,
    both,
    either,
    is_self,
    realm_allocate,
    user_group,
)
from moxwell.lab.proxmox.state import SimToken, SimUser

ROOT = "root@pam"
_TEXTS = ("firstname", "lastname", "email", "comment", "keys")


def _row(user: SimUser) -> dict[str, Any]:
    row: dict[str, Any] = {"enable": user.enable, "expire": user.expire}
    if (
        user.comment or user.keys
    ):  # fields of one line of user.cfg: an unset field before a set one is "", not absent
        row["email"] = ""
    return row | {k: v for k in _TEXTS if (v := getattr(user, k))}


def _groups(call: PveCall, userid: str) -> list[str]:
    return [g.groupid for g in call.region.access.groups.values() if userid in g.users]


def _token_row(token: SimToken) -> dict[str, Any]:
    row: dict[str, Any] = {"privsep": token.privsep, "expire": token.expire}
    return row | ({"comment": token.comment} if token.comment is not None else {})


def list_users(call: PveCall) -> list[dict[str, Any]]:
    access, rows = call.region.access, []
    for user in access.users.values():
        if "enabled" in call.params and bool(user.enable) != bool(call.params["enabled"]):
            continue
        if user.userid != call.authid and not _may_see(call, user.userid):
            continue
        realm = access.realms.get(user.userid.rpartition("@")[2], {})
        row = {"userid": user.userid, **_row(user)}
        row |= {"realm-type": realm["type"]} if "type" in realm else {}
        if call.get("full"):
            row["groups"] = ",".join(_groups(call, user.userid))
            row["tokens"] = [{"tokenid": t.tokenid, **_token_row(t)} for t in user.tokens.values()]
        rows.append(row)
    return rows


def _may_see(call: PveCall, userid: str) -> bool:
    privs = ("User.Modify", "Sys.Audit")
    if call.has_privileges("/access/groups", *privs, any_of=True):
        return True
    return any(
        call.has_privileges(f"/access/groups/{group}", *privs, any_of=True)
        for group in _groups(call, userid)
    )


def create_user(call: PveCall) -> None:
    userid, access = call.params["userid"], call.region.access
    if userid in access.users:
        raise die(f"create user failed: user '{userid}' already exists")
    if "password" in call.params:
        with failing_as("create user failed"):
            check_password_change(call, userid)
    groups = formats.split_list(call.get("groups", ""))
    for group in groups:
        if group not in access.groups:
            raise die(f"create user failed: no such group '{group}'")
    user = SimUser(userid, call.get("password"))
    _write(call, user)
    access.users[userid] = user
    for group in groups:
        access.groups[group].users.append(userid)


def _write(call: PveCall, user: SimUser) -> None:
    for name in (*_TEXTS, "enable", "expire"):
        if name in call.params:
            setattr(user, name, call.params[name])


def get_user(call: PveCall) -> dict[str, Any]:
    user = _user(call)
    tokens = {t.tokenid: _token_row(t) for t in user.tokens.values()}
    return _row(user) | {"groups": _groups(call, user.userid), "tokens": tokens or None}


def _user(call: PveCall) -> SimUser:
    userid = call.params["userid"]
    user = call.region.access.users.get(userid)
    if user is None:
        raise die(f"no such user ('{userid}')")
    return user


def update_user(call: PveCall) -> None:
    """PUT user; an error changes nothing."""
    access, wanted = call.region.access, formats.split_list(call.params.get("groups", ""))
    with failing_as("update user failed"):
        user = _user(call)
        for name in wanted:
            if name not in access.groups:
                raise die(f"no such group '{name}'")
    _write(call, user)
    if "groups" not in call.params:
        return
    for group in access.groups.values():
        if group.groupid in wanted and user.userid not in group.users:
            group.users.append(user.userid)
        elif group.groupid not in wanted and not call.get("append") and user.userid in group.users:
            group.users.remove(user.userid)


def delete_user(call: PveCall) -> None:
    userid, access = call.params["userid"], call.region.access
    gone = access.users.pop(userid, None)
    if gone is not None and userid == ROOT:
        access.users[ROOT] = SimUser(ROOT, gone.password)  # PVE adds it to what it reads
    for group in access.groups.values():
        group.users = [u for u in group.users if u != userid]
    access.acl = [
        a
        for a in access.acl
        if not (a.type in {"user", "token"} and a.ugid.partition("!")[0] == userid)
    ]


# ---------------------------------------------------------------- tokens


def list_tokens(call: PveCall) -> list[dict[str, Any]]:
    return [{"tokenid": t.tokenid, **_token_row(t)} for t in _user(call).tokens.values()]


def _token(call: PveCall) -> SimToken:
    user, tokenid = _user(call), call.params["tokenid"]
    if tokenid not in user.tokens:
        raise die(f"no such token '{tokenid}' for user '{user.userid}'")
    return user.tokens[tokenid]


def get_token(call: PveCall) -> dict[str, Any]:
    return _token_row(_token(call))


def create_token(call: PveCall) -> dict[str, Any]:
    user, tokenid = _user(call), call.params["tokenid"]
    if tokenid in user.tokens:
        raise param_error({"tokenid": "Token already exists."})
    secret = new_uuid(call.runtime)
    token = SimToken(tokenid, secret, call.get("privsep", 1), call.get("expire", 0))
    token.comment = call.get("comment") or None
    user.tokens[tokenid] = token
    info: dict[str, Any] = {"privsep": 1} | _as_sent(call)
    return {"full-tokenid": f"{user.userid}!{tokenid}", "value": secret, "info": info}


def _as_sent(call: PveCall) -> dict[str, Any]:
    names = ("privsep", "expire", "comment")
    return {name: call.given[name] for name in names if name in call.given}


def update_token(call: PveCall) -> dict[str, Any]:
    token = _token(call)
    changed = replace(
        token, **{k: call.params[k] for k in ("privsep", "expire", "comment") if k in call.params}
    )
    with failing_as("updating token info failed"):
        for name in formats.split_list(call.get("delete", "")):
            if name != "comment":
                raise param_error({"delete": f"unknown option '{name}'"})
            changed.comment = None
    changed.comment = changed.comment or None
    shown = _token_row(changed) | _as_sent(call)
    if changed.comment is None:
        shown.pop("comment", None)
    _user(call).tokens[token.tokenid] = changed
    return shown


def delete_token(call: PveCall) -> None:
    token, user, access = _token(call), _user(call), call.region.access
    del user.tokens[token.tokenid]
    full = f"{user.userid}!{token.tokenid}"
    access.acl = [a for a in access.acl if (a.type, a.ugid) != ("token", full)]


_OWN = either(is_self, user_group("User.Modify"))

ROUTES = (
    ApiRoute(
        "GET",
        "/access/users",
        list_users,
        permission=anyone,
    ),
    ApiRoute(
        "POST",
        "/access/users",
        create_user,
        permission=both(realm_allocate, user_group("User.Modify", groups="create")),
    ),
    ApiRoute(
        "GET", "/access/users/{userid}", get_user, permission=user_group("User.Modify", "Sys.Audit")
    ),
    ApiRoute(
        "PUT",
        "/access/users/{userid}",
        update_user,
        permission=user_group("User.Modify", groups="update"),
    ),
    ApiRoute(
        "DELETE",
        "/access/users/{userid}",
        delete_user,
        permission=both(realm_allocate, user_group("User.Modify")),
    ),
    ApiRoute("GET", "/access/users/{userid}/token", list_tokens, permission=_OWN),
    ApiRoute("GET", "/access/users/{userid}/token/{tokenid}", get_token, permission=_OWN),
    ApiRoute("POST", "/access/users/{userid}/token/{tokenid}", create_token, permission=_OWN),
    ApiRoute(
        "PUT",
        "/access/users/{userid}/token/{tokenid}",
        update_token,
        permission=_OWN,
    ),
    ApiRoute("DELETE", "/access/users/{userid}/token/{tokenid}", delete_token, permission=_OWN),
)
