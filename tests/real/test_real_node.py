"""
A genuine node: cloud-init, containerd, kubelet and kubeadm behind the simulated Proxmox.

``make real`` runs it in network and PID namespaces of its own; nothing else may run it, because it
makes a bridge. The bootstrap ISO, the address and the join configuration come from the controllers
of ``moxwell up --config``, the control plane is a genuine kube-apiserver on a reachable address.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest import locate
from envtest.table import KUBERNETES
from realnode import images, template
from support.lab_inspector import PACE, eventually
from support.lab_instance import Instance, own_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
BRIDGE, HERE, NODES = "mxreal0", "198.51.100.1", "198.51.100.10-198.51.100.19"
TOKEN, SECRET = "moxwell@pve!lab", "6c61622d-0000-4000-8000-6d6f7877656c"
PATIENCE_SECONDS = 900
CLUSTER = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: tenant-real}}
---
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {{name: real, namespace: tenant-real}}
spec:
  version: {KUBERNETES}
  network: {{addresses: ["{NODES}"], prefix: 24, gateway: {HERE}}}
  nodeGroups: [{{name: md0, replicas: 1, instanceType: u1.medium}}]
"""
POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: hello}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
    - name: shell
      image: {images.SHELL}
      imagePullPolicy: Never
      command: [sh, -c, "echo hello from a real node; sleep 36000"]
"""


@pytest.fixture
def bridge() -> None:
    for words in (
        ("link", "set", "lo", "up"),
        ("link", "add", BRIDGE, "type", "bridge"),
        ("address", "add", f"{HERE}/24", "dev", BRIDGE),
        ("link", "set", BRIDGE, "up"),
    ):
        subprocess.run(["ip", *words], check=True)


def world(folder: Path) -> Path:
    """One region of the lab with its templates and no other guests."""
    tree = yaml.safe_load((resources.files("moxwell.lab") / "lab.yaml").read_text())
    region = next(r for r in tree["regions"] if r["name"] == "frankfurt")
    region["pace"] = PACE
    region["guests"] = [g for g in region["guests"] if g.get("template")]
    file = folder / "world.yaml"
    file.write_text(yaml.safe_dump({"regions": [region]}))
    return file


@pytest.fixture
def proxmox(bridge: None, tmp_path: Path) -> Iterator[str]:
    """A configuration file of Moxwell for a simulated Proxmox with real guests."""
    command = [sys.executable, "-m", "realnode.proxmox", str(world(tmp_path)), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["tools", os.environ.get("PYTHONPATH", "")])}
    with (tmp_path / "proxmox.log").open("wb") as log:
        running = subprocess.Popen([*command, BRIDGE], stdout=log, stderr=log, env=env)
    try:
        file = tmp_path / "urls.json"
        eventually(lambda: file.exists() or running.poll() is not None, "Proxmox listens")
        urls = json.loads(file.read_text())
        block = {
            "region": "frankfurt", "urls": [f"{u}/api2/json" for u in urls.values()],
            "ca_file": "ca.pem", "token_id": TOKEN, "token_secret": SECRET,
        }  # fmt: skip
        config = tmp_path / "moxwell.yaml"
        tree = {"clusters": [block], "control_planes": {"address": HERE}}
        config.write_text(yaml.safe_dump(tree))
        yield str(config)
    finally:
        running.terminate()
        running.wait(120)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path, "real")
    own_ports(made.state.folder)
    yield made
    made.run("down", check=False)


class Cluster:
    """kubectl with one kubeconfig."""

    def __init__(self, config: Path) -> None:
        self._words = [str(locate.program("kubectl")), "--kubeconfig", str(config)]

    def run(self, *args: str, text: str | None = None) -> str:
        done = subprocess.run(
            [*self._words, *args], input=text, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else f"failed: {done.stderr}"

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        answer = self.run("get", kind, *args, "-o", "json")
        found: list[dict[str, Any]] = [] if "failed" in answer[:7] else json.loads(answer)["items"]
        return found


def ready(obj: dict[str, Any]) -> bool:
    rows = obj.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in rows)


def initialized(node: dict[str, Any]) -> bool:
    """The cloud controllers have set its addresses and removed the taints."""
    types = {a["type"] for a in node["status"].get("addresses", ())}
    return "InternalIP" in types and not node["spec"].get("taints")


def tenant(mine: Instance, tmp_path: Path) -> Cluster | None:
    """The tenant's API once it answers."""
    file = tmp_path / "tenant.conf"
    words = ("cluster", "kubeconfig", "real", "--namespace", "tenant-real", "--file", str(file))
    if mine.run(*words, check=False).returncode:
        return None
    found = Cluster(file)
    return found if "ok" in found.run("get", "--raw", "/readyz") else None


def test_a_genuine_node_joins_and_runs_a_pod(proxmox: str, mine: Instance, tmp_path: Path) -> None:
    assert not template.missing()
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    management = Cluster(mine.state.kubeconfig)
    assert "created" in management.run("apply", "-f", "-", text=CLUSTER)
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    (node,) = eventually(
        lambda: [n for n in cluster.items("nodes") if ready(n) and initialized(n)],
        "the Node is Ready and initialized by the cloud controllers",
        PATIENCE_SECONDS,
    )
    check_node(node)
    check_pod(cluster)
    check_drain(mine, cluster)
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    guests = management.run("get", "proxmoxmachines", "-A", "-o", "name")
    assert (guests, groups()) == ("", [])


def check_node(node: dict[str, Any]) -> None:
    """Version, container runtime and address are those of the template and of the controllers."""
    info = node["status"]["nodeInfo"]
    assert info["kubeletVersion"] == KUBERNETES
    assert info["containerRuntimeVersion"].startswith("containerd://")
    assert info["osImage"].startswith("Debian GNU/Linux 12")
    addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
    assert addresses["InternalIP"] == NODES.partition("-")[0]
    assert node["spec"]["providerID"].startswith("proxmox://")


def check_pod(cluster: Cluster) -> None:
    """A pod of a local image runs without tolerations; logs and exec reach it."""
    eventually(lambda: "created" in cluster.run("apply", "-f", "-", text=POD), "the pod is made")
    eventually(lambda: [p for p in cluster.items("pods") if ready(p)], "it runs", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    assert cluster.run("exec", "hello", "--", "cat", "/etc/hostname") == "hello\n"


def check_drain(mine: Instance, cluster: Cluster) -> None:
    """The node of a group without replicas is drained, shut down and deleted."""
    words = ("cluster", "scale", "real", "md0", "0", "--namespace", "tenant-real")
    assert mine.run(*words).returncode == 0
    eventually(lambda: cluster.run("get", "nodes", "-o", "name") == "", "no Node is left")
    eventually(lambda: cluster.run("get", "pods", "-o", "name") == "", "no pod is left")
    eventually(lambda: groups() == [], "no cgroup is left")


def groups() -> list[Path]:
    """The cgroups of guests; version 1 has several hierarchies."""
    top = Path("/sys/fs/cgroup")
    return [*top.glob("moxwell-*"), *top.glob("*/moxwell-*")]


def test_the_programs_of_a_node_are_installed() -> None:
    for name in ("unshare", "nsenter", "ip"):
        assert shutil.which(name)
    assert (template.folder() / "usr/bin/kubelet").is_file()
