"""One genuine node joins and runs a pod: the part of ``make real`` that ``make test`` runs too."""

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
