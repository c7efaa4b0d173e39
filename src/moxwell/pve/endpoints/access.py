"""
Endpoints of users, API tokens, roles, ACLs, permissions and pools.

``permissions`` has the value 1 for a privilege that propagates and 0 for one that does not, and
lists only paths with a grant.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from moxwell.pve.caller import ReadEndpoints, WriteEndpoints
from moxwell.pve.values import Params, SecretValue, path

Permissions = dict[str, dict[str, int]]


class UserRow(Struct, frozen=True, kw_only=True):
    userid: str
    enable: bool = True
    expire: int = 0
    comment: str = ""
    groups: str = ""


class TokenRow(Struct, frozen=True, kw_only=True):
    tokenid: str
    privsep: bool = True
    expire: int = 0
    comment: str = ""


class RoleRow(Struct, frozen=True, kw_only=True):
    roleid: str
    privs: str = ""
    special: bool = False


class GroupRow(Struct, frozen=True, kw_only=True):
    groupid: str
    users: str = ""
    comment: str = ""


class AclRow(Struct, frozen=True, kw_only=True):
    path: str
    ugid: str
    roleid: str
    type: str = "user"
    propagate: bool = True


class _NewToken(Struct):
    value: str
    full: str = field(name="full-tokenid", default="")


class NewToken(Struct, frozen=True):
    """A new API token; Proxmox returns its secret only once."""

    token_id: str
    secret: SecretValue


class PoolRow(Struct, frozen=True, kw_only=True):
    poolid: str = ""
    comment: str = ""
    members: tuple[dict[str, Any], ...] = ()


class AccessReader(ReadEndpoints):
    """GET requests below ``/access``."""

    async def permissions(
        self, *, path: str | None = None, userid: str | None = None
    ) -> Permissions:
        params: Params = {"path": path, "userid": userid}
        return await self._caller.read(dict[str, dict[str, int]], "/access/permissions", params)

    async def users(
        self, *, full: bool | None = None, enabled: bool | None = None
    ) -> tuple[UserRow, ...]:
        params: Params = {"full": full, "enabled": enabled}
        return await self._caller.read(tuple[UserRow, ...], "/access/users", params)

    async def tokens(self, userid: str) -> tuple[TokenRow, ...]:
        where = path("access", "users", userid, "token")
        return await self._caller.read(tuple[TokenRow, ...], where)

    async def roles(self) -> tuple[RoleRow, ...]:
        return await self._caller.read(tuple[RoleRow, ...], "/access/roles")

    async def groups(self) -> tuple[GroupRow, ...]:
        return await self._caller.read(tuple[GroupRow, ...], "/access/groups")

    async def acl(self) -> tuple[AclRow, ...]:
        return await self._caller.read(tuple[AclRow, ...], "/access/acl")


class AccessWriter(WriteEndpoints, AccessReader):
    """POST, PUT and DELETE requests below ``/access``."""

    async def create_user(
        self,
        userid: str,
        *,
        password: SecretValue | None = None,
        comment: str | None = None,
        groups: str | None = None,
    ) -> None:
        params: Params = {
            "userid": userid, "comment": comment, "groups": groups,
            "password": password.reveal() if password else None,
        }  # fmt: skip
        await self._caller.write("POST", "/access/users", params)

    async def create_token(
        self,
        userid: str,
        tokenid: str,
        *,
        privsep: bool | None = None,
        comment: str | None = None,
        expire: int | None = None,
    ) -> NewToken:
        params: Params = {"privsep": privsep, "comment": comment, "expire": expire}
        where = path("access", "users", userid, "token", tokenid)
        token = await self._caller.write_for(_NewToken, "POST", where, params)
        return NewToken(token.full or f"{userid}!{tokenid}", SecretValue(token.value))

    async def delete_token(self, userid: str, tokenid: str) -> None:
        await self._caller.write("DELETE", path("access", "users", userid, "token", tokenid))

    async def create_group(self, groupid: str, *, comment: str | None = None) -> None:
        await self._caller.write("POST", "/access/groups", {"groupid": groupid, "comment": comment})

    async def create_role(self, roleid: str, privileges: Sequence[str]) -> None:
        params: Params = {"roleid": roleid, "privs": ",".join(privileges)}
        await self._caller.write("POST", "/access/roles", params)

    async def update_role(
        self, roleid: str, privileges: Sequence[str], *, append: bool | None = None
    ) -> None:
        params: Params = {"privs": ",".join(privileges), "append": append}
        await self._caller.write("PUT", path("access", "roles", roleid), params)

    async def set_acl(
        self,
        path: str,
        roles: str,
        *,
        users: str | None = None,
        tokens: str | None = None,
        groups: str | None = None,
        propagate: bool | None = None,
        delete: bool | None = None,
    ) -> None:
        params: Params = {
            "path": path, "roles": roles, "users": users, "tokens": tokens,
            "groups": groups, "propagate": propagate, "delete": delete,
        }  # fmt: skip
        await self._caller.write("PUT", "/access/acl", params)


class PoolsReader(ReadEndpoints):
    """GET requests below ``/pools``."""

    async def list(self) -> tuple[PoolRow, ...]:
        return await self._caller.read(tuple[PoolRow, ...], "/pools")

    async def get(self, pool: str) -> PoolRow:
        """Return a pool with its members; a nested pool has its parent in its name."""
        if "/" not in pool:
            return await self._caller.read(PoolRow, path("pools", pool))
        rows = await self._caller.read(tuple[PoolRow, ...], "/pools", {"poolid": pool})
        return rows[0]


class PoolsWriter(WriteEndpoints, PoolsReader):
    """POST, PUT and DELETE requests below ``/pools``."""

    async def create(self, pool: str, *, comment: str | None = None) -> None:
        await self._caller.write("POST", "/pools", {"poolid": pool, "comment": comment})

    async def update(
        self,
        pool: str,
        *,
        vms: Sequence[int] = (),
        storage: Sequence[str] = (),
        delete: bool | None = None,
        allow_move: bool | None = None,
        comment: str | None = None,
    ) -> None:
        """Add members; with ``delete`` remove them; ``allow_move`` takes them from other pools."""
        params: Params = {
            "vms": ",".join(map(str, vms)) or None, "storage": ",".join(storage) or None,
            "delete": delete, "allow-move": allow_move, "comment": comment,
        }  # fmt: skip
        if "/" in pool:
            await self._caller.write("PUT", "/pools", {"poolid": pool, **params})
        else:
            await self._caller.write("PUT", path("pools", pool), params)

    async def delete(self, pool: str) -> None:
        if "/" in pool:
            await self._caller.write("DELETE", "/pools", {"poolid": pool})
        else:
            await self._caller.write("DELETE", path("pools", pool))
