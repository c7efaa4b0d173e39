"""
Where an instance of Moxwell keeps its things: one folder, one lock, one page of facts.

The folder is ``$XDG_STATE_HOME/moxwell/NAME``. Whoever holds the lock is the daemon; the lock goes
with the process, so a crash leaves none. ``facts.json`` says what a running daemon offers:
addresses, mode, process id. Nothing in it is a secret; what is, lies in files of its own, 0600.
"""

import fcntl
import os
import random
import re
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from moxwell.errors import Busy, Invalid

FORMAT = 1  # of the folder; one more whenever an older Moxwell could not go on with it
STEADY_PORTS = (20_000, 32_000)
LOOKERS = 1_000_000  # times that one who only looks may be in the way of a daemon that starts
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}$")


class PortTaken(Busy):
    """Somebody else listens where we always did."""

    reason = "PortTaken"


class Newer(Invalid):
    """The folder was last used by a Moxwell that came after this one."""

    reason = "NewerState"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a running daemon says of itself."""

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
    genuine: str = ""  # who hosts new tenants, as in a wish


class Home:
    """The folder of one instance."""

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        if not _NAME.match(name):
            raise Invalid(f"{name!r} is no name for an instance: use letters, digits and dashes")
        base = environ.get("XDG_STATE_HOME") or str(
            Path(environ.get("HOME") or Path.home()) / ".local" / "state"
        )
        self.name = name
        self.folder = Path(base) / "moxwell" / name
        self._held: IO[str] | None = None

    def __repr__(self) -> str:
        return f"Home({self.folder})"

    # Files

    @property
    def database(self) -> Path:
        return self.folder / "store.db"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def planes(self) -> Path:
        return self.folder / "planes"

    @property
    def genuine(self) -> Path:
        """Control planes made of genuine programs, and their etcd."""
        return self.folder / "genuine"

    @property
    def simulator(self) -> Path:
        return self.folder / "simulator.json"

    @property
    def guests(self) -> Path:
        return self.folder / "guests.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def bearer(self) -> Path:
        """The dashboard's own key, for commands of the same user."""
        return self.folder / "dashboard.key"

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    @property
    def wanted(self) -> Path:
        """How the daemon was last told to run, for the next start."""
        return self.folder / "wanted.json"

    # Life

    def make(self) -> None:
        """The folder, for its owner alone."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)

    def check(self) -> None:
        """Refuse a folder that a later Moxwell has changed: nothing in it is touched."""
        file = self.folder / "format"
        text = (file.read_text().strip() if file.exists() else "") or str(FORMAT)
        if not text.isdigit() or int(text) > FORMAT:
            raise Newer(
                f"{self.folder} was written by a newer Moxwell (format {text[:20]}, this one knows "
                f"{FORMAT}): install the newer one, or start another instance with --name"
            )

    def hold(self) -> None:
        """Become the daemon of this instance, or Busy."""
        self.make()
        self.check()
        file = (self.folder / "lock").open("w")
        if not _take(file):
            file.close()
            raise Busy(f"instance {self.name!r} is running already")
        self._held = file
        self.silence()  # what a killed predecessor said is not true any more
        write_whole(self.folder / "format", f"{FORMAT}\n".encode())

    def is_held(self) -> bool:
        """Whether a daemon lives."""
        lock = self.folder / "lock"
        if not lock.exists():
            return False
        with lock.open("r") as file:
            return not _locks(file, fcntl.LOCK_SH)  # closed at once, and open to others who look

    def say(self, facts: Facts) -> None:
        """Write the page of facts, whole."""
        write_whole(self.folder / "facts.json", msgspec.json.encode(facts))

    def facts(self) -> Facts | None:
        """What the running daemon says; None where none runs."""
        file = self.folder / "facts.json"
        if not file.exists() or not self.is_held():
            return None
        try:
            said = msgspec.json.decode(file.read_bytes(), type=Facts)
        except FileNotFoundError:  # a successor has just silenced it
            return None
        return said if is_alive(said.pid) else None  # the words of a killed predecessor

    def silence(self) -> None:
        """The daemon ends: it offers nothing any more."""
        (self.folder / "facts.json").unlink(missing_ok=True)

    def purge(self) -> None:
        """Leave nothing."""
        if self.is_held():
            raise Busy(f"instance {self.name!r} is running: run `moxwell down` first")
        shutil.rmtree(self.folder, ignore_errors=True)


def _locks(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _take(file: IO[str]) -> bool:
    """The lock for oneself, unless a daemon has it; whoever only looks has it for a moment."""
    for _ in range(LOOKERS):
        if _locks(file, fcntl.LOCK_EX):
            return True
        if not _locks(file, fcntl.LOCK_SH):  # not even to look: it is a daemon's
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        os.sched_yield()
    return False


def write_whole(file: Path, data: bytes) -> None:
    """
    Write beside and rename: whoever is killed in between leaves the old file, never half.

    For its owner's eyes, also where somebody has opened the folder to others.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_bytes(data)
    draft.replace(file)


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now, below those the system gives to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(*STEADY_PORTS)
        if is_free(port, host):
            return port


def kept_port(file: Path, wanted: int, host: str = "127.0.0.1") -> int:
    """The port of last time, the one wanted, or any free one; remembered."""
    if file.exists():
        return _same_port(file, host)
    port = wanted if wanted and is_free(wanted, host) else free_port(host)
    write_whole(file, str(port).encode())
    return port


def _same_port(file: Path, host: str) -> int:
    """The remembered port, if nobody else has taken it; others have noted it too."""
    text = file.read_text().strip()
    if not text.isdigit():
        raise Invalid(f"{file} should hold a port, not {text[:20]!r}: delete the file")
    if not is_free(int(text), host):
        raise PortTaken(
            f"port {text} on {host} is taken by another program: stop that program, "
            f"or delete {file} for another port"
        )
    return int(text)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether one could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def is_alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    status = Path(f"/proc/{pid}/stat")
    try:  # one that has ended and waits for its parent to notice is not there
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not status.parent.parent.exists()
