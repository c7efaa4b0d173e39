"""The bootstrap signer: keeps one signature per bootstrap token in ``cluster-info``."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.bootstrapsigner import plan
from moxwell.embedded.controllermanager.resources import CONFIG_MAPS, SECRETS
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.move import Done

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedTokens:
    """``cluster-info`` and the Secrets of bootstrap tokens."""

    info: Json | None
    secrets: tuple[Json, ...] = field(repr=False)
    now: datetime


class BootstrapSigner(WritingReconciler[Json, ObservedTokens | None, Json]):
    """Reconciles Secrets; a bootstrap token without its signature signs for all of them."""

    kind = SECRETS

    def __init__(self, kube: Kube, clock: Clock, secrets: Cache[Any]) -> None:
        super().__init__(kube)
        self._clock, self._secrets = clock, secrets

    async def see(self, secret: Json, reader: Reader) -> ObservedTokens | None:
        if secret.get("type") != plan.TYPE or secret["metadata"]["namespace"] != plan.TOKENS:
            return None
        info = await reader.find(CONFIG_MAPS, plan.NAME, plan.NAMESPACE)
        now = self._clock.now()
        if plan.is_signed(info, secret, now):  # many machines join at the same time
            return None
        found = self._secrets.list(plan.TOKENS)
        return ObservedTokens(info, tuple(s for s in found if s.get("type") == plan.TYPE), now)

    def plan(self, secret: Json, seen: ObservedTokens | None) -> WriteMove:
        return Done() if seen is None else plan.next_move(seen.info, seen.secrets, seen.now)

    def describe(self, secret: Json, seen: ObservedTokens | None, move: WriteMove) -> None:
        return None
