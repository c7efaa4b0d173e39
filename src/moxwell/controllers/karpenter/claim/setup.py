"""Adds the controllers of node claims and nodes to the runtime of the scaled cluster."""

from dataclasses import dataclass, field

from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim import controller as claims
from moxwell.controllers.karpenter.claim import describe
from moxwell.controllers.karpenter.claim.observed import ClaimTimeouts
from moxwell.controllers.karpenter.claim.see import ClaimObserver
from moxwell.controllers.karpenter.claim_metrics import ClaimMetrics
from moxwell.controllers.karpenter.eligibility import controller as eligibility
from moxwell.controllers.karpenter.eligibility.see import EligibilityObserver
from moxwell.controllers.karpenter.garbage import controller as garbage
from moxwell.controllers.karpenter.lookup import ClaimLookup
from moxwell.controllers.karpenter.node_termination import TerminationObserver
from moxwell.controllers.karpenter.provider import MachineProvider
from moxwell.controllers.karpenter.repair import controller as repair
from moxwell.controllers.karpenter.repair.plan import POLICIES, RepairPolicy
from moxwell.controllers.karpenter.termination import controller as termination
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    """Timeouts of node claims; ``repair`` is a feature gate of Karpenter, which is off there."""

    timeouts: ClaimTimeouts = field(default_factory=ClaimTimeouts)
    garbage_seconds: float = garbage.INTERVAL_SECONDS
    repair: bool = False
    repair_policies: tuple[RepairPolicy, ...] = POLICIES


@dataclass(frozen=True, slots=True)
class ClaimControllers:
    """What ``add_claims`` created."""

    lookup: ClaimLookup
    metrics: ClaimMetrics


def add_claims(
    runtime: Runtime,
    clock: Clock,
    provider: MachineProvider,
    settings: ClaimSettings | None = None,
) -> ClaimControllers:
    """Add the controllers that follow node claims from their launch to their end."""
    given = settings or ClaimSettings()
    manager, kube = runtime.manager, runtime.kube
    lookup = ClaimLookup(manager.caches)
    metrics = ClaimMetrics(runtime.metrics.registry)
    ending = TerminationObserver(manager.caches, lookup, provider, clock)
    observer = ClaimObserver(lookup, ending, provider, clock, given.timeouts)
    claim = claims.NodeClaimReconciler(kube, provider, observer, lookup, metrics)
    manager.add(Controller(name=claims.NAME, reconciler=claim, owns=describe.OWNED))
    eligible = eligibility.EligibilityReconciler(
        EligibilityObserver(lookup, provider, clock), lookup
    )
    manager.add(
        Controller(name=eligibility.NAME, reconciler=eligible, condition="", owns=eligibility.OWNED)
    )
    end = termination.TerminationReconciler(kube, provider, ending, manager.recorder, metrics)
    manager.add(
        Controller(
            name=termination.NAME, reconciler=end, needs=termination.is_ending, sees_deleting=True
        )
    )
    if given.repair:
        mend = repair.NodeRepairReconciler(kube, lookup, clock, metrics, given.repair_policies)
        manager.add(Controller(name=repair.NAME, reconciler=mend))
    collection = garbage.GarbageCollection(kube, provider, clock, metrics, given.garbage_seconds)
    manager.add_loop(garbage.NAME, collection.run, shard="")
    return ClaimControllers(lookup, metrics)
