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
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from envtest import locate
from envtest.table import KUBERNETES
from realnode import template
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import (
    CLASS,
    HELLO,
    SNAPSHOT,
    Cluster,
    claim,
    joined_nodes,
    manifest,
    node_plugin,
    pod_with_claim,
    proxmox_rows,
    ready,
    tenant,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
PATIENCE_SECONDS = 900


def test_genuine_nodes_join_run_pods_and_keep_volumes(
    proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    assert not template.missing()
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    management = Cluster(mine.state.kubeconfig)
    assert "created" in management.run("apply", "-f", "-", text=manifest(2))
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    snapshots = locate.folder("snapshot-controller") / "src" / "config" / "crd"
    eventually(lambda: install_snapshots(cluster, snapshots), "the snapshot CRDs are there")
    nodes = eventually(
        lambda: joined if len(joined := joined_nodes(cluster)) == 2 else None,
        "two Nodes are Ready and initialized by the cloud controllers",
        PATIENCE_SECONDS,
    )
    for node in nodes:
        check_node(node)
    check_pod(cluster)
    check_volumes(cluster, *(node["metadata"]["name"] for node in nodes))
    assert volumes_in_proxmox(tmp_path) == []
    check_drain(mine, cluster)
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    guests = management.run("get", "proxmoxmachines", "-A", "-o", "name")
    assert (guests, groups(), loops(tmp_path)) == ("", [], [])


def install_snapshots(cluster: Cluster, folder: Path) -> bool:
    """Install the upstream CRDs of VolumeSnapshots and the classes of this test."""
    files = sorted(folder.glob("snapshot.storage.k8s.io_volumesnapshot*.yaml"))
    assert len(files) == 3, f"{folder} has {files}"
    done = cluster.run("apply", *(word for file in files for word in ("-f", str(file))))
    return not done.startswith("failed") and cluster.apply(CLASS)


def check_node(node: dict[str, Any]) -> None:
    """Version, container runtime and address are those of the template and of the controllers."""
    info = node["status"]["nodeInfo"]
    assert info["kubeletVersion"] == KUBERNETES
    assert info["containerRuntimeVersion"].startswith("containerd://")
    assert info["osImage"].startswith("Debian GNU/Linux 12")
    addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
    assert addresses["InternalIP"] in ("198.51.100.10", "198.51.100.11")
    assert node["spec"]["providerID"].startswith("proxmox://")


def check_pod(cluster: Cluster) -> None:
    """A pod of a local image runs without tolerations; logs and exec reach it."""
    eventually(lambda: "created" in cluster.run("apply", "-f", "-", text=HELLO), "the pod is made")
    eventually(lambda: [p for p in cluster.items("pods") if ready(p)], "it runs", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    assert cluster.run("exec", "hello", "--", "cat", "/etc/hostname") == "hello\n"


def api_of(cluster: Cluster) -> tuple[str, int]:
    """Host and port of the API server in the tenant's kubeconfig."""
    words = ("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
    found = urlsplit(cluster.run(*words))
    assert found.hostname
    assert found.port
    return found.hostname, found.port


def running(cluster: Cluster, name: str) -> bool:
    return ready(cluster.one("pod", name))


def shell(cluster: Cluster, pod: str, command: str) -> str:
    return cluster.run("exec", pod, "--", "sh", "-c", command)


def check_volumes(cluster: Cluster, first: str, second: str) -> None:
    """
    A claim is a block device of the guest: mounted by our node plugin for the kubelet, expanded,
    copied by a snapshot, moved to the other node.
    """
    assert cluster.apply(node_plugin(*api_of(cluster)))
    eventually(lambda: registered(cluster) == {first, second}, "the driver is registered", 300)
    assert cluster.apply(claim("data", "1Gi") + "---" + pod_with_claim("writer", first, "data"))
    eventually(lambda: running(cluster, "writer"), "the volume is mounted", 300)
    assert " /data xfs rw" in shell(cluster, "writer", "grep /data /proc/mounts")
    assert shell(cluster, "writer", "echo before > /data/text; sync") == ""
    check_expansion(cluster)
    assert cluster.apply(SNAPSHOT)
    eventually(lambda: taken(cluster, "first"), "the snapshot is ready", 300)
    assert shell(cluster, "writer", "echo after >> /data/text; sync") == ""
    restored = claim("restored", "2Gi", "first") + "---"
    assert cluster.apply(restored + pod_with_claim("reader", second, "restored"))
    eventually(lambda: running(cluster, "reader"), "the snapshot is restored", 300)
    assert shell(cluster, "reader", "cat /data/text") == "before\n"
    cluster.run("delete", "pod", "writer")
    assert cluster.apply(pod_with_claim("moved", second, "data"))
    eventually(lambda: running(cluster, "moved"), "the volume moved to the other node", 300)
    assert shell(cluster, "moved", "cat /data/text") == "before\nafter\n"
    cluster.run("delete", "pod", "moved", "reader")
    cluster.run("delete", "volumesnapshot", "first")
    cluster.run("delete", "pvc", "data", "restored")
    eventually(lambda: cluster.run("get", "pv,volumeattachments", "-o", "name") == "", "none", 300)


def check_expansion(cluster: Cluster) -> None:
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    cluster.run("patch", "pvc", "data", "-p", patch)
    eventually(lambda: capacity(cluster, "data") == "2Gi", "the claim is expanded", 300)
    mebibytes = shell(cluster, "writer", "df -m /data").split()[-5]
    assert int(mebibytes) > 1900
    assert shell(cluster, "writer", "cat /data/text") == "before\n"


def capacity(cluster: Cluster, name: str) -> str:
    return str(cluster.one("pvc", name)["status"]["capacity"]["storage"])


def registered(cluster: Cluster) -> set[str]:
    """The nodes on which the kubelet accepted the driver."""
    return {
        row["metadata"]["name"]
        for row in cluster.items("csinodes")
        for driver in row["spec"].get("drivers") or ()
        if driver["name"] == "csi.moxwell.dev"
    }


def taken(cluster: Cluster, name: str) -> bool:
    return bool(cluster.one("volumesnapshot", name).get("status", {}).get("readyToUse"))


def volumes_in_proxmox(folder: Path) -> list[str]:
    """The disks of claims and snapshots that Proxmox still has."""
    url = next(iter(json.loads((folder / "urls.json").read_text()).values()))
    rows = proxmox_rows(url, folder / "ca.pem", "/api2/json/nodes/pve1/storage/ceph/content")
    nodes = {str(vmid) for vmid in range(100, 1000)}
    return [r["volid"] for r in rows if "base-" not in r["volid"] and str(r["vmid"]) not in nodes]


def loops(folder: Path) -> list[str]:
    """The loop devices on files of this test."""
    rows = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    return [row for row in rows.splitlines() if str(folder) in row]


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
