"""Starting the programs of the comparison, and waiting for what they do."""

import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from envtest.control_plane import ControlPlane
from envtest.process import Process, wait_for
from peers.proxmox import RecordedProxmox

IDLE_SECONDS = 30.0
PATIENCE_SECONDS = 900.0


def run_moxwell(plane: ControlPlane, *args: str) -> Process:
    """Start a command of Moxwell."""
    return plane.run("moxwell", Path(sys.executable), "-m", "moxwell", *args)


def region_file(proxmox: RecordedProxmox, path: Path) -> Path:
    """The configuration file of Moxwell."""
    path.write_text(proxmox.config())
    return path


def peer_region_file(proxmox: RecordedProxmox, path: Path) -> Path:
    """The same configuration as the Go programs read it: they do not know ``ca_file``."""
    found = yaml.safe_load(proxmox.config())
    for entry in found["clusters"]:
        entry["url"] += "/api2/json"
        entry["insecure"] = True
        del entry["ca_file"]
    path.write_text(yaml.safe_dump(found))
    return path


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, in real time."""
    wait_for(lambda: True if is_true() else None, what, seconds=PATIENCE_SECONDS)
