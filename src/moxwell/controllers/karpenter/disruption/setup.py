"""Adds the disruption loop to the runtime of the scaled cluster."""

from moxwell.clock import Clock
from moxwell.controllers.karpenter.claim.setup import ClaimControllers
from moxwell.controllers.karpenter.decisions import DecisionRunner
from moxwell.controllers.karpenter.disruption import controller
from moxwell.controllers.karpenter.disruption.controller import (
    DisruptionLoop,
    DisruptionSettings,
)
from moxwell.controllers.karpenter.disruption.execution import CommandExecution
from moxwell.controllers.karpenter.disruption_metrics import DisruptionMetrics
from moxwell.controllers.karpenter.provisioning_metrics import ProvisioningMetrics
from moxwell.controllers.karpenter.state.snapshots import ClusterState
from moxwell.runtime.manager import Runtime


def add_disruption(
    runtime: Runtime,
    clock: Clock,
    state: ClusterState,
    claims: ClaimControllers,
    provisioning: ProvisioningMetrics,
    settings: DisruptionSettings | None = None,
    decisions: DecisionRunner | None = None,
) -> DisruptionLoop:
    """Add the loop that deletes and replaces nodes."""
    manager, kube = runtime.manager, runtime.kube
    metrics = DisruptionMetrics(runtime.metrics.registry)
    execution = CommandExecution(
        kube, clock, manager.recorder, metrics, claims.metrics, provisioning, controller.NAME
    )
    loop = DisruptionLoop(
        kube,
        state,
        claims.lookup,
        clock,
        manager.recorder,
        execution,
        metrics,
        settings,
        decisions,
    )
    manager.add_loop(controller.NAME, loop.run, shard="")
    return loop
