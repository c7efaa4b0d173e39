"""
``/access/ticket``, ``/access/password``, ``/access/domains`` and ``/access/permissions``.

A failed login always returns "authentication failure" after a delay; a successful one returns the
capabilities of the user.
"""

import re
from typing import Any

from moxwell.lab.proxmox.access import auth, permissions
from moxwell.lab.proxmox.access.privileges import all_privileges
from moxwell.lab.proxmox.access.realms import check_password_change
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, forbidden, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, realm_allocate, user_group

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


async def login(call: PveCall) -> dict[str, Any]:
    region, name = call.region, str(call.params["username"])
    userid = f"{name}@{call.params['realm']}" if "realm" in call.params else name
    if not auth.is_valid_password(region, userid, call.params["password"], call.now()):
        raise PveException(401, "authentication failure")
    answer: dict[str, Any] = {"username": userid, "cap": capabilities(call, userid)}
    if "path" in call.params:
        _check_privs(call, userid)
    else:
        answer["ticket"] = auth.make_ticket(region, userid, call.now())
        answer["CSRFPreventionToken"] = auth.make_csrf(region, userid, call.now())
    if region.cluster and "Sys.Audit" in permissions.CallerPermissions(
        region, userid
    ).privileges_on("/"):
        answer["clustername"] = region.cluster
    return answer


def _check_privs(call: PveCall, userid: str) -> None:
    granted = permissions.CallerPermissions(call.region, userid).privileges_on(call.params["path"])
    if not all(p in granted for p in formats.split_list(call.params.get("privs", ""))):
        raise PveException(401, "authentication failure")


def capabilities(call: PveCall, userid: str) -> dict[str, dict[str, int]]:
    """The privileges of a user on any path, by area."""
    region, found = call.region, set()
    if userid == "root@pam":
        found = set(all_privileges(region.major))
    else:
        own = permissions.CallerPermissions(region, userid)
        for path in {*_PATHS, *(acl.path for acl in region.access.acl)}:
            found |= set(own.privileges_on(path))
    return {
        area: {name: 1 for name in sorted(found) if re.search(pattern, name)}
        for area, pattern in _AREAS.items()
    }


def change_password(call: PveCall) -> None:
    userid, own = call.params["userid"], "confirmation-password"
    user = call.region.access.users.get(userid)
    if user is None:
        raise PveException(500, f"no such user ('{userid}')")
    if call.user != "root@pam":
        if userid == "root@pam":
            raise forbidden()
        if own not in call.params:
            raise param_error({own: "password is required to modify user"})
        if not auth.is_valid_password(call.region, call.user, call.params[own], call.now()):
            raise PveException(401, "authentication failure")
        if userid != call.user and userid.endswith("@pam"):
            raise forbidden()
    check_password_change(call, userid)
    user.password = call.params["password"]


def may_change_password(call: PveCall) -> None:
    if call.params.get("userid") == call.user:
        return
    realm_allocate(call)
    user_group("User.Modify")(call)


def own_permissions(call: PveCall) -> dict[str, Any]:
    requested = call.get("userid", call.authid)
    user, _, token = requested.partition("!")
    if requested != call.authid and not (token and user == call.authid):
        call.check("/access", "Sys.Audit")
    if "path" in call.params:
        path = call.params["path"]
        return {
            path: permissions.CallerPermissions(call.region, user, token or None).privileges_on(
                path
            )
        }
    return permissions.effective_permissions(call.region, user, token or None)


def realms(call: PveCall) -> list[dict[str, Any]]:
    return [{"realm": name, **row} for name, row in call.region.access.realms.items()]


def empty_ticket(call: PveCall) -> None:
    """GET /access/ticket: returns nothing, as in PVE."""
    if call.user == "nobody":
        raise forbidden()


ROUTES = (
    ApiRoute("GET", "/access/ticket", empty_ticket, public=True),
    ApiRoute(
        "POST",
        "/access/ticket",
        login,
        public=True,
    ),
    ApiRoute(
        "PUT",
        "/access/password",
        change_password,
        permission=may_change_password,
        tokens=False,
    ),
    ApiRoute(
        "GET",
        "/access/permissions",
        own_permissions,
        permission=anyone,
    ),
    ApiRoute("GET", "/access/domains", realms, public=True),
)
