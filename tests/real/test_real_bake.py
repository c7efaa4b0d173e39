"""
A baked template: the installation script runs in a genuine Debian, and a node is made from it.

``moxwell template build --bake`` makes a builder guest in the simulated Proxmox. It boots a Debian
with cloud-init and nothing else, installs from a mirror on this machine, is sealed and converted;
a clone of the template then joins a cluster.
"""

import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envtest import locate
from envtest.table import KUBERNETES
from realnode import mirror, template
from support.lab_inspector import eventually
from support.lab_instance import Instance
from support.real_nodes import HELLO, HERE, Cluster, joined_nodes, manifest, ready, tenant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(os.environ.get("MOXWELL_REAL") != "1", reason="`make real` runs it"),
]
TEMPLATES = False  # Proxmox has none before
PATIENCE_SECONDS = 900


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def packages(bridge: None) -> Iterator[str]:
    """The URL of the package mirror."""
    folder = template.image_folder() / mirror.FOLDER
    server = ThreadingHTTPServer((HERE, 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://{HERE}:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_builder_installs_genuinely_and_its_clone_joins(
    packages: str, proxmox: str, mine: Instance, tmp_path: Path
) -> None:
    done = mine.run(
        "template", "build", "baked", "https://images.example/debian-12.qcow2", "--bake",
        "--config", proxmox, "--os", "debian-12", "--kubernetes", KUBERNETES,
        "--builder-address", "198.51.100.5/24", "--distribution-mirror", packages,
        "--packages", f"{packages}/kubernetes/", "--image-repository", "localhost",
        "--storage", "local", "--storage", "ceph",
    )  # fmt: skip
    assert "is ready" in done.stdout
    (builder,) = (tmp_path / "guests").glob("*-9*")
    check_sealed(builder / "upper")
    again = mine.run("template", "list", "--config", proxmox)
    assert KUBERNETES in again.stdout
    mine.run("up", "--config", proxmox, f"--control-plane-binaries={locate.cache()}")
    management = Cluster(mine.state.kubeconfig)
    assert management.apply(manifest(1))
    cluster = eventually(lambda: tenant(mine, tmp_path), "the API answers", PATIENCE_SECONDS)
    eventually(lambda: joined_nodes(cluster), "the clone is a Node", PATIENCE_SECONDS)
    eventually(lambda: cluster.apply(HELLO), "the pod is made")
    eventually(lambda: ready(cluster.one("pod", "hello")), "it runs", PATIENCE_SECONDS)
    assert cluster.run("logs", "hello") == "hello from a real node\n"
    deleted = mine.run("cluster", "delete", "real", "--namespace", "tenant-real")
    assert deleted.returncode == 0
    mine.run("template", "delete", "baked", "--config", proxmox, "--yes")


def check_sealed(root: Path) -> None:
    """The software is there; nothing that must differ between clones is."""
    for program in ("kubelet", "kubeadm", "containerd", "qemu-ga"):
        assert [p for p in (root / "usr").rglob(program) if p.is_file()], program
    config = (root / "etc/containerd/config.toml").read_text()
    assert 'sandbox_image = "localhost/pause:3.6"' in config
    assert (root / "etc/machine-id").read_text() == ""
    keys = (root / "etc/ssh").glob("ssh_host_*_key")  # what was deleted is a device here
    assert [key for key in keys if key.is_file()] == []
    assert not (root / "usr/local/lib/moxwell-bake/install").exists()
    assert not (root / "var/lib/cloud/scripts/per-boot/moxwell-bake").exists()
