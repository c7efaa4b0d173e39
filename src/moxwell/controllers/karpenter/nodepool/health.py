"""Whether the nodes of a pool register: the outcome of its last four node claims."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.karpenter.nodeclaims import LAUNCHED, REGISTERED, NodeClaim
from moxwell.scheduling.well_known_labels import NODE_POOL

REMEMBERED, UNHEALTHY_SHARE = 4, 0.5


@dataclass(slots=True)
class _Outcomes:
    """Outcomes of one generation of a pool and its node class; True: registered."""

    last: deque[bool] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class RegistrationHealth:
    """Follows node claims in the cache and remembers how their registration ended."""

    def __init__(self) -> None:
        self._pools: dict[str, _Outcomes] = {}
        self._generations: dict[str, tuple[int, int]] = {}

    def claim_changed(self, before: Any, after: NodeClaim | None, listed: bool) -> None:
        """A handler of the cache of node claims."""
        was, now = _registered(before), _registered(after)
        if after is not None and now and not was:
            self._add(after, registered=True)
        elif after is None and before is not None and not was and _launched(before):
            self._add(before, registered=False)

    def _add(self, claim: NodeClaim, *, registered: bool) -> None:
        pool = claim.metadata.labels.get(NODE_POOL, "")
        self._pools.setdefault(pool, _Outcomes()).last.append(registered)

    def observe(self, pool: str, generation: tuple[int, int]) -> bool | None:
        """Whether a pool is healthy; None if nothing is known of these generations."""
        if self._generations.get(pool) not in (None, generation):
            self._pools.pop(pool, None)
        self._generations[pool] = generation
        outcomes = self._pools.get(pool)
        if outcomes is None or not outcomes.last:
            return None
        failures = outcomes.last.count(False)
        return failures / REMEMBERED < UNHEALTHY_SHARE


def _registered(claim: Any) -> bool:
    return claim is not None and _is_true(claim, REGISTERED)


def _launched(claim: NodeClaim) -> bool:
    return _is_true(claim, LAUNCHED)


def _is_true(claim: NodeClaim, type_: str) -> bool:
    return any(c.type == type_ and c.status == "True" for c in claim.status.conditions)
