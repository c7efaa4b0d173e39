"""
A bare Debian root file system, as the base image of the Containerfile has it.

``python -m envtest.debian`` makes it once with mmdebstrap, as an archive in the cache, where apt is
available and permitted.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from envtest import disks, locate

SUITE = "bookworm"


def archive() -> Path:
    """The path of the archive, made or not."""
    return locate.cache() / f"debian-{SUITE}.tar"


def make() -> bool:
    """Make the archive, completely or not at all."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        return False
    target = archive()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial.tar")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", SUITE, str(partial)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        partial.replace(target)
    partial.unlink(missing_ok=True)
    return done.returncode == 0


def main() -> int:
    if archive().exists():
        return 0
    sys.stdout.write("envtest: making a bare Debian file system\n")
    if shutil.which("mmdebstrap") is None:
        disks.install(["mmdebstrap"])
    if not make():
        sys.stdout.write("envtest: no bare Debian: the test of the Containerfile is SKIPPED\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
