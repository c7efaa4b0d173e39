"""Reads roles, users, tokens and ACLs in Proxmox and creates missing ones, as administrator."""

import contextlib
from collections.abc import Callable

from moxwell.errors import Missing
from moxwell.onboarding.access_plan import (
    AccessChange,
    AccessRequest,
    ExistingAccess,
    acl_path,
    all_roles,
    plan_access,
    propagates,
    role_name,
    wanted_roles,
)
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Effects, Owned
from moxwell.pve.tenant_access import TENANT_GROUP, TENANT_USER
from moxwell.pve.transport import Transport
from moxwell.pve.values import SecretValue

COMMENT = "made by moxwell init"
Progress = Callable[[AccessChange], None]


async def see_access(pve: PveReader, request: AccessRequest) -> ExistingAccess:
    """Read roles, users, tokens, pools and ACLs."""
    users = frozenset(row.userid for row in await pve.access.users())
    tokens: frozenset[str] = frozenset()
    if request.user in users:
        tokens = frozenset(row.tokenid for row in await pve.access.tokens(request.user))
    return ExistingAccess(
        {r.roleid: frozenset(r.privs.split(",")) for r in await pve.access.roles()},
        users,
        tokens,
        frozenset(row.poolid for row in await pve.pools.list()),
        frozenset((row.path, row.ugid, row.roleid) for row in await pve.access.acl()),
        frozenset(row.groupid for row in await pve.access.groups()),
    )


async def make_access(
    transport: Transport, effects: Effects, request: AccessRequest, progress: Progress
) -> SecretValue | None:
    """
    Make what is missing; the secret of the token is returned if the token is new.

    It can be repeated: what exists stays, and a role is only extended.
    """
    existing = await see_access(PveReader(transport), request)
    pve = PveWriter(transport, effects, _owned(request))
    secret: SecretValue | None = None
    for change in plan_access(request, existing):
        progress(change)
        secret = await _make(pve, request, change) or secret
    return secret


async def renew_token(
    transport: Transport, effects: Effects, request: AccessRequest
) -> SecretValue:
    """Replace the token by a new one of the same name; Proxmox returns a secret only once."""
    pve = PveWriter(transport, effects, _owned(request))
    with contextlib.suppress(Missing):
        await pve.access.delete_token(request.user, request.token)
    made = await pve.access.create_token(request.user, request.token, privsep=True, comment=COMMENT)
    for path in wanted_roles(request):  # deleting a token deletes its ACLs
        where = acl_path(path, request.pool)
        await pve.access.set_acl(
            where, role_name(path), tokens=request.token_id, propagate=propagates(where)
        )
    return made.secret


def _owned(request: AccessRequest) -> Owned:
    """The administrator confirmed exactly these objects."""
    user = f"access/users/{request.user}"
    roles = [f"access/roles/{name}" for name in all_roles(request)]
    names = {"access/roles", *roles, "access/users", "access/groups", "access/acl", request.pool}
    return Owned(
        "confirmed by the administrator of the Proxmox cluster",
        names=names | {f"{user}/token/{request.token}"},
    )


async def _make(pve: PveWriter, request: AccessRequest, change: AccessChange) -> SecretValue | None:
    if change.kind == "role":
        await pve.access.create_role(change.name, change.privileges)
    elif change.kind == "role privileges":
        await pve.access.update_role(change.name, change.privileges, append=True)
    elif change.kind == "pool":
        await pve.pools.create(change.name, comment=COMMENT)
    elif change.kind == "group":
        await pve.access.create_group(change.name, comment=COMMENT)
    elif change.kind == "user":
        groups = TENANT_GROUP if change.name == TENANT_USER else None
        await pve.access.create_user(change.name, comment=COMMENT, groups=groups)
    elif change.kind == "token":
        made = await pve.access.create_token(
            request.user, request.token, privsep=True, comment=COMMENT
        )
        return made.secret
    else:
        tokens = change.name if change.name == request.token_id else None
        users = None if tokens else change.name
        await pve.access.set_acl(
            change.path, change.role, users=users, tokens=tokens, propagate=propagates(change.path)
        )
    return None
