"""All stand-ins for Cluster API in one list, for the composition root."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddressClaim
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.cluster.controller import Clusters
from moxwell.embedded.clusterapi.ipam.controller import Claims, Pools
from moxwell.embedded.clusterapi.kubeadm.controller import KubeadmConfigs
from moxwell.embedded.clusterapi.machine.controller import Machines
from moxwell.embedded.clusterapi.machinedeployment.controller import MachineDeployments
from moxwell.embedded.clusterapi.machinehealthcheck.controller import HealthChecks
from moxwell.embedded.clusterapi.machineset.controller import MachineSets
from moxwell.embedded.clusterapi.references import References
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.kube.client import Kube
from moxwell.runtime.caches import Caches
from moxwell.runtime.reconciler import Controller


def controllers(
    kube: Kube,
    caches: Caches,
    clock: Clock,
    tenants: Tenants,
    *,
    resources: Sequence[Resource],
    infrastructure: tuple[Any, Any],
    control_planes: Sequence[Any],
) -> tuple[Controller, ...]:
    """``infrastructure``: the kinds of an infrastructure cluster and machine, to be watched."""
    refs = References(kube, resources)
    infra_cluster, infra_machine = infrastructure
    parts = (infra_machine, KubeadmConfig)
    loops: dict[str, Any] = {
        "cluster": Clusters(kube, refs, (infra_cluster, *control_planes)),
        "machine": Machines(kube, refs, tenants, clock, parts),
        "machineset": MachineSets(kube, refs),
        "machinedeployment": MachineDeployments(kube),
        "health": HealthChecks(kube, tenants, clock, caches.of(MachineHealthCheck)),
        "kubeadm": KubeadmConfigs(kube, tenants, clock),
        "claim": Claims(kube, clock, caches.of(IPAddressClaim)),
        "pool": Pools(kube, InClusterIPPool),
        "globalpool": Pools(kube, GlobalInClusterIPPool),
    }
    pausable = {"cluster", "machine", "machineset", "machinedeployment", "kubeadm"}
    return tuple(
        Controller(name=f"upstream.{name}", reconciler=loop, pausable=name in pausable)
        for name, loop in loops.items()
    )
