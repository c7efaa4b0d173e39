"""The add-ons of tenants with simulated nodes: which objects, and when."""

from typing import Any

import pytest

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes import simulated_addons
from moxwell.runtime.key import Key

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
NODES: dict[str, tuple[dict[str, Any], bool]] = {
    "ready": ({"status": READY}, True),
    "registered only": ({}, False),
    "not initialized": ({"spec": {"taints": [TAINT]}, "status": READY}, False),
    "cordoned": ({"spec": {"unschedulable": True}, "status": READY}, False),
    "preferably not": (
        {"spec": {"taints": [{"effect": "PreferNoSchedule"}]}, "status": READY},
        True,
    ),
}


@pytest.mark.parametrize(("node", "accepted"), NODES.values(), ids=NODES)
def test_add_ons_wait_for_a_node_that_runs_their_pods(node: dict[str, Any], accepted: bool) -> None:
    assert simulated_addons.accepts_pods(node) is accepted


def test_services_have_the_addresses_of_other_clusters() -> None:
    spec = HostedControlPlaneSpec(key=Key("t", "c"), uid="u", version="v1.34.1", replicas=1)
    made = simulated_addons.objects(spec, "https://127.0.0.1:6443")
    services = {o["metadata"]["name"]: o["spec"] for o in made if o["kind"] == "Service"}
    assert services["kubernetes"]["clusterIP"] == "10.96.0.1"
    assert services["kube-dns"]["clusterIP"] == "10.96.0.10"
    names = {o["metadata"]["name"] for o in made if o["kind"] == "Deployment"}
    assert names == {"coredns", "metrics-server"}
