"""
Builds the Debian package of the host agent from the source tree.

Run: ``python tools/agent_package.py FOLDER``. The package holds the modules of ``moxwell.agent``
under a name of their own, a starter and a systemd unit; it needs python3 only.
"""

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = ROOT / "src" / "moxwell" / "agent"
UNIT = ROOT / "release" / "agent" / "moxwell-agent.service"
STARTER = """#!/usr/bin/python3
import sys

from moxwell_agent.__main__ import main

sys.exit(main())
"""
CONTROL = """Package: moxwell-agent
Version: {version}
Section: admin
Priority: optional
Architecture: all
Depends: python3 (>= 3.11)
Maintainer: Moxwell developers <moxwell@example.org>
Description: publishes host topology and pins CPUs of Moxwell's guests
 Runs on a Proxmox VE host. Publishes sockets, NUMA nodes, caches and sibling
 threads in the notes of the node, and pins the threads of marked guests.
"""
POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable --now moxwell-agent.service
fi
"""
PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now moxwell-agent.service
fi
"""


def lay_out(folder: Path, release: str) -> Path:
    """Write the tree of the package."""
    modules = folder / "usr/lib/python3/dist-packages/moxwell_agent"
    modules.mkdir(parents=True)
    for source in sorted(MODULES.glob("*.py")):
        text = source.read_text().replace("moxwell.agent", "moxwell_agent")
        (modules / source.name).write_text(text)
    _write(folder / "usr/bin/moxwell-agent", STARTER, 0o755)
    (folder / "lib/systemd/system").mkdir(parents=True)
    shutil.copy(UNIT, folder / "lib/systemd/system" / UNIT.name)
    _write(folder / "DEBIAN/control", CONTROL.format(version=release), 0o644)
    _write(folder / "DEBIAN/postinst", POSTINST, 0o755)
    _write(folder / "DEBIAN/prerm", PRERM, 0o755)
    return folder


def build(target: Path, release: str) -> Path:
    """Build the package into a folder."""
    tree = lay_out(target / "moxwell-agent", release)
    package = target / f"moxwell-agent_{release}_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)
    return package


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(build(folder, version("moxwell")))  # noqa: T201
