"""The envtest itself: a control plane that works, with what can be added to it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from envtest.control_plane import ControlPlane
from envtest.process import wait_for

pytestmark = pytest.mark.genuine
NODE = {
    "metadata": {"name": "envtest-node"},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
POD = {
    "metadata": {"name": "p"},
    "spec": {
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "registry.example/x"}],
    },
}
PODS = "/api/v1/namespaces/default/pods"


def test_the_version_is_stamped(genuine: ControlPlane) -> None:
    status, found = genuine.request("GET", "/version")
    assert (status, found["major"]) == (200, "1")
    assert found["gitVersion"].startswith("v1.")


def test_kubectl_speaks_to_it(genuine: ControlPlane) -> None:
    assert "default" in genuine.kubectl("get", "namespaces", "-o", "name").stdout


def test_users_are_told_apart(genuine: ControlPlane) -> None:
    genuine.kubeconfig_for("someone", "a-group")
    done = genuine.kubectl("get", "nodes", "--as=someone", check=False)
    assert "cannot list resource" in done.stderr


def test_a_scheduler_binds_a_pod(own_genuine: ControlPlane) -> None:
    own_genuine.start_scheduler()
    assert own_genuine.request("POST", "/api/v1/nodes", NODE)[0] == 201
    assert own_genuine.request("POST", PODS, POD)[0] == 201
    bound = wait_for(
        lambda: own_genuine.request("GET", f"{PODS}/p")[1]["spec"].get("nodeName"),
        "a node for the pod",
    )
    assert bound == "envtest-node"


def test_programs_are_found(envtest_program: Callable[[str], Path]) -> None:
    assert envtest_program("kubectl").is_file()
