"""
The API token of a tenant: rights on the pool of the tenant and on nothing else.

The token is owned by its comment. Proxmox returns the secret only once, so a token whose secret is
not stored is replaced by ``issue``.
"""

from msgspec import Struct

from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.endpoints.access import TokenRow
from moxwell.pve.steps.contract import Step, same_region, verify_words
from moxwell.pve.tenant_access import TENANT_ROLE, TENANT_USER
from moxwell.pve.values import SecretValue, Upid


class TenantToken(Struct, frozen=True, kw_only=True):
    """The token of a tenant in a region."""

    region: str
    name: str
    pool: str
    comment: str

    @property
    def token_id(self) -> str:
        return f"{TENANT_USER}!{self.name}"

    @property
    def acl_path(self) -> str:
        return f"/pool/{self.pool}"

    @property
    def owned(self) -> Owned:
        token = f"access/users/{TENANT_USER}/token/{self.name}"
        return Owned(f"comment {self.comment}", names=(token, "access/acl"))

    async def find(self, pve: PveReader) -> TokenRow | None:
        """Return the token, None if there is none; raises ``Foreign`` if it is another owner's."""
        same_region(pve, self.region)
        rows = await pve.access.tokens(TENANT_USER)
        found = next((row for row in rows if row.tokenid == self.name), None)
        if found is not None:
            what = f"token {self.token_id} in region {self.region}"
            verify_words(found.comment, self.comment, what)
        return found

    async def issue(self, pve: PveWriter) -> SecretValue:
        """Make the token anew with rights on its pool; the secret of an older one ends."""
        if await self.find(pve) is not None:
            await pve.access.delete_token(TENANT_USER, self.name)
        made = await pve.access.create_token(
            TENANT_USER, self.name, privsep=True, comment=self.comment
        )
        await pve.access.set_acl(self.acl_path, TENANT_ROLE, users=TENANT_USER)
        await pve.access.set_acl(self.acl_path, TENANT_ROLE, tokens=self.token_id)
        return made.secret


class RevokeToken(Step, frozen=True, kw_only=True):
    """Delete the token of a tenant; Proxmox deletes its ACL entries too."""

    token: TenantToken

    @property
    def region(self) -> str:
        return self.token.region

    @property
    def owned(self) -> Owned:
        return self.token.owned

    async def perform(self, pve: PveWriter) -> Upid | None:
        if await self.token.find(pve) is not None:
            await pve.access.delete_token(TENANT_USER, self.token.name)
        return None
