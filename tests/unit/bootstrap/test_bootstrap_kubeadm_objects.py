"""The objects that a joining node reads."""

from typing import Any

import pytest
import yaml

from moxwell.bootstrap import join_tokens, kubeadm
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes import kubeadm_objects
from moxwell.runtime.key import Key


def found(objects: tuple[dict[str, Any], ...], kind: str, name: str) -> dict[str, Any]:
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize(
    ("service_cidr", "address"),
    [("10.96.0.0/16", "10.96.0.10"), ("10.1.0.0/24,fd00::/112", "10.1.0.10")],
)
def test_the_kubelet_of_a_hosted_cluster(service_cidr: str, address: str) -> None:
    spec = HostedControlPlaneSpec(
        key=Key("team", "c1"), uid="u", version="v1.36.3", replicas=1, service_cidr=service_cidr
    )
    objects = kubeadm_objects.objects("https://10.0.0.1:6443", "CA", spec)
    stored = found(objects, "ConfigMap", "kubelet-config")["data"]["kubelet"]
    kubelet = yaml.safe_load(stored)
    assert kubelet["clusterDNS"] == [address]
    assert kubelet["clusterDomain"] == "cluster.local"
    assert kubelet["authentication"]["x509"] == {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}


def test_a_bootstrap_token_may_look_for_a_node_of_the_same_name() -> None:
    objects = kubeadm.bootstrap_objects("https://10.0.0.1:6443", "CA", "{}")
    role = found(objects, "ClusterRole", "kubeadm:get-nodes")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    binding = found(objects, "ClusterRoleBinding", "kubeadm:get-nodes")
    assert [s["name"] for s in binding["subjects"]] == [kubeadm.TOKENS, join_tokens.GROUP]
