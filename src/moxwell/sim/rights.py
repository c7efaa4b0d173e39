"""
Who may do what: roles, ACLs and privilege separation.

``privileges`` is the one question: which privileges a user or token has on a path, each with
whether it propagates. PVE's rules: the deepest path that has any entry for the user (or its
groups) wins over the ones above; user entries win over group entries on one path; NoAccess
takes all away; a pool's ACL reaches its guests and storages; a separated token has the
intersection of its own rights and its user's.
"""

from collections.abc import Callable

from moxwell.sim.privileges import builtin_roles, every_privilege
from moxwell.sim.state import Acl, Region

Held = dict[str, int]  # privilege -> propagates
Ask = Callable[[str], Held]


def role_privileges(region: Region, roleid: str) -> frozenset[str]:
    builtin = builtin_roles(region.major).get(roleid)
    if builtin is not None:
        return builtin
    return frozenset(region.access.roles.get(roleid, ()))


def privileges(region: Region, user: str, token: str | None, path: str) -> Held:
    """The privileges of a user or token on one path."""
    if token is None:
        return user_privileges(region, user, path)
    account = region.access.users.get(user)
    entry = account.tokens.get(token) if account else None
    if entry is None:
        return {}
    if not entry.privsep:
        return user_privileges(region, user, path)
    own = _with_pools(region, path, lambda p: _from_acl(region, f"{user}!{token}", "token", p))
    theirs = user_privileges(region, user, path)
    return {name: own[name] & theirs[name] for name in own if name in theirs}


def user_privileges(region: Region, user: str, path: str) -> Held:
    if user == "root@pam":
        return dict.fromkeys(every_privilege(region.major), 1)
    account = region.access.users.get(user)
    if account is None or not account.enable:
        return {}
    return _with_pools(region, path, lambda p: _from_acl(region, user, "user", p))


def _with_pools(region: Region, path: str, ask: Ask) -> Held:
    held = ask(path)
    parts = path.split("/")
    if len(parts) != 3 or parts[1] not in {"vms", "storage"}:
        return held
    for pool in region.pools.values():
        inside = (
            parts[2] in {str(v) for v in pool.vms}
            if parts[1] == "vms"
            else parts[2] in pool.storages
        )
        if inside:
            for name, spread in ask(f"/pool/{pool.poolid}").items():
                if spread:
                    held[name] = max(held.get(name, 0), spread)
    return held


def _from_acl(region: Region, ugid: str, kind: str, path: str) -> Held:
    roles: dict[str, int] = {}
    for prefix in prefixes(path):
        here = _roles_here(region, ugid, kind, prefix, final=prefix == path)
        if here is None:
            continue
        roles = here
    held: Held = {}
    if "NoAccess" in roles:
        return held
    for role, spread in roles.items():
        for name in role_privileges(region, role):
            held[name] = max(held.get(name, 0), spread)
    return held


def _roles_here(
    region: Region, ugid: str, kind: str, path: str, *, final: bool
) -> dict[str, int] | None:
    rows = [a for a in region.access.acl if a.path == path and (final or a.propagate)]
    own = {a.roleid: a.propagate for a in rows if a.type == kind and a.ugid == ugid}
    if own:
        return {"NoAccess": own["NoAccess"]} if "NoAccess" in own else own
    if kind == "token":
        return None
    grouped = {a.roleid: a.propagate for a in rows if a.type == "group" and _in(region, ugid, a)}
    if not grouped:
        return None
    return {"NoAccess": grouped["NoAccess"]} if "NoAccess" in grouped else grouped


def _in(region: Region, user: str, acl: Acl) -> bool:
    group = region.access.groups.get(acl.ugid)
    return group is not None and user in group.users


def prefixes(path: str) -> list[str]:
    """``/vms/100`` -> ``/``, ``/vms``, ``/vms/100``."""
    found = ["/"]
    for part in [p for p in path.split("/") if p]:
        found.append(found[-1].rstrip("/") + "/" + part)
    return found
