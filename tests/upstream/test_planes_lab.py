"""
The lab with tenants on genuine programs, as a person uses it: the command, kubectl, kill -9.

One story on one instance, as its start costs most of the time.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envtest.locate import cache
from envtest.plugin import KUBERNETES, require
from envtest.process import wait_for
from moxwell.app.state_dir import is_alive
from moxwell.embedded.controlplanes.supervision import process
from support.lab_inspector import quick_world
from support.lab_instance import Instance, instance

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("genuine planes")]
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  containers: [{name: c, image: busybox, volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
"""
# two replicas, the default of a cluster
PROGRAMS = {"etcd", "kube-apiserver-0", "kube-apiserver-1", "api-balancer"} | {
    "kube-controller-manager", "kube-scheduler",
}  # fmt: skip


class Kubectl:
    """Genuine kubectl with one kubeconfig."""

    def __init__(self, program: Path, config: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(config)]
        self._env = {**os.environ, "HOME": str(config.parent), "KUBECTL_KUBERC": "false"}

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        return subprocess.run(
            [*self._command, *args], input=stdin, env=self._env,
            capture_output=True, text=True, check=True, timeout=240,
        ).stdout  # fmt: skip

    def get(self, *args: str) -> Any:
        return json.loads(self("get", *args, "-o", "json"))


def lives(lab: Instance) -> dict[str, process.RunningProcess]:
    """The programs that run for an instance, by their run files."""
    found = {
        file.stem: process.find(file)
        for file in process.run_files(lab.state.control_plane_binaries)
    }
    return {stem: life for stem, life in found.items() if life is not None}


def running(tenant: Kubectl, label: str) -> list[str] | None:
    """Nodes of the pods with a label, once all six of them run."""
    pods = tenant.get("pods", "-l", f"app={label}")["items"]
    nodes = [p["spec"]["nodeName"] for p in pods if p.get("status", {}).get("phase") == "Running"]
    return nodes if len(nodes) == 6 else None


def all_open(tenant: Kubectl) -> bool | None:
    """Whether pods may go everywhere: taints go a moment after a node is ready."""
    nodes = tenant.get("nodes")["items"]
    return True if len(nodes) == 3 and not any(n["spec"].get("taints") for n in nodes) else None


def _tellers(tenant: Kubectl) -> set[str] | None:
    events = tenant.get("events", "--field-selector=reason=Scheduled")["items"]
    return {str(e.get("reportingComponent") or e["source"]["component"]) for e in events} or None


def test_a_lab_on_genuine_programs(tmp_path: Path, envtest_program: Callable[[str], Path]) -> None:
    require(*KUBERNETES)
    kubectl, programs = envtest_program("kubectl"), cache()
    world = f"--world={quick_world(tmp_path)}"
    with instance(tmp_path, "planes", f"--control-plane-binaries={programs}", world) as lab:
        config = tmp_path / "demo.kubeconfig"
        config.write_text(lab.run("cluster", "kubeconfig", "demo").stdout)
        tenant, own = Kubectl(kubectl, config), Kubectl(kubectl, lab.state.kubeconfig)
        _it_is_a_genuine_cluster_in_two_regions(tenant, own)
        wait_for(lambda: all_open(tenant), "three nodes without a taint")
        tenant("create", "deployment", "web", "--image=nginx", "--replicas=6")
        nodes = wait_for(lambda: running(tenant, "web"), "six running pods", seconds=240)
        assert len(set(nodes)) == 3
        events = wait_for(lambda: _tellers(tenant), "events of the scheduler")
        assert events == {"default-scheduler"}
        _volumes_are_bound_and_attached_by_genuine_controllers(tenant)
        _a_merged_kubeconfig_gets_new_certificates(lab, kubectl, own)
        before = lives(lab)
        assert set(before) == PROGRAMS
        lab.kill()
        assert running(tenant, "web") is not None  # it answers without the daemon
        lab.run("up")
        wait_for(lambda: "adopted" in lab.state.log.read_text() or None, "adoption")
        tenant("scale", "deployment", "web", "--replicas=3")
        assert lives(lab) == before
        lab.run("down")
        assert lives(lab) == {}
        lab.run("up")
        before = lives(lab)
        assert len(tenant.get("nodes")["items"]) == 3  # it answers when `up` says so
        lab.kill()
        said = lab.run("down", "--purge").stdout
        assert "Terminated 6 programs that it had left running" in said
        assert not any(is_alive(running.pid) for running in before.values())
        assert not lab.state.folder.exists()


def _a_merged_kubeconfig_gets_new_certificates(lab: Instance, kubectl: Path, own: Kubectl) -> None:
    """kubectl runs moxwell for a certificate, also after the one of the merge was replaced."""
    merged = Kubectl(kubectl, lab.user_kubeconfig)  # `up` has added the demo cluster
    assert "client-key-data" not in lab.user_kubeconfig.read_text()
    assert len(merged.get("nodes")["items"]) == 3
    secret = own.get("secret", "demo-kubeconfig", "-n", "tenant-demo")["data"]["value"]
    where, before = ("tenantcontrolplane", "demo", "-n", "tenant-demo"), digests(lab)
    own("annotate", *where, "certs.kamaji.clastix.io/rotate=now")

    def renewed() -> bool:
        found = own.get("secret", "demo-kubeconfig", "-n", "tenant-demo")
        return bool(found["data"]["value"] != secret)

    wait_for(lambda: renewed() or None, "a new certificate", seconds=120)
    assert len(merged.get("nodes")["items"]) == 3
    wait_for(
        lambda: (len(found := digests(lab)) == 4 and not found & before) or None,
        "every program with new certificates",
        seconds=240,
    )


def digests(lab: Instance) -> set[str]:
    """What the programs that read certificates were started with."""
    return {life.digest for name, life in lives(lab).items() if name.startswith("kube-")}


def _it_is_a_genuine_cluster_in_two_regions(tenant: Kubectl, own: Kubectl) -> None:
    nodes = tenant.get("nodes")["items"]
    regions = {n["metadata"]["labels"]["topology.kubernetes.io/region"] for n in nodes}
    assert regions == {"amsterdam", "frankfurt"}
    version = json.loads(tenant("version", "-o", "json"))["serverVersion"]["gitVersion"]
    plane = own.get("tenantcontrolplane", "demo", "-n", "tenant-demo")
    assert plane["status"]["kubernetesResources"]["version"] == {
        "version": version,
        "status": "Ready",
    }
    assert plane["status"]["storage"]["driver"] == "etcd"
    requests = tenant.get("certificatesigningrequests")["items"]
    conditions = [c for r in requests for c in r["status"]["conditions"]]
    assert {c["reason"] for c in conditions} == {"AutoApproved"}  # by the genuine controllers


def _volumes_are_bound_and_attached_by_genuine_controllers(tenant: Kubectl) -> None:
    tenant("apply", "-f", "-", stdin=CLAIM)

    def is_running() -> bool | None:
        pod = tenant.get("pod", "writer")
        return True if pod.get("status", {}).get("phase") == "Running" else None

    wait_for(is_running, "a pod with a volume", seconds=240)
    assert tenant.get("pvc", "data")["status"]["phase"] == "Bound"
    attached = tenant.get("volumeattachments")["items"]
    assert [a["status"]["attached"] for a in attached] == [True]
