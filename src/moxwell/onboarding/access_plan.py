"""
Decides what must be created in Proxmox so that Moxwell has its least privileges. Pure.

The token is privilege-separated: it has at most what its user has, so both get the roles. Each path
has a role of its own with the privileges that are needed there and no others.
"""

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moxwell.errors import Invalid
from moxwell.pve.preflight import FEATURES, NEEDS, Feature, needs
from moxwell.pve.tenant_access import (
    TENANT_GROUP,
    TENANT_ROLE,
    TENANT_USER,
    tenant_privileges,
)

ROLE_PREFIX = "Moxwell"
USUAL = (*FEATURES, "templates", "snapshots", "volume-copies", "volume-moves")
ROLE_SUFFIXES: Mapping[str, str] = {
    "/": "Root", "/vms": "Guests", "/nodes": "Hosts", "/storage": "Storage",
    "/sdn/zones": "Network", "/pool": "Pools",
    "/sdn": "Sdn", f"/access/groups/{TENANT_GROUP}": "TenantUsers",
}  # fmt: skip
NOT_PROPAGATED = frozenset({"/", "/sdn"})  # roles that must not reach what is below
_USER = re.compile(r"[^\s:/@!]{1,60}@(?P<realm>[A-Za-z][A-Za-z0-9.\-_]+)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.\-_]+")


class InvalidAccess(Invalid):
    """A name that Proxmox does not accept."""

    reason = "InvalidAccess"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """The names that are wanted, and what the token is for."""

    major: int
    user: str
    token: str
    features: tuple[Feature, ...]
    pool: str = ""

    @property
    def token_id(self) -> str:
        return f"{self.user}!{self.token}"

    def check(self) -> None:
        """Refuse names that Proxmox refuses."""
        if not _USER.fullmatch(self.user):
            raise InvalidAccess(f"{self.user!r} is not a user such as moxwell@pve")
        if not _NAME.fullmatch(self.token):
            raise InvalidAccess(
                f"{self.token!r} is not a valid token name: two or more letters, digits, '.', '-', "
                "'_', the first a letter"
            )
        if self.pool and not re.fullmatch(r"[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+){0,2}", self.pool):
            raise InvalidAccess(f"{self.pool!r} is not a valid pool name")


@dataclass(frozen=True, slots=True)
class ExistingAccess:
    """What Proxmox has: roles with privileges, users, tokens of the user, pools, ACLs, groups."""

    roles: Mapping[str, frozenset[str]]
    users: frozenset[str]
    tokens: frozenset[str]
    pools: frozenset[str]
    acl: frozenset[tuple[str, str, str]]  # path, user or token, role
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AccessChange:
    """One change: what it is, and the command that an administrator types for it."""

    kind: str
    name: str
    command: str
    path: str = ""
    role: str = ""
    privileges: tuple[str, ...] = ()


def wanted_roles(request: AccessRequest) -> dict[str, tuple[str, ...]]:
    """The privileges by path; with a pool, guests are only those of the pool."""
    found: dict[str, set[str]] = {}
    for need in needs(request.major, request.features):
        found.setdefault(need.path, set()).add(need.privilege)
    if request.pool:
        guests = found.pop("/vms", set())
        found.setdefault("/pool", set()).update(guests, {"Pool.Audit"})
    return {path: tuple(sorted(found[path])) for path in sorted(found)}


def acl_path(path: str, pool: str) -> str:
    """The path on which a role is assigned."""
    return f"/pool/{pool}" if path == "/pool" and pool else path


def role_name(path: str) -> str:
    return ROLE_PREFIX + ROLE_SUFFIXES.get(path, path.replace("/", "-"))


def plan_access(request: AccessRequest, existing: ExistingAccess) -> tuple[AccessChange, ...]:
    """The changes that are missing, in the order in which they can be made."""
    request.check()
    changes = [*_roles(request, existing), *_identity(request, existing)]
    for path in wanted_roles(request):
        where, role = acl_path(path, request.pool), role_name(path)
        for option, who in (("users", request.user), ("tokens", request.token_id)):
            if (where, who, role) not in existing.acl:
                command = f"pveum acl modify {where} --{option} {shlex.quote(who)} --roles {role}"
                command += "" if propagates(where) else " --propagate 0"
                changes.append(AccessChange("acl", who, command, where, role))
    return tuple(changes)


def propagates(path: str) -> bool:
    """Whether a role counts below its path too."""
    return path not in NOT_PROPAGATED


def all_roles(request: AccessRequest) -> dict[str, tuple[str, ...]]:
    """The privileges by role: one role for each path, and that of tenants."""
    found = {role_name(path): privs for path, privs in wanted_roles(request).items()}
    if "tenants" in request.features:
        found[TENANT_ROLE] = tenant_privileges(request.major)
    return found


def _roles(request: AccessRequest, existing: ExistingAccess) -> list[AccessChange]:
    changes = []
    for name, privileges in all_roles(request).items():
        current = existing.roles.get(name)
        if current is None or not current.issuperset(privileges):
            verb = "add" if current is None else "modify"
            extra = "" if current is None else " --append 1"
            text = f"pveum role {verb} {name} --privs '{' '.join(privileges)}'{extra}"
            kind = "role" if current is None else "role privileges"
            changes.append(AccessChange(kind, name, text, privileges=privileges))
    return changes


def _identity(request: AccessRequest, existing: ExistingAccess) -> list[AccessChange]:
    changes = []
    if request.pool and request.pool not in existing.pools:
        changes.append(AccessChange("pool", request.pool, f"pveum pool add {request.pool}"))
    user = shlex.quote(request.user)
    if request.user not in existing.users:
        changes.append(AccessChange("user", request.user, f"pveum user add {user}"))
    if request.token not in existing.tokens:
        command = f"pveum user token add {user} {request.token} --privsep 1"
        changes.append(AccessChange("token", request.token_id, command))
    if "tenants" in request.features:
        changes += _tenant_user(existing)
    return changes


def _tenant_user(existing: ExistingAccess) -> list[AccessChange]:
    """The group and the user that tokens of tenants belong to."""
    changes = []
    if TENANT_GROUP not in existing.groups:
        changes.append(AccessChange("group", TENANT_GROUP, f"pveum group add {TENANT_GROUP}"))
    if TENANT_USER not in existing.users:
        command = f"pveum user add {TENANT_USER} --groups {TENANT_GROUP}"
        changes.append(AccessChange("user", TENANT_USER, command))
    return changes


def commands(request: AccessRequest) -> tuple[str, ...]:
    """All commands for an administrator who makes everything by hand."""
    nothing = ExistingAccess({}, frozenset(), frozenset(), frozenset(), frozenset())
    return tuple(change.command for change in plan_access(request, nothing))


def chosen_features(names: Collection[str] | None) -> tuple[Feature, ...]:
    """The features of these names, or the usual ones; InvalidAccess lists those that exist."""
    known = {str(need.feature): need.feature for need in NEEDS}
    for name in names or ():
        if name not in known:
            raise InvalidAccess(f"unknown feature {name!r}; there are {', '.join(sorted(known))}")
    return tuple(known[name] for name in dict.fromkeys(names or USUAL))
