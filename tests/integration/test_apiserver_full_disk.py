"""Runs full_disk_story.py in a mount namespace with a small tmpfs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envtest.plugin import skip_here

pytestmark = pytest.mark.slow
STORY = Path(__file__).with_name("full_disk_story.py")
PATIENCE_SECONDS = 900


def run_with_small_tmpfs(
    folder: Path, size: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace where ``folder`` is a small tmpfs."""
    if shutil.which("unshare") is None:
        skip_here("no unshare: a full disk cannot be had")
    kind = "-m" if os.geteuid() == 0 else "-Urm"
    mount = f"mount -t tmpfs -o size={size} tmpfs '{folder}' || exit 77; exec \"$@\""
    done = subprocess.run(
        ["unshare", kind, "sh", "-c", mount, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        skip_here("no tmpfs may be mounted here: a full disk cannot be had")
    return done


def test_a_full_disk_loses_nothing_and_writes_resume_after_space_is_freed(tmp_path: Path) -> None:
    done = run_with_small_tmpfs(tmp_path, "6m", sys.executable, str(STORY), str(tmp_path))
    assert done.stdout == "exactly the acknowledged writes\n", done.stderr


def test_the_daemon_survives_a_full_disk(tmp_path: Path) -> None:
    done = run_with_small_tmpfs(
        tmp_path, "40m", sys.executable, str(STORY), "--daemon", str(tmp_path)
    )
    assert done.stdout == "failed, survived and recovered\n", done.stderr
