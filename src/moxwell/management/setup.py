"""The controller of a bootstrap, for the composition root."""

from collections.abc import Sequence

from moxwell.kube.client import Kube
from moxwell.management.controller import BootstrapReconciler, is_request, request_object
from moxwell.management.manifests import ManifestStage
from moxwell.management.observed import ManagementObserver
from moxwell.management.spec import ManagementSpec
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.tenant_clients import TenantClients

__all__ = ["controller", "request_object"]


def controller(
    kube: Kube, spec: ManagementSpec, stages: Sequence[ManifestStage], targets: TenantClients
) -> Controller:
    """The controller that makes or removes the management cluster."""
    observer = ManagementObserver(spec, stages, targets.find)
    reconciler = BootstrapReconciler(kube, spec, observer, targets)
    return Controller(name="management.bootstrap", reconciler=reconciler, needs=is_request)
