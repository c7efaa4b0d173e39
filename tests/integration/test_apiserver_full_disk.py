"""A file system that is really full, in a mount namespace of its own: see full_disk_story.py."""

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


def in_a_small_world(folder: Path, size: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command that alone sees ``folder`` as a small tmpfs."""
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


def test_a_full_disk_loses_nothing_and_writes_go_on_when_there_is_room(tmp_path: Path) -> None:
    done = in_a_small_world(tmp_path, "6m", sys.executable, str(STORY), str(tmp_path))
    assert done.stdout == "nothing lost, nothing invented\n", done.stderr


def test_the_daemon_outlives_a_full_disk(tmp_path: Path) -> None:
    done = in_a_small_world(tmp_path, "40m", sys.executable, str(STORY), "--daemon", str(tmp_path))
    assert done.stdout == "told, alive, and written on\n", done.stderr
