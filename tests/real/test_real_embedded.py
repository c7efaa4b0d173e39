"""
A genuine node of a tenant on the embedded API server: logs, exec, port-forward and top.

The API server of the tenant connects to the kubelet itself, with a client certificate.
"""

import os
from pathlib import Path

import pytest

from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import (
    HELLO,
    Cluster,
    forwarded,
    joined_nodes,
    manifest,
    ready,
    shell,
    tenant,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
PATIENCE_SECONDS = 900
SERVED = HELLO.replace("name: hello", "name: web").replace(
    "echo hello from a real node; sleep 36000",
    "echo served > /text; exec busybox httpd -f -p 8080 -h /",
)


def test_requests_to_pods_of_a_genuine_node(proxmox: str, mine: Instance, tmp_path: Path) -> None:
    mine.run("up", "--config", proxmox)
    assert Cluster(mine.state.kubeconfig).apply(manifest(1))
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    (node,) = eventually(lambda: joined_nodes(cluster), "the Node is Ready", PATIENCE_SECONDS)
    eventually(lambda: cluster.apply(HELLO + "---" + SERVED), "the pods are made")
    for name in ("hello", "web"):
        eventually(lambda: ready(cluster.one("pod", name)), f"{name} runs", PATIENCE_SECONDS)  # noqa: B023
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    assert cluster.run("logs", "hello", "--tail=0") == ""
    assert shell(cluster, "hello", "cat /etc/hostname") == "hello\n"
    assert "exit code 3" in shell(cluster, "hello", "exit 3")
    assert forwarded(cluster, "web", 8080, "http", "/text") == "served\n"
    rows = eventually(lambda: usage(cluster), "the usage is known", 120)
    assert rows[0][0] == node["metadata"]["name"]


def usage(cluster: Cluster) -> list[list[str]]:
    """The rows of ``kubectl top nodes`` without head."""
    rows = [line.split() for line in cluster.run("top", "nodes", "--no-headers").splitlines()]
    return [row for row in rows if len(row) > 3 and row[3].endswith("Mi")]
