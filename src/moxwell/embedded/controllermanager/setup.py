"""The controllers of kube-controller-manager as one list, for one apiserver."""

from typing import Any

from cryptography import x509

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.bootstrapsigner.controller import BootstrapSigner
from moxwell.embedded.controllermanager.cronjob.controller import CronJobController
from moxwell.embedded.controllermanager.csrapprover.controller import CSRApprover
from moxwell.embedded.controllermanager.csrsigner.controller import CSRSigner
from moxwell.embedded.controllermanager.csrsigner.plan import CAKey
from moxwell.embedded.controllermanager.daemonset.controller import DaemonSetController
from moxwell.embedded.controllermanager.deployment.controller import DeploymentController
from moxwell.embedded.controllermanager.disruption.controller import DisruptionController
from moxwell.embedded.controllermanager.endpointslice.controller import EndpointSliceController
from moxwell.embedded.controllermanager.job.controller import JobController
from moxwell.embedded.controllermanager.nodelifecycle.controller import NodeLifecycleController
from moxwell.embedded.controllermanager.podgc.controller import PodGCController
from moxwell.embedded.controllermanager.replicaset.controller import ReplicaSetController
from moxwell.embedded.controllermanager.resources import (
    DAEMON_SETS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
)
from moxwell.embedded.controllermanager.statefulset.controller import StatefulSetController
from moxwell.embedded.controllermanager.tainteviction.controller import TaintEvictionController
from moxwell.kube.client import Kube
from moxwell.runtime.caches import Caches
from moxwell.runtime.reconciler import Controller


def controllers(
    kube: Kube, caches: Caches, clock: Clock, ca: x509.Certificate, ca_key: CAKey
) -> tuple[Controller, ...]:
    """``ca`` and ``ca_key`` sign the client certificates of kubelets."""
    pods, nodes = caches.of(PODS), caches.of(NODES)
    budgets = caches.of(POD_DISRUPTION_BUDGETS)
    reconcilers: dict[str, Any] = {
        "deployment": DeploymentController(kube),
        "replicaset": ReplicaSetController(kube),
        "statefulset": StatefulSetController(kube),
        "daemonset": DaemonSetController(kube, caches.of(DAEMON_SETS), nodes),
        "job": JobController(kube),
        "cronjob": CronJobController(kube, clock),
        "endpointslice": EndpointSliceController(kube, caches.of(SERVICES), pods, nodes),
        "disruption": DisruptionController(budgets, pods),
        "nodelifecycle": NodeLifecycleController(kube, clock, nodes),
        "tainteviction": TaintEvictionController(kube, clock, nodes, pods),
        "podgc": PodGCController(kube, nodes, pods),
        "bootstrapsigner": BootstrapSigner(kube, clock, caches.of(SECRETS)),
        "csrapprover": CSRApprover(kube),
        "csrsigner": CSRSigner(kube, clock, ca, ca_key),
    }
    return tuple(
        Controller(name=f"embedded.{name}", reconciler=reconciler)
        for name, reconciler in reconcilers.items()
    )
