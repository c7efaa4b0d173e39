"""
Permission checks of routes, in the forms that PVE declares.

As in PVE, checks run on the unverified parameters. A template such as ``/vms/{vmid}`` is filled
from the parameters; the check fails if one is missing.
"""

import re

from moxwell.lab.proxmox.errors import PveException, forbidden
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import Check

_PLACE = re.compile(r"\{([\w-]+)\}")


def anyone(call: PveCall) -> None:
    """Any authenticated user; the handler may check further."""


def by_schema(call: PveCall) -> None:
    """Stands for the permission rule of the API schema; the route table replaces it."""
    raise forbidden()


def perm(template: str, *privs: str, any_of: bool = False, needs: str | None = None) -> Check:
    """All (or any) of the privileges on a path; fails if the parameter ``needs`` is missing."""

    def check(call: PveCall) -> None:
        if needs is not None and needs not in call.params:
            raise forbidden()
        call.check(fill(template, call), *privs, any_of=any_of)

    return check


def both(*checks: Check) -> Check:
    """All checks must pass."""

    def check(call: PveCall) -> None:
        for one in checks:
            one(call)

    return check


def either(*checks: Check) -> Check:
    """One check must pass; the error does not say which failed."""

    def check(call: PveCall) -> None:
        for one in checks:
            try:
                one(call)
            except PveException:
                continue
            return
        raise forbidden()

    return check


def is_self(call: PveCall) -> None:
    """The caller is the user in the path or parameter; a token never is."""
    if call.params.get("userid") != call.authid:
        raise forbidden()


def user_group(*privs: str, groups: str = "") -> Check:
    """A privilege on a group of the user; ``groups`` returns the groups that a request may name."""

    def check(call: PveCall) -> None:
        known = call.params.get("userid") in call.region.access.users
        if groups != "create" and not known:
            raise PveException(500, f"no such user ('{call.params.get('userid')}')")
        if call.has_privileges("/access/groups", *privs, any_of=True):
            return
        named = [g for g in str(call.params.get("groups", "")).replace(",", " ").split() if g]
        if groups and not named:
            raise forbidden(f"/access/groups, {'|'.join(privs)}")
        for group in named if groups else ():
            call.check(f"/access/groups/{group}", *privs, any_of=True)
        if groups == "create":
            return
        userid = call.params.get("userid")
        granted = call.region.access.groups.values()
        mine = [
            g
            for g in granted
            if call.has_privileges(f"/access/groups/{g.groupid}", *privs, any_of=True)
        ]
        if not any(userid in g.users for g in mine):
            raise forbidden()

    return check


def realm_allocate(call: PveCall) -> None:
    """Realm.AllocateUser on the realm of the user."""
    realm = str(call.params.get("userid", "")).rpartition("@")[2]
    call.check(f"/access/realm/{realm}", "Realm.AllocateUser")


def fill(template: str, call: PveCall) -> str:
    """Replace the placeholders of a template with parameters of the call."""

    def one(match: re.Match[str]) -> str:
        if match[1] not in call.params:
            raise forbidden()
        return str(call.params[match[1]])

    return _PLACE.sub(one, template)
