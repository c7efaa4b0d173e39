"""
Upstream Go programs on the embedded API server: informers, leader election, protobuf, events.

kube-scheduler represents client-go, the in-cluster IPAM provider controller-runtime.
"""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from apisuite import embedded
from envtest import managers
from envtest.process import Process, free_port, wait_for

pytestmark = [pytest.mark.genuine, pytest.mark.xdist_group("kubectl")]
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "10"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
  conditions: [{type: Ready, status: "True"}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: registry.example/x}]}
"""
POOL = """
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: pool}
spec: {addresses: ["10.9.0.10-10.9.0.20"], prefix: 24, gateway: 10.9.0.1}
"""
CLAIM = """
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {name: NAME}
spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: pool}}
"""
# kinds that this kube-scheduler requires and the embedded API server lacks
DEVICES = (
    ("resourceclaims", "ResourceClaim", "Namespaced"),
    ("deviceclasses", "DeviceClass", "Cluster"),
    ("resourceslices", "ResourceSlice", "Cluster"),
)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The embedded API server, and kubectl for it."""

    config: Path
    folder: Path
    program: Path

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        command = [str(self.program), "--kubeconfig", str(self.config), *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else f"FAILED {done.stderr}"

    def apply(self, text: str) -> None:
        said = self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        assert "FAILED" not in said, said


@pytest.fixture
def server(envtest_program: Callable[[str], Path], tmp_path: Path) -> Iterator[Embedded]:
    kubectl = envtest_program("kubectl")
    process, config = embedded.start(tmp_path / "embedded")
    yield Embedded(config, tmp_path, kubectl)
    process.stop()


def loose(plural: str, kind: str, scope: str) -> dict[str, Any]:
    shape = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": shape}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": "resource.k8s.io", "scope": scope, "names": names, "versions": [version]},
    }


@pytest.fixture
def scheduler(server: Embedded, envtest_program: Callable[[str], Path]) -> Iterator[Process]:
    server.apply(yaml.safe_dump_all(loose(*device) for device in DEVICES))
    process = Process(
        "kube-scheduler",
        [
            envtest_program("kube-scheduler"),
            f"--kubeconfig={server.config}",
            f"--authentication-kubeconfig={server.config}",
            f"--authorization-kubeconfig={server.config}",
            "--leader-elect=true",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={server.folder}",
        ],
        folder=server.folder,
    )
    yield process
    process.stop()


def test_kube_scheduler_binds_a_pod(server: Embedded, scheduler: Process) -> None:
    server.apply(NODE)
    server.kubectl(
        "patch",
        "node",
        "n1",
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"capacity":{"cpu":"4","memory":"8Gi","pods":"10"},'
        '"allocatable":{"cpu":"4","memory":"8Gi","pods":"10"}}}',
    )
    server.apply(POD)
    path = "jsonpath={.spec.nodeName}"
    bound = wait_for(lambda: server.kubectl("get", "pod", "p", "-o", path) or None, "a node")
    assert bound == "n1", scheduler.tail()
    lease = server.kubectl("get", "lease", "-n", "kube-system", "-o", "name")
    assert "kube-scheduler" in lease
    events = wait_for(lambda: server.kubectl("get", "events", "-o", "name") or None, "an event")
    assert "event" in events


@pytest.fixture
def provider(server: Embedded, envtest_program: Callable[[str], Path]) -> Iterator[Process]:
    program = envtest_program("in-cluster-ipam")
    for manager in (managers.CORE, managers.IPAM):
        envtest_program(manager.name)
        server.apply(yaml.safe_dump_all(managers.definitions(manager)))
    keys = server.folder / "embedded"
    process = Process(
        "in-cluster-ipam",
        [
            program,
            f"--kubeconfig={server.config}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
            f"--diagnostics-address=127.0.0.1:{free_port()}",
            "--insecure-diagnostics",
            f"--webhook-port={free_port()}",
            f"--webhook-cert-dir={keys}",
            "--webhook-cert-name=server.crt",
            "--webhook-key-name=server.key",
        ],
        folder=server.folder,
    )
    yield process
    process.stop()


def test_the_ipam_provider_allocates_addresses(server: Embedded, provider: Process) -> None:
    server.apply(POOL)
    for name in ("first", "second"):
        server.apply(CLAIM.replace("NAME", name))
    path = "jsonpath={.items[*].spec.address}"

    def given() -> str | None:
        found = server.kubectl("get", "ipaddresses", "-o", path)
        return found if len(found.split()) == 2 else None

    assert sorted(wait_for(given, "two addresses").split()) == ["10.9.0.10", "10.9.0.11"]
    server.kubectl("delete", "ipaddressclaim", "--all", "--timeout=120s")
    left = ("get", "ipaddresses", "-o", "name")
    wait_for(lambda: True if server.kubectl(*left) == "" else None, "no address is left")
    assert provider.running
