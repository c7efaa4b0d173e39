"""Reads the resource pool, the VNet and the API token of a tenant in a region."""

from dataclasses import replace

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.tenant.isolation import (
    POOL,
    TOKEN,
    VNET,
    ObservedIsolation,
    pool_name,
    secret_name,
    token_of,
    vnet_name,
)
from moxwell.errors import Denied, Missing, Retryable
from moxwell.kube.reader import Reader
from moxwell.pve.errors import PermissionDenied
from moxwell.pve.regions import Region
from moxwell.pve.tenant_access import TENANT_ROLE, TENANT_USER

SECRETS = Resource("", "v1", "secrets", "Secret")
INIT = "run `moxwell init` for the region with --feature tenants beside its other features"


class IsolationObserver:
    """Reads one tenant in one region; ``what`` limits the requests to what may exist."""

    def __init__(self, reader: Reader, namespace: str, *, deleting: bool) -> None:
        self._reader, self._namespace, self._deleting = reader, namespace, deleting

    async def see(self, region: Region, what: frozenset[str]) -> ObservedIsolation:
        """What exists; a region that does not answer or refuses is an error text."""
        found = nothing = ObservedIsolation(region=region.name, parent=region.config.pool)
        try:
            found = await self._pool(region, found) if POOL in what else found
            found = await self._vnet(region, found) if VNET in what else found
            return await self._token(region, found) if TOKEN in what else found
        except PermissionDenied as error:
            return replace(nothing, error=f"{error}; {INIT}")
        except Retryable as error:
            return replace(nothing, error=str(error))

    async def _pool(self, region: Region, found: ObservedIsolation) -> ObservedIsolation:
        name = pool_name(self._namespace, found.parent)
        row = next((p for p in await region.reader.pools.list() if p.poolid == name), None)
        if row is None:
            return found
        members = len((await region.reader.pools.get(name)).members)
        return replace(found, pool_comment=row.comment, members=members)

    async def _vnet(self, region: Region, found: ObservedIsolation) -> ObservedIsolation:
        name, sdn = vnet_name(self._namespace), region.reader.sdn
        vnet = next((row for row in await sdn.vnets() if row.vnet == name), None)
        pending = any(row.vnet == name and row.state for row in await sdn.vnets(pending=True))
        if vnet is None:
            return replace(found, zones=await sdn.zones(), vnet_pending=pending)
        pending |= any(row.state for row in await sdn.subnets(name, pending=True))
        return replace(
            found,
            vnet=vnet,
            subnets=await sdn.subnets(name),
            vnet_pending=pending,
            vnet_used=await self._is_used(name),
        )

    async def _is_used(self, vnet: str) -> bool:
        """Whether a machine of the tenant names the VNet."""
        machines = (await self._reader.list(ProxmoxMachine, self._namespace)).items
        devices = [d for m in machines if m.spec.network for d in m.spec.network.network_devices]
        return any(device.bridge == vnet for device in devices)

    async def _token(self, region: Region, found: ObservedIsolation) -> ObservedIsolation:
        token = token_of(self._namespace, found)
        try:
            rows = await region.reader.access.tokens(TENANT_USER)
        except (Denied, Missing):
            if self._deleting:  # it never had the right to make tokens
                return found
            raise
        row = next((t for t in rows if t.tokenid == token.name), None)
        if row is None:
            return found
        acl = await region.reader.access.acl()
        granted = {r.ugid for r in acl if (r.path, r.roleid) == (token.acl_path, TENANT_ROLE)}
        stored = await self._reader.find(SECRETS, secret_name(region.name), self._namespace)
        complete = stored is not None and {TENANT_USER, token.token_id} <= granted
        return replace(found, token_comment=row.comment, token_granted=complete)
