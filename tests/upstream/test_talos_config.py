"""The code of Talos accepts the machine configurations that Moxwell makes, as a guest gets them."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moxwell.api.cozystack import NodeGroup
from moxwell.bootstrap import talos_config
from moxwell.bootstrap.bootstrap_data import BootstrapData, BootstrapIdentity, nocloud_files
from moxwell.bootstrap.network import GuestNetwork
from moxwell.bootstrap.talos_config import TalosCluster
from moxwell.controllers.tenancy.cluster.node_groups import talos_spec
from moxwell.pki.certificates import create_ca

pytestmark = [pytest.mark.genuine]
Program = Callable[[str], Path]
CLUSTER = TalosCluster(
    name="blog",
    endpoint="https://192.0.2.10:6443",
    ca=create_ca("kubernetes", datetime(2026, 1, 1, tzinfo=UTC)).certificate,
    talos_ca=create_ca("talos", datetime(2026, 1, 1, tzinfo=UTC)).certificate,
    talos_token="abcdef.0123456789abcdef",
    pods=("10.244.0.0/16",),
    services=("10.96.0.0/12", "fd00::/112"),
)
GROUP = NodeGroup(
    name="md0", os="talos", labels={"tier": "web"}, taints=("dedicated=web:NoSchedule",)
)
FULL = "machine:\n  sysctls: {net.ipv4.ip_forward: '1'}\n"


def checked(program: Path, text: bytes, mode: str = "cloud") -> tuple[int, str]:
    done = subprocess.run(
        [str(program), mode], input=text, capture_output=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def user_data(*patches: str) -> bytes:
    """What is on the bootstrap ISO of a worker."""
    worker = talos_config.worker_config(CLUSTER, "v1.34.1", "abcdef.0123456789abcdef")
    text = talos_config.patched(worker, patches)
    identity = BootstrapIdentity("worker-1", "proxmox://north/1001")
    data = BootstrapData(text.encode(), "talos")
    return nocloud_files(data, identity, GuestNetwork(()))["user-data"]


@pytest.mark.parametrize(
    "patches", [(), tuple(talos_spec(GROUP)["strategicPatches"]), (FULL,)], ids=str
)
def test_talos_accepts_a_worker(envtest_program: Program, patches: tuple[str, ...]) -> None:
    program = envtest_program("talos-config-check")
    assert checked(program, user_data(*patches)) == (0, "worker\n")


def test_talos_refuses_what_it_does_not_know(envtest_program: Program) -> None:
    program = envtest_program("talos-config-check")
    code, said = checked(program, user_data("machine: {kubelets: {}}\n"))
    assert (code, "kubelets" in said) == (1, True)
