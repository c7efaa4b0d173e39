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
from moxwell.bootstrap.talos_config import TalosCluster, TalosJoin
from moxwell.bootstrap.talos_secrets import create_secrets
from moxwell.controllers.tenancy.cluster.node_groups import talos_spec
from moxwell.management import spec
from moxwell.management.talos_patches import talos_patches
from moxwell.pki.certificates import create_ca

pytestmark = [pytest.mark.genuine]
Program = Callable[[str], Path]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOIN = TalosJoin(
    ca=create_ca("kubernetes", NOW).certificate,
    token="abcdef.0123456789abcdef",
    talos_ca=create_ca("talos", NOW).certificate,
    talos_token="abcdef.0123456789abcdef",
)
MANAGEMENT = spec.parse(
    """
management_cluster:
  kubernetes: v1.34.1
  endpoint: 192.0.2.10
  bootstrap: talos
  talos: {template: talos}
  zones: [{region: north, addresses: [192.0.2.11-192.0.2.19], gateway: 192.0.2.1}]
"""
)
CLUSTER = TalosCluster(
    name="blog",
    endpoint="https://192.0.2.10:6443",
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
    worker = talos_config.worker_config(CLUSTER, JOIN, "v1.34.1")
    return delivered(talos_config.patched(worker, patches))


def delivered(text: str) -> bytes:
    """The user data of a machine with this configuration."""
    identity = BootstrapIdentity("machine-1", "proxmox://north/1001")
    data = BootstrapData(text.encode(), "talos")
    return nocloud_files(data, identity, GuestNetwork(()))["user-data"]


@pytest.mark.parametrize(
    "patches", [(), tuple(talos_spec(GROUP)["strategicPatches"]), (FULL,)], ids=str
)
def test_talos_accepts_a_worker(envtest_program: Program, patches: tuple[str, ...]) -> None:
    program = envtest_program("talos-config-check")
    assert checked(program, user_data(*patches)) == (0, "worker\n")


@pytest.mark.parametrize(
    "patches", [(), tuple(talos_patches(MANAGEMENT))], ids=["plain", "of a management cluster"]
)
def test_talos_accepts_a_control_plane(envtest_program: Program, patches: tuple[str, ...]) -> None:
    program = envtest_program("talos-config-check")
    made = talos_config.control_plane_config(CLUSTER, create_secrets(NOW), "v1.34.1")
    text = talos_config.patched(made, patches)
    assert checked(program, delivered(text)) == (0, "controlplane\n")


def test_talos_refuses_what_it_does_not_know(envtest_program: Program) -> None:
    program = envtest_program("talos-config-check")
    code, said = checked(program, user_data("machine: {kubelets: {}}\n"))
    assert (code, "kubelets" in said) == (1, True)
