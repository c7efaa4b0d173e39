"""Genuine systemd-networkd reads the units that Flatcar nodes get, and complains of nothing."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from envtest.plugin import skip_here
from moxwell.bootstrap import ignition
from moxwell.bootstrap.network import (
    GuestNetwork,
    InterfaceAddress,
    Nic,
    RoutingRule,
    StaticRoute,
    Vrf,
)

NETWORKD = Path("/lib/systemd/systemd-networkd")
pytestmark = [pytest.mark.slow, pytest.mark.genuine]
LOAD = """
mount -t tmpfs run /run -o mode=755 && mkdir -p /run/systemd/network
cp "$1"/* /run/systemd/network/
container=lxc SYSTEMD_LOG_LEVEL=info SYSTEMD_LOG_TARGET=console timeout 2 "$2"
"""
STATIC = Nic(
    "net0",
    "BC:24:11:00:00:01",
    (InterfaceAddress("10.0.0.5", 24, "10.0.0.1", 100), InterfaceAddress("2001:db8::5", 64)),
    dns=("192.0.2.53",),
    search=("example.org",),
    mtu=1400,
)
ROUTED = Nic(
    "net1",
    "BC:24:11:00:00:02",
    dhcp4=True,
    routes=(StaticRoute("default", "192.0.2.1", 50, 500), StaticRoute("10.7.0.0/16")),
    policies=(RoutingRule(from_="192.0.2.0/24", table=500, priority=100),),
)
VRF = Vrf("vrf-ext", 500, ("net1",), (StaticRoute("10.8.0.0/16", "192.0.2.1"),))


def complaints(folder: Path) -> list[str]:
    """What networkd says about the files of a folder; it runs in namespaces of its own."""
    command = ["unshare", "--mount", "--net", "sh", "-c", LOAD, "sh", str(folder), str(NETWORKD)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Enumeration completed" not in done.stderr:
        skip_here(f"systemd-networkd does not run here: {done.stderr[-200:]}")
    return [line for line in done.stderr.splitlines() if re.search(r"[Ii]gnoring", line)]


def test_networkd_understands_every_line(tmp_path: Path) -> None:
    document = json.loads(
        ignition.merge(b"", "node-1", "proxmox://x/1", GuestNetwork((STATIC, ROUTED), (VRF,)))
    )
    files = {f["path"]: f["contents"]["source"] for f in document["storage"]["files"]}
    units = {path: text for path, text in files.items() if path.startswith("/etc/systemd/network")}
    assert len(units) == 4
    for path, source in units.items():
        (tmp_path / Path(path).name).write_text(unquote(source.removeprefix("data:,")))
    assert complaints(tmp_path) == []


def test_networkd_names_a_line_that_it_does_not_understand(tmp_path: Path) -> None:
    (tmp_path / "10.network").write_text("[Match]\nName=eth0\n[Networks]\n[Network]\nAdress=a\n")
    assert len(complaints(tmp_path)) == 2
