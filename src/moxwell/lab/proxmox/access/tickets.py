"""
Logins, passwords, realms and one's own permissions.

``POST /access/ticket`` is the only login. Its failure is always "authentication failure", late,
whatever was wrong; its success tells the caller's capabilities area by area.
"""

import re
from typing import Any

from moxwell.lab.proxmox.access import auth, permissions
from moxwell.lab.proxmox.access.privileges import every_privilege
from moxwell.lab.proxmox.access.roles import priv_list
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveError, forbidden, param_error
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.route import Param, Route
from moxwell.lab.proxmox.route_permissions import anyone, perm, realm_allocate, user_group

_AREAS = {
    "vms": r"VM\.|Permissions\.Modify",
    "access": r"(User|Group)\.|Permissions\.Modify",
    "storage": r"Datastore\.|Permissions\.Modify",
    "nodes": r"Sys\.|Permissions\.Modify",
    "sdn": r"SDN\.|Permissions\.Modify",
    "dc": r"Sys\.Audit|Sys\.Modify|SDN\.",
    "mapping": r"Mapping\.|Permissions\.Modify",
}
_PATHS = ("/", "/nodes", "/access/groups", "/vms", "/storage", "/sdn", "/mapping")


async def login(call: Call) -> dict[str, Any]:
    region, name = call.region, str(call.params["username"])
    userid = f"{name}@{call.params['realm']}" if "realm" in call.params else name
    if not auth.good_password(region, userid, call.params["password"], call.now()):
        raise PveError(401, "authentication failure")
    answer: dict[str, Any] = {"username": userid, "cap": capabilities(call, userid)}
    if "path" in call.params:
        _check_privs(call, userid)
    else:
        answer["ticket"] = auth.make_ticket(region, userid, call.now())
        answer["CSRFPreventionToken"] = auth.make_csrf(region, userid, call.now())
    if region.cluster and "Sys.Audit" in permissions.Rights(region, userid).on("/"):
        answer["clustername"] = region.cluster
    return answer


def _check_privs(call: Call, userid: str) -> None:
    held = permissions.Rights(call.region, userid).on(call.params["path"])
    if not all(p in held for p in formats.split_list(call.params.get("privs", ""))):
        raise PveError(401, "authentication failure")


def capabilities(call: Call, userid: str) -> dict[str, dict[str, int]]:
    """Per area, what a user may do anywhere."""
    region, found = call.region, set()
    if userid == "root@pam":
        found = set(every_privilege(region.major))
    else:
        own = permissions.Rights(region, userid)
        for path in {*_PATHS, *(acl.path for acl in region.access.acl)}:
            found |= set(own.on(path))
    return {
        area: {name: 1 for name in sorted(found) if re.search(pattern, name)}
        for area, pattern in _AREAS.items()
    }


def change_password(call: Call) -> None:
    userid, own = call.params["userid"], "confirmation-password"
    user = call.region.access.users.get(userid)
    if user is None:
        raise PveError(500, f"no such user ('{userid}')")
    if call.user != "root@pam":
        if userid == "root@pam":
            raise forbidden()
        if own not in call.params:
            raise param_error({own: "password is required to modify user"})
        if not auth.good_password(call.region, call.user, call.params[own], call.now()):
            raise PveError(401, "authentication failure")
        if userid != call.user and userid.endswith("@pam"):
            raise forbidden()
    user.password = call.params["password"]


def may_change_password(call: Call) -> None:
    if call.params.get("userid") == call.user:
        return
    realm_allocate(call)
    user_group("User.Modify")(call)


def own_permissions(call: Call) -> dict[str, Any]:
    asked = call.get("userid", call.authid)
    user, _, token = asked.partition("!")
    if asked != call.authid and not (token and user == call.authid):
        call.check("/access", "Sys.Audit")
    if "path" in call.params:
        path = call.params["path"]
        return {path: permissions.Rights(call.region, user, token or None).on(path)}
    return permissions.effective(call.region, user, token or None)


def realms(call: Call) -> list[dict[str, Any]]:
    return [{"realm": name, **row} for name, row in call.region.access.realms.items()]


def one_realm(call: Call) -> dict[str, Any]:
    realm = call.params["realm"]
    row = call.region.access.realms.get(realm)
    if row is None:
        raise PveError(500, f"domain '{realm}' does not exist")
    return dict(row)


def nothing(call: Call) -> None:
    """GET /access/ticket: only there so that a form may ask."""
    if call.user == "nobody":
        raise forbidden()


PASSWORD = Param(optional=False, min_length=8, max_length=64)
USERID = Param(optional=False, format=formats.user_id, max_length=64)
_FULL_ID = r"[^\s:/]+@[A-Za-z][A-Za-z0-9._-]+(?:![A-Za-z][A-Za-z0-9._-]+)?"

ROUTES = (
    Route("GET", "/access/ticket", nothing, public=True),
    Route(
        "POST",
        "/access/ticket",
        login,
        public=True,
        params={
            "username": Param(optional=False, max_length=64),
            "password": Param(optional=False),
            "realm": Param(format=formats.realm, max_length=32),
            "otp": Param(),
            "path": Param(max_length=64, requires="privs"),
            "privs": Param(format=priv_list, max_length=64, requires="path"),
            "tfa-challenge": Param(),
            "new-format": Param("boolean"),
        },
    ),
    Route(
        "PUT",
        "/access/password",
        change_password,
        {
            "userid": USERID,
            "password": PASSWORD,
            "confirmation-password": Param(min_length=5, max_length=64),
        },
        may_change_password,
        tokens=False,
    ),
    Route(
        "GET",
        "/access/permissions",
        own_permissions,
        {"userid": Param(pattern=_FULL_ID), "path": Param()},
        anyone,
    ),
    Route("GET", "/access/domains", realms, public=True),
    Route(
        "GET",
        "/access/domains/{realm}",
        one_realm,
        {"realm": Param(optional=False, format=formats.realm, max_length=32)},
        perm("/access/realm", "Realm.Allocate", "Sys.Audit", any_of=True),
    ),
)
