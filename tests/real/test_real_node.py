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
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envtest import locate
from envtest.table import KUBERNETES
from realnode import driver_image, template
from support import real_network
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import (
    CLASS,
    HELLO,
    SNAPSHOT,
    Cluster,
    claim,
    expand,
    forwarded,
    guest_groups,
    joined_nodes,
    manifest,
    pod_with_claim,
    proxmox_data,
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
PATIENCE_SECONDS = 900
KIND = "bare"
REPOSITORY = driver_image.REPOSITORY
CONTROL_PLANES = {
    "konnectivity": {"image": f"{REPOSITORY}/{driver_image.AGENT}"},
    "addons": {
        "image": driver_image.name(),
        "image_repository": REPOSITORY,
        # a network namespace of its own has no such setting
        "kube_proxy": {"conntrack": {"maxPerCore": 0}},
    },
}


def test_genuine_nodes_join_run_pods_and_keep_volumes(
    proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    assert not template.missing()
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    real_network.close_the_way()
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
    eventually(lambda: addons_ready(management), "the add-ons run", PATIENCE_SECONDS)
    check_network(cluster, *(node["metadata"]["name"] for node in nodes))
    check_volumes(cluster, *(node["metadata"]["name"] for node in nodes))
    assert volumes_in_proxmox(tmp_path) == []
    check_drain(mine, cluster)
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    guests = management.run("get", "proxmoxmachines", "-A", "-o", "name")
    assert (guests, guest_groups(), loops(tmp_path)) == ("", [], [])


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


def addons_ready(management: Cluster) -> bool:
    """The cluster says that its add-ons run."""
    found = management.run(
        "get", "kubernetes.apps.cozystack.io/real", "-n", "tenant-real", "-o", "json"
    )
    rows = json.loads(found)["status"]["conditions"]
    return any(c["type"] == "AddonsReady" and c["status"] == "True" for c in rows)


def check_network(cluster: Cluster, first: str, second: str) -> None:
    """
    Pods of two nodes reach each other by address, Service and name, and keep their addresses.

    The API server has no way to nodes and pods but through konnectivity: logs, exec, port-forward,
    an admission webhook in a pod and the aggregated API of metrics-server.
    """
    objects = real_network.server_objects(first, second)
    eventually(lambda: cluster.apply(objects), "the pods are made")
    for name in ("server", "client"):
        eventually(partial(running, cluster, name), f"{name} runs", 300)
    assert cluster.run("logs", "server") == "serving\n"
    client, server = (cluster.one("pod", name)["status"]["podIP"] for name in ("client", "server"))
    assert (client.rpartition(".")[0] == server.rpartition(".")[0]) is False
    assert fetch(cluster, f"{server}:{real_network.PORT}") == client
    assert fetch(cluster, "server.default.svc.cluster.local") == client
    refused = cluster.run("create", "configmap", "unwanted")
    assert "a pod says no" in refused
    assert "created" in cluster.run("create", "configmap", "wanted")
    assert forwarded(cluster, "server", real_network.PORT, "https", "/") == "127.0.0.1"
    usage = eventually(lambda: usage_of(cluster), "metrics-server answers", 120)
    assert {row[0] for row in usage} == {first, second}
    cluster.run("delete", "validatingwebhookconfiguration", "server")
    cluster.run("delete", "pod", "server", "client")


def fetch(cluster: Cluster, host: str) -> str:
    """What the server says to the client: the address it sees."""
    words = ("exec", "client", "--", "python3", "-c", real_network.FETCH, f"https://{host}/")
    return cluster.run(*words).strip()


def usage_of(cluster: Cluster) -> list[list[str]]:
    """The rows of ``kubectl top nodes`` without head; empty while there are not two."""
    rows = [line.split() for line in cluster.run("top", "nodes", "--no-headers").splitlines()]
    return rows if len(rows) == 2 and all(row[1].endswith("m") for row in rows) else []


def running(cluster: Cluster, name: str) -> bool:
    return ready(cluster.one("pod", name))


def check_volumes(cluster: Cluster, first: str, second: str) -> None:
    """
    A claim is a block device of the guest: mounted by our node plugin for the kubelet, expanded,
    copied by a snapshot, moved to the other node.
    """
    eventually(lambda: registered(cluster) == {first, second}, "the driver is registered", 300)
    assert cluster.apply(claim("data", "1Gi") + "---" + pod_with_claim("writer", first, "data"))
    eventually(lambda: running(cluster, "writer"), "the volume is mounted", 300)
    assert " /data xfs rw" in shell(cluster, "writer", "grep /data /proc/mounts")
    assert shell(cluster, "writer", "echo before > /data/text; sync") == ""
    expand(cluster, "writer", "data", "2Gi", 300)
    assert shell(cluster, "writer", "cat /data/text") == "before\n"
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


def taken(cluster: Cluster, name: str) -> bool:
    return bool(cluster.one("volumesnapshot", name).get("status", {}).get("readyToUse"))


def volumes_in_proxmox(folder: Path) -> list[str]:
    """The disks of claims and snapshots that Proxmox still has."""
    url = next(iter(json.loads((folder / "urls.json").read_text()).values()))
    rows = proxmox_data(url, folder / "ca.pem", "/api2/json/nodes/pve1/storage/ceph/content")
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
    eventually(lambda: guest_groups() == [], "no cgroup is left")


def test_the_programs_of_a_node_are_installed() -> None:
    for name in ("unshare", "nsenter", "ip"):
        assert shutil.which(name)
    assert (template.folder() / "usr/bin/kubelet").is_file()
