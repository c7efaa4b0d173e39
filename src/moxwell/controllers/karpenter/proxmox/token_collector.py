"""Deletes join tokens whose node has registered or whose node claim does not exist."""

import asyncio
from collections.abc import Iterable

from moxwell.api.core.resources import Secret
from moxwell.api.karpenter.nodeclaims import REGISTERED, NodeClaim
from moxwell.controllers.karpenter.proxmox.node_bootstrap import TOKEN_LABEL, TOKEN_NAMESPACE
from moxwell.kube.client import Kube
from moxwell.runtime.cache import Cache
from moxwell.runtime.writes import Delete

PERIOD_SECONDS = 60.0


class JoinTokenCollector:
    """Checks the join tokens of one cluster periodically."""

    def __init__(self, kube: Kube, claims: Cache[NodeClaim]) -> None:
        self._kube, self._claims = kube, claims

    async def run(self) -> None:
        """Collect until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            if self._claims.synced:
                await self.collect()

    async def collect(self) -> None:
        """Delete the tokens that no node needs."""
        tokens = await self._kube.list(Secret, TOKEN_NAMESPACE, labels=TOKEN_LABEL)
        for token in obsolete(tokens.items, self._claims.list()):
            delete = Delete(Secret, token.name, TOKEN_NAMESPACE, uid=token.uid)
            await delete.perform(self._kube)


def obsolete(tokens: Iterable[Secret], claims: Iterable[NodeClaim]) -> tuple[Secret, ...]:
    """The tokens that no node needs any more."""
    joining = {claim.uid for claim in claims if not _is_registered(claim)}
    return tuple(t for t in tokens if t.metadata.labels.get(TOKEN_LABEL) not in joining)


def _is_registered(claim: NodeClaim) -> bool:
    return any(c.type == REGISTERED and c.status == "True" for c in claim.status.conditions)
