"""The controllers of Cluster API and its providers as one list, for the composition root."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.capi.addons import ClusterResourceSet
from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.api.capi.talos import TalosConfig
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress
from moxwell.api.kinds import Resource
from moxwell.bootstrap.talos_access import DialTalos
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.cluster.controller import ClusterController
from moxwell.embedded.clusterapi.clusterresourceset.controller import (
    ClusterResourceSetController,
)
from moxwell.embedded.clusterapi.clusterresourceset.plan import RESOURCES_APPLIED
from moxwell.embedded.clusterapi.ipam.controller import IPAddressClaimController, IPPoolController
from moxwell.embedded.clusterapi.kubeadm.controller import KubeadmConfigController
from moxwell.embedded.clusterapi.kubeadmcontrolplane.controller import (
    KubeadmControlPlaneController,
)
from moxwell.embedded.clusterapi.machine.controller import (
    URGENT_STATUS,
    MachineController,
    may_wait,
)
from moxwell.embedded.clusterapi.machinedeployment.controller import MachineDeploymentController
from moxwell.embedded.clusterapi.machinehealthcheck.controller import (
    MachineHealthCheckController,
)
from moxwell.embedded.clusterapi.machineset.controller import MachineSetController
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.embedded.clusterapi.talos.controller import TalosConfigController
from moxwell.embedded.clusterapi.taloscontrolplane.controller import (
    TalosControlPlaneController,
    dial_over_grpc,
)
from moxwell.embedded.clusterapi.taloscontrolplane.plan import AVAILABLE
from moxwell.kube.client import Kube
from moxwell.runtime.caches import Caches
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients

PAUSABLE = {"cluster", "machine", "machineset", "machinedeployment", "kubeadmconfig"} | {
    "talosconfig",
    "kubeadmcontrolplane",
    "taloscontrolplane",
    "ipaddressclaim",
    "clusterresourceset",
}

CONDITIONS = {  # that report a failed pass; the others have Ready
    "clusterresourceset": RESOURCES_APPLIED,
    "taloscontrolplane": AVAILABLE,
}


def controllers(
    kube: Kube,
    caches: Caches,
    clock: Clock,
    tenants: TenantClients,
    *,
    resources: Sequence[Resource],
    infrastructure: tuple[Any, Any],
    control_planes: Sequence[Any],
    dial_talos: DialTalos = dial_over_grpc,
) -> tuple[Controller, ...]:
    """``infrastructure`` are the cluster and machine kinds of the infrastructure provider."""
    infra_cluster, infra_machine = infrastructure
    parts = (infra_machine, KubeadmConfig, TalosConfig)
    by_kind = {(part.resource.group, part.resource.kind): caches.of(part) for part in parts}
    resolver, machines = ReferenceResolver(resources, by_kind), caches.of(Machine)
    addresses, checks = caches.of(IPAddress), caches.of(MachineHealthCheck)
    reconcilers: dict[str, Any] = {
        "cluster": ClusterController(kube, resolver, machines, (infra_cluster, *control_planes)),
        "machine": MachineController(kube, resolver, tenants, clock, parts),
        "machineset": MachineSetController(kube, resolver),
        "machinedeployment": MachineDeploymentController(kube),
        "machinehealthcheck": MachineHealthCheckController(kube, tenants, clock, checks, machines),
        "kubeadmconfig": KubeadmConfigController(kube, tenants, clock),
        "talosconfig": TalosConfigController(kube, tenants, clock),
        "kubeadmcontrolplane": KubeadmControlPlaneController(kube, resolver, clock),
        "taloscontrolplane": TalosControlPlaneController(kube, resolver, clock, dial_talos),
        "clusterresourceset": ClusterResourceSetController(
            kube, tenants, clock, caches.of(ClusterResourceSet)
        ),
        "ipaddressclaim": IPAddressClaimController(kube, clock, caches),
        "inclusterippool": IPPoolController(InClusterIPPool, addresses),
        "globalinclusterippool": IPPoolController(GlobalInClusterIPPool, addresses),
    }
    return tuple(_controller(name, reconciler) for name, reconciler in reconcilers.items())


def _controller(name: str, reconciler: Any) -> Controller:
    return Controller(
        name=f"embedded.{name}",
        reconciler=reconciler,
        pausable=name in PAUSABLE,
        condition=CONDITIONS.get(name),
        per_shard=1 if name == "ipaddressclaim" else None,
        defers_status=may_wait if name == "machine" else None,
        urgent_status=URGENT_STATUS,
    )
