"""
Who may do what: roles, ACLs and privilege separation.

:class:`Rights` answers one question for one caller: which privileges it has on a path, each with
whether it propagates. PVE's rules: the deepest path with an entry for the user (or its groups)
wins over the ones above; user entries win over group entries on one path; NoAccess takes all
away; a pool's roles reach its guests and storages; a separated token has the intersection of its
own rights and its user's.
"""

from collections.abc import Callable
from functools import cached_property

from moxwell.lab.proxmox.access.privileges import builtin_roles, every_privilege
from moxwell.lab.proxmox.state import Acl, Region

Held = dict[str, int]  # privilege (or role) -> propagates
Ask = Callable[[str], Held]


def role_privileges(region: Region, roleid: str) -> frozenset[str]:
    builtin = builtin_roles(region.major).get(roleid)
    if builtin is not None:
        return builtin
    return frozenset(region.access.roles.get(roleid, ()))


class Rights:
    """The rights of one user or token, as they are now; indexes are built once."""

    def __init__(self, region: Region, user: str, token: str | None = None) -> None:
        self._region, self._user, self._token = region, user, token
        self._known: dict[tuple[str, str], Held] = {}

    def on(self, path: str) -> Held:
        """The privileges on one path."""
        path = normal_path(path)
        if self._token is None:
            return self._of_user(path)
        account = self._region.access.users.get(self._user)
        entry = account.tokens.get(self._token) if account else None
        if entry is None:
            return {}
        theirs = self._of_user(path)
        if not entry.privsep or not theirs:
            return theirs
        own = self._privileges(path, f"{self._user}!{self._token}", "token")
        return {name: own[name] & theirs[name] for name in own if name in theirs}

    def each(self, prefix: str, priv: str) -> Callable[[object], bool]:
        """A quick question about many paths ``prefix/NAME``: most share one answer."""
        usual = priv in self.on(f"{prefix}/*")
        known = {*self._by_path, *self._pools}
        special = {path for path in known if path.startswith(f"{prefix}/")}

        def allowed(name: object) -> bool:
            if not special:
                return usual
            path = f"{prefix}/{name}"
            return priv in self.on(path) if path in special else usual

        return allowed

    def _of_user(self, path: str) -> Held:
        if self._user == "root@pam":
            return self._everything
        account = self._region.access.users.get(self._user)
        if account is None or not account.enable:
            return {}
        return self._privileges(path, self._user, "user")

    def _privileges(self, path: str, ugid: str, kind: str) -> Held:
        """Paths without an entry of their own share what they inherit: thousands cost as one."""
        own = path in self._by_path or path in self._pools
        key = (path if own else path.rpartition("/")[0] + "/*", ugid)
        if key not in self._known:
            self._known[key] = self._fresh(path, ugid, kind)
        return self._known[key]

    def _fresh(self, path: str, ugid: str, kind: str) -> Held:
        roles = self._roles(path, ugid, kind)
        pool = self._pool_of(path)
        if pool and "NoAccess" not in roles:
            shared = self._roles(f"/pool/{pool}", ugid, kind)
            roles = shared if "NoAccess" in shared else roles | shared
        if "NoAccess" in roles:
            return {}
        held: Held = {}
        for role, spread in roles.items():
            for name in role_privileges(self._region, role):
                held[name] = held.get(name, 0) | spread
        return held

    def _roles(self, path: str, ugid: str, kind: str) -> Held:
        roles: Held = {}
        for prefix in prefixes(path):
            here = self._roles_here(prefix, ugid, kind, final=prefix == path)
            if here is not None:
                roles = here
        return roles

    def _roles_here(self, path: str, ugid: str, kind: str, *, final: bool) -> Held | None:
        rows = [a for a in self._by_path.get(path, ()) if final or a.propagate]
        found = {a.roleid: a.propagate for a in rows if a.type == kind and a.ugid == ugid}
        if not found and kind == "user":
            found = {a.roleid: a.propagate for a in rows if a.type == "group" and self._in(ugid, a)}
        if not found:
            return None
        return {"NoAccess": found["NoAccess"]} if "NoAccess" in found else found

    def _in(self, user: str, acl: Acl) -> bool:
        group = self._region.access.groups.get(acl.ugid)
        return group is not None and user in group.users

    @cached_property
    def _everything(self) -> Held:
        return dict.fromkeys(every_privilege(self._region.major), 1)

    @cached_property
    def _by_path(self) -> dict[str, list[Acl]]:
        found: dict[str, list[Acl]] = {}
        for acl in self._region.access.acl:
            found.setdefault(acl.path, []).append(acl)
        return found

    @cached_property
    def _pools(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for pool in self._region.pools.values():
            found.update({f"/vms/{vmid}": pool.poolid for vmid in pool.vms})
            found.update({f"/storage/{name}": pool.poolid for name in pool.storages})
        return found

    def _pool_of(self, path: str) -> str | None:
        return self._pools.get(path)


def effective(region: Region, user: str, token: str | None) -> dict[str, Held]:
    """Every path on which a caller has any right, as GET /access/permissions shows it."""
    paths = {"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}
    paths |= {prefix for acl in region.access.acl for prefix in prefixes(acl.path)}
    for pool in region.pools.values():
        paths |= {f"/vms/{vmid}" for vmid in pool.vms}
        paths |= {f"/storage/{name}" for name in pool.storages}
    rights = Rights(region, user, token)
    return {path: held for path in sorted(paths) if (held := rights.on(path))}


def normal_path(path: str) -> str:
    if path.startswith("/") and "//" not in path and not path.endswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part)


def prefixes(path: str) -> list[str]:
    """``/vms/100`` -> ``/``, ``/vms``, ``/vms/100``."""
    found = ["/"]
    for part in [p for p in path.split("/") if p]:
        found.append(found[-1].rstrip("/") + "/" + part)
    return found
