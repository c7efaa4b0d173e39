"""
Programs for file systems and encryption, from Debian packages.

``python -m envtest.disks`` installs them where apt is available and permitted. ``cryptsetup``
formats and checks keys without the kernel, but opens nothing without a device mapper; :func:`maps`
tells whether the kernel has one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from envtest import kernel

PACKAGES = {
    "mkfs.ext4": "e2fsprogs",
    "resize2fs": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "xfs_growfs": "xfsprogs",
    "cryptsetup": "cryptsetup-bin",
}


def missing() -> tuple[str, ...]:
    """Programs that are not installed."""
    return tuple(name for name in PACKAGES if shutil.which(name) is None)


def maps() -> bool:
    """Whether the kernel can map devices, which opening an encrypted disk needs."""
    rows = Path("/proc/misc").read_text().splitlines()
    return any(line.split()[-1] == "device-mapper" for line in rows)


def may_grow() -> bool:
    """Whether this process has CAP_SYS_RESOURCE, which growing a mounted ext4 needs."""
    rows = dict(r.split(":", 1) for r in Path("/proc/self/status").read_text().splitlines())
    return bool(int(rows["CapEff"], 16) >> 24 & 1)


def _apt(*args: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", "-qq", *args], env=env, check=False).returncode == 0


def install(packages: Sequence[str]) -> bool:
    """Install with apt if it is available."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    wanted = ("install", "-y", "--no-install-recommends", *packages)
    return _apt(*wanted) or (_apt("update") and _apt(*wanted))


def main() -> int:
    wanted = PACKAGES if maps() and may_grow() else PACKAGES | kernel.PACKAGES
    absent = [name for name in wanted if shutil.which(name) is None]
    if absent:
        sys.stdout.write(f"envtest: installing {', '.join(absent)}\n")
        install(sorted({wanted[name] for name in absent}))
    if missing():
        sys.stdout.write(f"envtest: no {', '.join(missing())}: tests of file systems are SKIPPED\n")
    if wanted != PACKAGES and kernel.missing():
        sys.stdout.write(
            "envtest: no device mapper and no User-mode Linux: encrypted disks SKIPPED\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
