"""One genuine node joins and runs a pod: the part of ``make real`` that ``make test`` runs too."""

import os
from pathlib import Path

import pytest

from envtest import locate
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import (
    HELLO,
    Cluster,
    joined_nodes,
    manifest,
    ready,
    switch,
    tenant,
    vm_named,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(
        os.environ.get("MOXWELL_REAL") != "join",
        reason="tests/upstream/test_joined_node.py runs it",
    ),
]
PATIENCE_SECONDS = 900


def test_a_genuine_node_reads_its_iso_joins_and_runs_a_pod(
    proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    assert Cluster(mine.state.kubeconfig).apply(manifest(1))
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    eventually(lambda: joined_nodes(cluster), "the Node is Ready", PATIENCE_SECONDS)
    eventually(lambda: cluster.apply(HELLO), "the pod is made")
    eventually(lambda: ready(cluster.one("pod", "hello")), "it runs", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    check_restart(cluster, tmp_path)


def check_restart(cluster: Cluster, folder: Path) -> None:
    """The guest boots again without its ISO: the same Node is ready, and its pod runs again."""
    (before,) = cluster.items("nodes")
    machine = vm_named(folder, before["metadata"]["name"])
    switch(folder, machine, "stop")
    eventually(lambda: not ready(cluster.items("nodes")[0]), "the Node is not ready", 300)
    switch(folder, machine, "start")
    eventually(lambda: joined_nodes(cluster), "the Node is ready again", PATIENCE_SECONDS)
    (after,) = cluster.items("nodes")
    names = ("name", "uid")
    assert [after["metadata"][n] for n in names] == [before["metadata"][n] for n in names]
    assert after["status"]["addresses"] == before["status"]["addresses"]
    eventually(lambda: ready(cluster.one("pod", "hello")), "the pod runs again", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
