"""
What a route asks of its caller before anything else, in the forms PVE declares them.

Checks run on the raw parameters, before these are verified, as in PVE. A template such as
``/vms/{vmid}`` is filled from the parameters; where one is missing, the check fails.
"""

import re

from moxwell.lab.proxmox.errors import PveError, forbidden
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.route import Check

_PLACE = re.compile(r"\{([\w-]+)\}")


def anyone(call: Call) -> None:
    """Every user that is logged in; the handler looks closer."""


def perm(template: str, *privs: str, any_of: bool = False, needs: str | None = None) -> Check:
    """All (or any) of the privileges on a path; refused where parameter ``needs`` is not given."""

    def check(call: Call) -> None:
        if needs is not None and needs not in call.params:
            raise forbidden()
        call.check(fill(template, call), *privs, any_of=any_of)

    return check


def both(*checks: Check) -> Check:
    """Every check must pass."""

    def check(call: Call) -> None:
        for one in checks:
            one(call)

    return check


def either(*checks: Check) -> Check:
    """One check must pass; where none does, PVE does not say which."""

    def check(call: Call) -> None:
        for one in checks:
            try:
                one(call)
            except PveError:
                continue
            return
        raise forbidden()

    return check


def is_self(call: Call) -> None:
    """The user of the path or the parameter is the caller; a token is nobody's self."""
    if call.params.get("userid") != call.authid:
        raise forbidden()


def user_group(*privs: str, groups: str = "") -> Check:
    """A privilege on a group of the user; ``groups`` says which groups a request may name."""

    def check(call: Call) -> None:
        known = call.params.get("userid") in call.region.access.users
        if groups != "create" and not known:
            raise PveError(500, f"no such user ('{call.params.get('userid')}')")
        if call.may("/access/groups", *privs, any_of=True):
            return
        named = [g for g in str(call.params.get("groups", "")).replace(",", " ").split() if g]
        if groups and not named:
            raise forbidden(f"/access/groups, {'|'.join(privs)}")
        for group in named if groups else ():
            call.check(f"/access/groups/{group}", *privs, any_of=True)
        if groups == "create":
            return
        userid = call.params.get("userid")
        held = call.region.access.groups.values()
        mine = [g for g in held if call.may(f"/access/groups/{g.groupid}", *privs, any_of=True)]
        if not any(userid in g.users for g in mine):
            raise forbidden()

    return check


def realm_allocate(call: Call) -> None:
    """Realm.AllocateUser on the realm of the user that is named."""
    realm = str(call.params.get("userid", "")).rpartition("@")[2]
    call.check(f"/access/realm/{realm}", "Realm.AllocateUser")


def fill(template: str, call: Call) -> str:
    """The template with its placeholders replaced by parameters of the call."""

    def one(match: re.Match[str]) -> str:
        if match[1] not in call.params:
            raise forbidden()
        return str(call.params[match[1]])

    return _PLACE.sub(one, template)
