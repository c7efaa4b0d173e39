"""
Find or install a browser for the tests of the dashboard.

``python -m envtest.browser`` installs Debian's Chromium where apt is available and permitted.
Nothing is downloaded from elsewhere.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> Path | None:
    """The path of an installed browser, or None."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return Path(found) if found else None


def _apt(*args: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", "-qq", *args], env=env, check=False).returncode == 0


def install() -> bool:
    """Install with apt if it is available."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    package = ("install", "-y", "--no-install-recommends", "chromium")
    return _apt(*package) or (_apt("update") and _apt(*package))


def main() -> int:
    if find() is None:
        sys.stdout.write("envtest: installing Chromium\n")
        install()
    if find() is None:
        sys.stdout.write("envtest: no Chromium: browser tests of the dashboard are SKIPPED\n")
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
