"""Genuine Cluster API on the envtest: its webhooks answer, its IPAM provider gives addresses."""

import pytest

from envtest.control_plane import ControlPlane
from envtest.process import wait_for

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
POOL = """
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: pool, namespace: envtest}
spec: {addresses: ["10.9.0.10-10.9.0.20"], prefix: 24, gateway: 10.9.0.1}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta1
kind: IPAddressClaim
metadata: {name: claim, namespace: envtest}
spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: pool}}
"""
EMPTY = """
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: c, namespace: envtest}
spec: {}
"""
ADDRESS = "/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/envtest/ipaddresses/claim"


def test_a_claim_gets_an_address(capi: ControlPlane) -> None:
    capi.namespace("envtest")
    capi.kubectl("apply", "-f", "-", stdin=POOL)
    found = wait_for(
        lambda: body if (body := capi.request("GET", ADDRESS)[1]).get("spec") else None, "address"
    )
    assert found["spec"]["address"] == "10.9.0.10"


def test_admission_and_conversion_answer(capi: ControlPlane) -> None:
    capi.namespace("envtest")
    done = capi.kubectl("apply", "-f", "-", stdin=EMPTY, check=False)
    assert "must be set" in done.stderr
