"""
A management cluster from nothing: ``moxwell bootstrap`` with genuine guests.

kubeadm makes a control plane of three nodes with stacked etcd behind a virtual IP of kube-vip; the
built-in CNI and the operator are pods of it, and the cluster manages itself. It survives the loss
of the node with the virtual IP, which the operator starts again, and is undone.
"""

import json
import os
import subprocess
from functools import partial
from http.client import HTTPException
from pathlib import Path

import pytest
import yaml

from envtest.table import KUBERNETES
from moxwell.management.operator_components import NAMESPACE as OPERATOR
from realnode import control_plane_images, driver_image
from support.cluster_api_manifests import cluster_api_manifests
from support.lab_inspector import eventually
from support.lab_instance import COMMAND, Instance
from support.real_nodes import (
    HERE,
    NODES,
    Cluster,
    forwarded,
    guest_groups,
    proxmox_vms,
    ready,
    switch,
    vm_named,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
KIND = "control-plane"
PATIENCE_SECONDS = 1800
ENDPOINT = "198.51.100.9"
SYSTEM = "kube-system"
AFTER = "{apiVersion: v1, kind: ConfigMap, metadata: {name: after}}"
MEMBERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-vip")


def test_a_management_cluster_of_three_genuine_nodes_survives_the_loss_of_one(
    proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    config = configured(Path(proxmox))
    said = bootstrap(mine, config)
    assert "manages itself" in said
    cluster = Cluster(tmp_path / "management.kubeconfig")
    nodes = [node["metadata"]["name"] for node in cluster.items("nodes") if ready(node)]
    assert len(nodes) == 3
    eventually(partial(is_complete, cluster, nodes), "all members run", PATIENCE_SECONDS)
    check_loss(cluster, tmp_path)
    eventually(partial(is_complete, cluster, nodes), "all members run again", PATIENCE_SECONDS)
    bootstrap(mine, config, "--undo", "--yes")
    assert (proxmox_vms(tmp_path), guest_groups()) == ([], [])


def configured(file: Path) -> Path:
    """The configuration with a management cluster of the images that were built."""
    zone = {"region": "amsterdam", "addresses": [NODES], "gateway": HERE}
    section = {
        "kubernetes": KUBERNETES,
        "endpoint": ENDPOINT,
        "zones": [zone],
        "virtual_ip": control_plane_images.image_of("kube-vip"),
        "image_repository": driver_image.REPOSITORY,
        "cni": "bridge",
        "operator_image": driver_image.name(),
        "manifests": ["cluster-api.yaml"],
    }
    file.with_name("cluster-api.yaml").write_text(cluster_api_manifests())
    made = file.with_name("bootstrap.yaml")
    tree = yaml.safe_load(file.read_text()) | {"management_cluster": section}
    made.write_text(yaml.safe_dump(tree))
    return made


def bootstrap(mine: Instance, config: Path, *words: str) -> str:
    """Run the command; what it says is also in a file beside the configuration."""
    command = [str(COMMAND), "bootstrap", "--config", str(config), *words]
    done = subprocess.run(
        [*command, f"--wait={PATIENCE_SECONDS}"], cwd=config.parent, env=mine.env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def is_complete(cluster: Cluster, nodes: list[str]) -> bool:
    """Every node runs all programs, and every member of etcd is connected with two others."""
    pods = {pod["metadata"]["name"]: pod for pod in cluster.items("pods", "-n", SYSTEM)}
    wanted = {f"{name}-{node}" for name in MEMBERS for node in nodes}
    if not all(ready(pod) for pod in pods.values()) or not wanted <= set(pods):
        return False
    return all(peers(cluster, f"etcd-{node}") == (1, 2) for node in nodes)


def peers(cluster: Cluster, pod: str) -> tuple[int, int]:
    """Whether a member of etcd knows a leader, and its connections to other members."""
    try:
        text = forwarded(cluster, pod, 2381, "http", "/metrics", SYSTEM)
    except (OSError, HTTPException):
        return 0, 0  # the node has just begun to answer
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    leader = sum(float(value) for name, _, value in rows if name == "etcd_server_has_leader")
    active = "etcd_network_active_peers{"
    return int(leader), int(sum(float(value) for name, _, value in rows if name.startswith(active)))


def check_loss(cluster: Cluster, folder: Path) -> None:
    """The node with the virtual IP is switched off: the API answers, the operator restores it."""
    name = holder(cluster)
    move_operator_from(cluster, name)
    switch(folder, vm_named(folder, name), "stop")
    eventually(lambda: holder(cluster) not in ("", name), "another node has the address", 300)
    eventually(lambda: cluster.apply(AFTER), "etcd accepts writes", 300)
    eventually(lambda: not ready(cluster.one("node", name)), "the Node is not ready", 300)
    eventually(lambda: reason(cluster, name) == "Stopped", "the operator reports it", 300)
    patch = json.dumps({"spec": {"whenStopped": "Start"}})
    patched = cluster.run("patch", "proxmoxmachine", name, "--type=merge", "-p", patch)
    assert "patched" in patched
    eventually(lambda: ready(cluster.one("node", name)), "the Node is ready again", 600)
    assert "after" in cluster.run("get", "cm", "-o", "name")


def holder(cluster: Cluster) -> str:
    """The node with the virtual IP."""
    lease = cluster.run("get", "lease", "plndr-cp-lock", "-n", SYSTEM, "-o", "json")
    return "" if lease.startswith("failed") else str(json.loads(lease)["spec"]["holderIdentity"])


def move_operator_from(cluster: Cluster, node: str) -> None:
    """The operator on another node: a lost one keeps its pods for minutes."""
    cluster.run("cordon", node)
    for pod in cluster.items("pods", "-n", OPERATOR):
        if pod["spec"].get("nodeName") == node:
            cluster.run("delete", "pod", pod["metadata"]["name"], "-n", OPERATOR)
    done = cluster.run("rollout", "status", "deployment", "-n", OPERATOR, "--timeout=300s")
    assert "successfully rolled out" in done
    cluster.run("uncordon", node)


def reason(cluster: Cluster, name: str) -> str:
    """Why a machine is not ready."""
    rows = cluster.one("proxmoxmachine", name).get("status", {}).get("conditions", ())
    return next((c["reason"] for c in rows if c["type"] == "Ready"), "")
