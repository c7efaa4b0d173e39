"""
The state directory of one instance, ``$XDG_STATE_HOME/moxwell/NAME``: paths, lock, instance info.

The process that holds the lock is the daemon; the kernel releases the lock when the process ends.
``facts.json`` holds what a running daemon serves (addresses, mode, PID) and no secrets; secrets are
in files of their own. All files are 0600.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from moxwell.atomic_file import write_private
from moxwell.errors import Busy, Invalid

FORMAT = 1  # of the directory; incremented when an older Moxwell cannot read it any more
LOCK_ATTEMPTS = 1_000_000  # how often a reader may hold the lock while a daemon starts
RENAMED = {  # old name -> name, for directories of earlier versions
    "planes": "control-planes",
    "genuine": "control-plane-binaries",
    "machine-planes": "machine-control-planes",
    "wanted.json": "launch-options.json",
}
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}$")


class NewerState(Invalid):
    """A newer Moxwell wrote the directory."""

    reason = "NewerState"


class InstanceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a running daemon serves."""

    name: str
    mode: str
    version: str
    pid: int
    api: str
    dashboard: str
    metrics: str
    started: str
    regions: dict[str, list[str]] = {}
    config: str = ""
    world: str = ""
    control_plane_binaries: str = ""  # as in LaunchOptions
    autoscaler_mode: str = ""


class StateDir:
    """The state directory of one instance."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        if not _NAME.match(name):
            raise Invalid(f"{name!r} is not a valid instance name: use letters, digits and dashes")
        base = environ.get("XDG_STATE_HOME") or str(
            Path(environ.get("HOME") or Path.home()) / ".local" / "state"
        )
        self.name = name
        self.folder = Path(base) / "moxwell" / name
        self._lock: IO[str] | None = None

    def __repr__(self) -> str:
        return f"StateDir({self.folder})"

    # Paths

    @property
    def database(self) -> Path:
        return self.folder / "store.db"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def control_planes(self) -> Path:
        """Control planes that run in the daemon."""
        return self.folder / "control-planes"

    @property
    def control_plane_binaries(self) -> Path:
        """Control planes that run as processes, and their etcd."""
        return self.folder / "control-plane-binaries"

    @property
    def machine_control_planes(self) -> Path:
        """Control planes of simulated guests."""
        return self.folder / "machine-control-planes"

    @property
    def simulator(self) -> Path:
        return self.folder / "simulator.json"

    @property
    def lab_regions(self) -> Path:
        """The addresses of the lab's simulated hosts."""
        return self.folder / "lab-regions.json"

    @property
    def lab_kubelets(self) -> Path:
        """How API servers reach the kubelets of the lab's simulated nodes."""
        return self.folder / "lab-kubelets.json"

    @property
    def guests(self) -> Path:
        return self.folder / "guests.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def dashboard_key(self) -> Path:
        """The bearer token of the dashboard, for commands of the same user."""
        return self.folder / "dashboard.key"

    @property
    def proxmox_audit(self) -> Path:
        """The record of every write to Proxmox."""
        return self.folder / "audit" / "proxmox.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def restarts(self) -> Path:
        """How often the daemon was restarted since the last ``moxwell up``."""
        return self.folder / "restarts.json"

    @property
    def config_reload(self) -> Path:
        """What became of the last change of the configuration file."""
        return self.folder / "config-reload.json"

    @property
    def launch_options(self) -> Path:
        """The options of the last ``moxwell up``."""
        return self.folder / "launch-options.json"

    # The directory

    def create(self) -> None:
        """Create the directory with mode 0700."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)

    def check(self) -> None:
        """Refuse a directory that a newer Moxwell wrote; changes nothing."""
        file = self.folder / "format"
        text = (file.read_text().strip() if file.exists() else "") or str(FORMAT)
        if not text.isdigit() or int(text) > FORMAT:
            raise NewerState(
                f"{self.folder} was written by a newer Moxwell (format {text[:20]}, this one reads "
                f"{FORMAT}): install the newer one, or start another instance with --name"
            )

    def acquire(self) -> None:
        """Take the lock as the daemon of this instance; Busy if a daemon holds it."""
        self.create()
        self.check()
        file = (self.folder / "lock").open("a+")
        if not _acquire(file):
            file.close()
            raise Busy(f"instance {self.name!r} is running already")
        self._lock = file
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self.withdraw()  # a daemon that was killed has left it
        self._rename_old()
        write_private(self.folder / "format", f"{FORMAT}\n".encode())

    def release(self) -> None:
        """Release the lock, as the end of the process does."""
        if self._lock is not None:
            self._lock.close()

    def _rename_old(self) -> None:
        """Give files of an earlier version their new names."""
        for old, new in RENAMED.items():
            if (self.folder / old).exists() and not (self.folder / new).exists():
                (self.folder / old).rename(self.folder / new)

    def is_locked(self) -> bool:
        """Whether a daemon holds the lock."""
        lock = self.folder / "lock"
        if not lock.exists():
            return False
        with lock.open("r") as file:  # closing it releases the shared lock
            return not _flock(file, fcntl.LOCK_SH)

    def holder(self) -> int:
        """The PID of the process that holds the lock; 0 if none does."""
        if not self.is_locked():
            return 0
        text = (self.folder / "lock").read_text()
        return int(text) if text.isdigit() else 0

    def publish(self, info: InstanceInfo) -> None:
        """Write what the daemon serves."""
        write_private(self.folder / "facts.json", msgspec.json.encode(info))

    def info(self) -> InstanceInfo | None:
        """What the running daemon serves; None if none runs or it has not started yet."""
        file = self.folder / "facts.json"
        if not file.exists() or not self.is_locked():
            return None
        try:
            found = decode_info(file.read_bytes())
        except FileNotFoundError:  # a starting daemon has just removed it
            return None
        return found if is_alive(found.pid) else None  # else a killed daemon has left it

    def withdraw(self) -> None:
        """Remove what :meth:`publish` wrote."""
        (self.folder / "facts.json").unlink(missing_ok=True)

    def purge(self) -> None:
        """Delete the directory; Busy if a daemon runs."""
        if self.is_locked():
            raise Busy(f"instance {self.name!r} is running: run `moxwell down` first")
        shutil.rmtree(self.folder, ignore_errors=True)


def decode_info(data: bytes) -> InstanceInfo:
    """Read instance info, also that of a running daemon of an earlier version."""
    return msgspec.convert(rename_old_keys(msgspec.json.decode(data)), InstanceInfo)


def rename_old_keys(tree: dict[str, Any]) -> dict[str, Any]:
    """The JSON of launch options or instance info with today's keys (was: ``genuine``)."""
    renamed = {k: v for k, v in tree.items() if k != "genuine"}
    if "genuine" in tree:
        renamed.setdefault("control_plane_binaries", tree["genuine"])
    return renamed


def _flock(file: IO[str], operation: int) -> bool:
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _acquire(file: IO[str]) -> bool:
    """Take the lock unless a daemon holds it; readers hold a shared lock for an instant."""
    for _ in range(LOCK_ATTEMPTS):
        if _flock(file, fcntl.LOCK_EX):
            return True
        if not _flock(file, fcntl.LOCK_SH):  # not even shared: a daemon holds it
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        os.sched_yield()
    return False


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not status.parent.parent.exists()
