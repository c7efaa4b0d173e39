"""A simulated Proxmox whose guests are genuine, and an instance of Moxwell for it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.lab_inspector import PACE, eventually
from support.lab_instance import Instance, own_ports
from support.real_nodes import HERE, SECRET, TOKEN

REGION = "amsterdam"  # with Ceph: shared volumes with snapshots
BRIDGE = "mxreal0"
NO_ADDONS: dict[str, Any] = {
    "kube_proxy": False, "coredns": False, "metrics_server": False, "csi": False, "cni": "none",
}  # fmt: skip


@pytest.fixture
def bridge() -> Iterator[None]:
    """A bridge of this network namespace; guests are behind it."""
    for words in (
        ("link", "set", "lo", "up"),
        ("link", "add", BRIDGE, "type", "bridge"),
        ("address", "add", f"{HERE}/24", "dev", BRIDGE),
        ("link", "set", BRIDGE, "up"),
    ):
        subprocess.run(["ip", *words], check=True)
    yield
    subprocess.run(["ip", "link", "delete", BRIDGE], check=True)


def world(folder: Path, *, templates: bool) -> Path:
    """One region of the lab, with its templates or without guests."""
    tree = yaml.safe_load((resources.files("moxwell.lab") / "lab.yaml").read_text())
    region = next(r for r in tree["regions"] if r["name"] == REGION)
    region["pace"] = PACE
    region["guests"] = [g for g in region["guests"] if templates and g.get("template")]
    file = folder / "world.yaml"
    file.write_text(yaml.safe_dump({"regions": [region]}))
    return file


@pytest.fixture
def proxmox(bridge: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A configuration file of Moxwell for a simulated Proxmox with real guests."""
    templates = getattr(request.module, "TEMPLATES", True)
    kind = getattr(request.module, "KIND", "container")
    file = world(tmp_path, templates=templates)
    command = [sys.executable, "-m", "realnode.proxmox", str(file), str(tmp_path)]
    path = os.pathsep.join(["tools", "tests", os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    with (tmp_path / "proxmox.log").open("wb") as log:
        running = subprocess.Popen([*command, BRIDGE, kind, HERE], stdout=log, stderr=log, env=env)
    try:
        file = tmp_path / "urls.json"
        eventually(lambda: file.exists() or running.poll() is not None, "Proxmox listens")
        urls = json.loads(file.read_text())
        block = {
            "region": REGION, "urls": [f"{u}/api2/json" for u in urls.values()],
            "ca_file": "ca.pem", "token_id": TOKEN, "token_secret": SECRET,
        }  # fmt: skip
        config = tmp_path / "moxwell.yaml"
        extra = getattr(request.module, "CONTROL_PLANES", {"addons": NO_ADDONS})
        tree = {"clusters": [block], "control_planes": {"address": HERE, **extra}}
        config.write_text(yaml.safe_dump(tree))
        yield str(config)
    finally:
        running.terminate()
        running.wait(120)


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path, "real")
    own_ports(made.state.folder)
    yield made
    made.run("down", check=False)
