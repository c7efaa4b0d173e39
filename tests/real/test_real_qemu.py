"""
A node in a QEMU machine: a kernel of its own, which mounts the bootstrap ISO, and a genuine agent.

The same chain as in a container, in software emulation: cloud-init, containerd, kubelet, kubeadm
join, a pod. A volume is a SCSI disk of the machine: mounted by our node plugin, written, expanded
while it is mounted, detached and attached again.
"""

import os
from pathlib import Path

import pytest

from envtest import locate
from realnode import driver_image
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import (
    CLASS,
    HELLO,
    Cluster,
    claim,
    expand,
    joined_nodes,
    manifest,
    pod_with_claim,
    ready,
    registered,
    shell,
    tenant,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
KIND = "qemu"
PATIENCE_SECONDS = 1800
CONTROL_PLANES = {
    "addons": {
        "kube_proxy": False, "coredns": False, "metrics_server": False, "cni": "none",
        "image": driver_image.name(),
    },
}  # fmt: skip


def test_a_qemu_machine_reads_its_iso_joins_and_mounts_a_scsi_disk(
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
    check_volume(cluster, node["metadata"]["name"])
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    assert list((tmp_path / "guests").glob("*/disk.img")) == []


def check_volume(cluster: Cluster, node: str) -> None:
    """A claim is a SCSI disk with the WWN of the volume; its data outlives the attachment."""
    classes = CLASS.partition("---")[0].replace("xfs", "ext4")
    eventually(lambda: cluster.apply(classes), "the class is made")
    eventually(lambda: registered(cluster) == {node}, "the driver is registered", PATIENCE_SECONDS)
    assert cluster.apply(claim("data", "1Gi") + "---\n" + pod_with_claim("writer", node, "data"))
    eventually(lambda: ready(cluster.one("pod", "writer")), "the volume is mounted", 600)
    mounted = shell(cluster, "writer", "grep ' /data ' /proc/mounts")
    assert mounted.startswith("/dev/sd")
    assert " ext4 rw" in mounted
    (attachment,) = cluster.items("volumeattachments")
    wwn = attachment["status"]["attachmentMetadata"]["wwn"].removeprefix("0x")
    disks = shell(cluster, "writer", "cat /sys/block/sd*/device/wwid")
    assert f"naa.{wwn}" in disks.split()
    assert shell(cluster, "writer", "echo before > /data/text; sync") == ""
    expand(cluster, "writer", "data", "2Gi", 600)
    assert shell(cluster, "writer", "cat /data/text") == "before\n"
    cluster.run("delete", "pod", "writer")
    eventually(lambda: cluster.items("volumeattachments") == [], "the disk is detached", 300)
    assert cluster.apply(pod_with_claim("reader", node, "data"))
    eventually(lambda: ready(cluster.one("pod", "reader")), "it is mounted again", 600)
    assert shell(cluster, "reader", "cat /data/text") == "before\n"
    cluster.run("delete", "pod", "reader")
    cluster.run("delete", "pvc", "data")
    eventually(lambda: cluster.run("get", "pv", "-o", "name") == "", "the volume is deleted", 300)
