"""
Computes the permissions of a caller from roles, ACLs and privilege separation.

:class:`CallerPermissions` returns the privileges on a path, each with its propagate flag. The rules
of PVE: the deepest path with an ACL entry for the user (or its groups) overrides the paths above;
user entries override group entries on the same path; NoAccess removes all privileges; the roles on
a pool apply to its guests and storages; a token with privilege separation has the intersection of
its own permissions and its user's.
"""

from collections.abc import Callable
from functools import cached_property

from moxwell.lab.proxmox.access.privileges import all_privileges, builtin_roles
from moxwell.lab.proxmox.state import SimAcl, SimRegion

PrivilegeMap = dict[str, int]  # privilege (or role) -> propagate


def role_privileges(region: SimRegion, roleid: str) -> frozenset[str]:
    builtin = builtin_roles(region.major).get(roleid)
    if builtin is not None:
        return builtin
    return frozenset(region.access.roles.get(roleid, ()))


class CallerPermissions:
    """The permissions of one user or token; indexes are built once."""

    def __init__(self, region: SimRegion, user: str, token: str | None = None) -> None:
        self._region, self._user, self._token = region, user, token
        self._known: dict[tuple[str, str], PrivilegeMap] = {}

    def privileges_on(self, path: str) -> PrivilegeMap:
        """The privileges on one path."""
        path = normalize_path(path)
        if self._token is None:
            return self._of_user(path)
        account = self._region.access.users.get(self._user)
        entry = account.tokens.get(self._token) if account else None
        if entry is None:
            return {}
        user_privileges = self._of_user(path)
        if not entry.privsep or not user_privileges:
            return user_privileges
        own = self._privileges(path, f"{self._user}!{self._token}", "token")
        return {name: own[name] & user_privileges[name] for name in own if name in user_privileges}

    def checker_for(self, prefix: str, priv: str) -> Callable[[object], bool]:
        """
        A fast check of one privilege on many paths ``prefix/NAME``, most of which share one result.
        """
        default_result = priv in self.privileges_on(f"{prefix}/*")
        known = {*self._by_path, *self._pools}
        special = {path for path in known if path.startswith(f"{prefix}/")}

        def allowed(name: object) -> bool:
            if not special:
                return default_result
            path = f"{prefix}/{name}"
            return priv in self.privileges_on(path) if path in special else default_result

        return allowed

    def _of_user(self, path: str) -> PrivilegeMap:
        if self._user == "root@pam":
            return self._everything
        account = self._region.access.users.get(self._user)
        if account is None or not account.enable:
            return {}
        return self._privileges(path, self._user, "user")

    def _privileges(self, path: str, ugid: str, kind: str) -> PrivilegeMap:
        """Privileges on a path; paths without an ACL entry of their own share one cached result."""
        own = path in self._by_path or path in self._pools
        key = (path if own else path.rpartition("/")[0] + "/*", ugid)
        if key not in self._known:
            self._known[key] = self._compute(path, ugid, kind)
        return self._known[key]

    def _compute(self, path: str, ugid: str, kind: str) -> PrivilegeMap:
        roles = self._roles(path, ugid, kind)
        pool = self._pool_of(path)
        if pool and "NoAccess" not in roles:
            shared = self._roles(f"/pool/{pool}", ugid, kind)
            roles = shared if "NoAccess" in shared else roles | shared
        if "NoAccess" in roles:
            return {}
        granted: PrivilegeMap = {}
        for role, role_propagate in roles.items():
            for name in role_privileges(self._region, role):
                granted[name] = granted.get(name, 0) | role_propagate
        return granted

    def _roles(self, path: str, ugid: str, kind: str) -> PrivilegeMap:
        roles: PrivilegeMap = {}
        for prefix in path_prefixes(path):
            path_roles = self._roles_on(prefix, ugid, kind, final=prefix == path)
            if path_roles is not None:
                roles = path_roles
        return roles

    def _roles_on(self, path: str, ugid: str, kind: str, *, final: bool) -> PrivilegeMap | None:
        rows = [a for a in self._by_path.get(path, ()) if final or a.propagate]
        found = {a.roleid: a.propagate for a in rows if a.type == kind and a.ugid == ugid}
        if not found and kind == "user":
            found = {
                a.roleid: a.propagate
                for a in rows
                if a.type == "group" and self._is_member(ugid, a)
            }
        if not found:
            return None
        return {"NoAccess": found["NoAccess"]} if "NoAccess" in found else found

    def _is_member(self, user: str, acl: SimAcl) -> bool:
        group = self._region.access.groups.get(acl.ugid)
        return group is not None and user in group.users

    @cached_property
    def _everything(self) -> PrivilegeMap:
        return dict.fromkeys(all_privileges(self._region.major), 1)

    @cached_property
    def _by_path(self) -> dict[str, list[SimAcl]]:
        found: dict[str, list[SimAcl]] = {}
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


def effective_permissions(
    region: SimRegion, user: str, token: str | None
) -> dict[str, PrivilegeMap]:
    """Every path on which a caller has a privilege, as in GET /access/permissions."""
    paths = {"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}
    paths |= {prefix for acl in region.access.acl for prefix in path_prefixes(acl.path)}
    for pool in region.pools.values():
        paths |= {f"/vms/{vmid}" for vmid in pool.vms}
        paths |= {f"/storage/{name}" for name in pool.storages}
    rights = CallerPermissions(region, user, token)
    return {path: granted for path in sorted(paths) if (granted := rights.privileges_on(path))}


def normalize_path(path: str) -> str:
    if path.startswith("/") and "//" not in path and not path.endswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part)


def path_prefixes(path: str) -> list[str]:
    """``/vms/100`` -> ``/``, ``/vms``, ``/vms/100``."""
    found = ["/"]
    for part in [p for p in path.split("/") if p]:
        found.append(found[-1].rstrip("/") + "/" + part)
    return found
