"""
The add-ons of a tenant with simulated nodes: CoreDNS and metrics-server, as on other clusters.

Their pods are simulated as all others. The API server itself answers for metrics.
"""

from contextlib import suppress
from ipaddress import ip_network
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.built_in import REPOSITORY
from moxwell.embedded.controlplanes.addons.coredns import coredns
from moxwell.embedded.controlplanes.addons.metrics_server import metrics_workload
from moxwell.errors import Retryable
from moxwell.kube.client import Kube
from moxwell.kube.manifests import apply_all

Json = dict[str, Any]
NODES, POLL_SECONDS = Resource("", "v1", "nodes", "Node", namespaced=False), 2.0


async def apply_with_first_node(
    kube: Kube, clock: Clock, spec: HostedControlPlaneSpec, url: str
) -> None:
    """
    Create or update them when there is a node for their pods; idempotent.

    Before, their pods would wait, and the autoscaler would make a node for them beside those that
    are about to join.
    """
    while True:
        with suppress(Retryable):
            if any(map(accepts_pods, (await kube.list(NODES)).items)):
                await apply_all(kube, objects(spec, url), "moxwell-addons")
                return
        await clock.sleep(POLL_SECONDS)


def accepts_pods(node: Json) -> bool:
    """Whether pods without tolerations run on a node: it is ready and initialized."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    tainted = any(t.get("effect") in ("NoSchedule", "NoExecute") for t in spec.get("taints") or ())
    ready = any(
        c.get("type") == "Ready" and c.get("status") == "True"
        for c in status.get("conditions") or ()
    )
    return ready and not tainted and not spec.get("unschedulable")


def objects(spec: HostedControlPlaneSpec, url: str) -> tuple[Json, ...]:
    """All objects; ``url`` is the API server as nodes reach it."""
    return (*coredns(REPOSITORY, spec), _api_service(spec), *metrics_workload(REPOSITORY, ()))


def _api_service(spec: HostedControlPlaneSpec) -> Json:
    """The Service ``kubernetes``, which kube-apiserver creates."""
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]
    address = str(ip_network(spec.service_cidr.split(",")[0])[1])
    meta = {
        "name": "kubernetes",
        "namespace": "default",
        "labels": {"component": "apiserver", "provider": "kubernetes"},
    }
    body = {"clusterIP": address, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": body}
