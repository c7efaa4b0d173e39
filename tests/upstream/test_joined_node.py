"""
A genuine node in the ordinary tests: Debian with systemd, cloud-init, containerd and kubelet.

It runs in network and PID namespaces of its own, because it makes a bridge. The longer stories are
in ``make real``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envtest.plugin import require, skip_here
from realnode import template
from support.pod_process import require_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("real-node")]
ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl",
)  # fmt: skip
ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_a_genuine_node_reads_its_iso_joins_and_runs_a_pod(tmp_path: Path) -> None:
    require(*PROGRAMS)
    require_namespaces()
    if why := template.missing():
        skip_here(f"no genuine nodes on this machine: {why}")
    if not template.folder().exists():
        skip_here("no root file system of a node: `make envtest` makes it where it is root")
    words = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:randomly", "-q"]
    done = subprocess.run(
        [*ALONE, *words, "--basetemp", str(tmp_path / "inner"), "tests/real/test_real_join.py"],
        cwd=ROOT, env={**os.environ, "MOXWELL_REAL": "join"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert "1 passed" in done.stdout
