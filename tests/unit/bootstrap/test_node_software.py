"""The script that installs node software: its settings, its mirrors, its syntax."""

import subprocess

import pytest

from moxwell.bootstrap.bootstrap_data import BootstrapData, BootstrapIdentity, nocloud_files
from moxwell.bootstrap.network import GuestNetwork
from moxwell.bootstrap.node_software import (
    InvalidNodeSoftware,
    NodeSoftware,
    description_line,
    install_script,
    software_in,
)

PLAIN = NodeSoftware(kubernetes="v1.34.1")
MIRRORED = NodeSoftware(
    kubernetes="1.34.1",
    packages="https://mirror.lan/k8s/deb",
    packages_key="https://mirror.lan/k8s.key",
    distribution_mirror="http://mirror.lan/",
    image_repository="mirror.lan:5000/k8s",
    registry_mirrors={"docker.io": "https://mirror.lan:5000", "quay.io": "https://mirror.lan:5001"},
    proxy="http://proxy.lan:3128",
)


@pytest.mark.parametrize("software", [PLAIN, MIRRORED])
def test_the_settings_survive_the_description(software: NodeSoftware) -> None:
    text = f"a template\n\n{description_line(software)}\n\nmoxwell-owner=x"
    assert software_in(text) == software
    assert software_in("another description") is None


@pytest.mark.parametrize("software", [PLAIN, MIRRORED])
def test_a_shell_accepts_the_script(software: NodeSoftware) -> None:
    script = install_script(software)
    assert script.startswith("#!/bin/sh\n")
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert "'kubelet=1.34.1-*' 'kubeadm=1.34.1-*'" in script


def test_with_mirrors_no_public_server_is_asked() -> None:
    script = install_script(MIRRORED)
    urls = {word for word in script.split() if word.startswith(("'https://", "https://"))}
    assert "pkgs.k8s.io" not in script
    assert urls <= {"'https://mirror.lan/k8s.key'", "https://mirror.lan/k8s.key"} | {
        "https://mirror.lan/k8s/deb/"
    }
    assert "certs.d/docker.io/hosts.toml" in script
    assert "mirror.lan:5000/k8s" in script


@pytest.mark.parametrize(
    "changes",
    [
        {"kubernetes": "latest"},
        {"packages": "ftp://mirror"},
        {"packages_key": "https://mirror/'; rm -rf /"},
        {"proxy": "proxy:3128"},
        {"image_repository": "Mirror Lan"},
        {"registry_mirrors": {"docker.io/../x": "https://mirror"}},
        {"registry_mirrors": {"docker.io": "mirror"}},
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object]) -> None:
    software = NodeSoftware(**{"kubernetes": "v1.34.1", **changes})  # type: ignore[arg-type]
    with pytest.raises(InvalidNodeSoftware):
        install_script(software)


@pytest.mark.parametrize("text", ["{", '{"kubernetes": 1}', '{"kubernetes": "x"}'])
def test_an_unreadable_line_is_an_error_of_the_template(text: str) -> None:
    line = f"moxwell-node-software={text}}}" if text == "{" else f"moxwell-node-software={text}"
    with pytest.raises(InvalidNodeSoftware):
        software_in(line)


@pytest.mark.parametrize("format_, there", [("cloud-config", True), ("talos", False)])
def test_the_script_is_vendor_data_of_cloud_init(format_: str, there: bool) -> None:
    data = b"#cloud-config\n{}\n" if there else b"version: v1alpha1\nmachine: {type: worker}\n"
    bootstrap = BootstrapData(data, format_, b"#!/bin/sh\ninstall\n")
    files = nocloud_files(bootstrap, BootstrapIdentity("n", "proxmox://r/1"), GuestNetwork())
    script = files.get("vendor-data", b"")
    assert (script.startswith(b"#!/bin/sh\n") and script.endswith(b"\ninstall\n")) is there
