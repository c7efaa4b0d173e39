"""
Run a command in User-mode Linux, for what the kernel of this machine denies.

The command runs as root of a new kernel that sees the files of this machine read-only, with a
device mapper, loop devices and all capabilities. It needs no privileges, because the kernel is a
process. The dependencies of dm-crypt's modules are incomplete (its keys need a cipher that is a
module itself), so modules are loaded in an explicit order.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {"linux.uml": "user-mode-linux", "modprobe": "kmod"}
MODULES = ("aes_ti", "ecb", "cbc", "xts", "dm-mod", "dm-crypt", "loop")
INSIDE = "MOXWELL_INSIDE_A_KERNEL"
UP, ENDED = "moxwell: the kernel is up", "moxwell: ended with "
MEMORY = "3G"
PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Ran:
    """The result of the command; ``code`` is None if the kernel did not run it."""

    code: int | None
    output: str


def missing() -> tuple[str, ...]:
    """Programs that are not installed."""
    return tuple(name for name in PACKAGES if shutil.which(name) is None)


def script(command: tuple[str, ...], folder: Path) -> str:
    """The first process of the kernel."""
    return f"""#!/bin/sh
export PATH={shlex.quote(os.environ["PATH"])}:/usr/sbin:/sbin HOME=/run TMPDIR=/run/tmp
export LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY=/run/tmp {INSIDE}=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run
mkdir -p /run/tmp /run/lib/modules; ln -s /usr/lib/uml/modules/$(uname -r) /run/lib/modules/
for module in {" ".join(MODULES)}; do modprobe -d /run $module; done
cd {shlex.quote(str(folder))}
echo; echo "{UP}"
{shlex.join(command)} 2>&1; code=$?
echo; echo "{ENDED}$code"
halt -f
"""


def run(*command: str, folder: Path) -> Ran:
    """Run a command in a new kernel, in ``folder``."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        first = Path(made) / "init"
        first.write_text(script(command, folder))
        first.chmod(0o700)
        running = subprocess.Popen(
            ["linux.uml", f"mem={MEMORY}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/",
             "ro", f"init={first}", "con=null", "con0=null,fd:1", "loglevel=1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env={**os.environ, "TMPDIR": "/tmp"}, start_new_session=True,
        )  # fmt: skip
        printed = _await(running)
    _, up, output = printed.partition(UP)
    output, ended, rest = output.rpartition(ENDED)
    return Ran(int(rest.split()[0]), output) if up and ended else Ran(None, printed[-2000:])


def _await(running: "subprocess.Popen[str]") -> str:
    """Read all output; a kernel that does not exit is killed with its processes."""
    try:
        return running.communicate(timeout=PATIENCE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return running.communicate()[0]
