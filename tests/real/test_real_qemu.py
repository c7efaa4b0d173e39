"""
A node in a QEMU machine: a kernel of its own, which mounts the bootstrap ISO, and a genuine agent.

The same chain as in a container, in software emulation: cloud-init, containerd, kubelet, kubeadm
join, a pod. Volumes are not attached.
"""

import os
from pathlib import Path

import pytest

from envtest import locate
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import HELLO, Cluster, joined_nodes, manifest, ready, tenant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
KIND = "qemu"
PATIENCE_SECONDS = 1800


def test_a_qemu_machine_reads_its_iso_joins_and_runs_a_pod(
    proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    assert Cluster(mine.state.kubeconfig).apply(manifest(1))
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    eventually(lambda: joined_nodes(cluster), "the Node is Ready", PATIENCE_SECONDS)
    eventually(lambda: cluster.apply(HELLO), "the pod is made")
    eventually(lambda: ready(cluster.one("pod", "hello")), "it runs", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    (node,) = joined_nodes(cluster)
    assert node["status"]["nodeInfo"]["kernelVersion"].endswith("-cloud-amd64")
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    assert list((tmp_path / "guests").glob("*/disk.img")) == []
