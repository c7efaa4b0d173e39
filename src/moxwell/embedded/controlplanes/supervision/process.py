"""
Starts, finds and terminates processes of this machine; a later daemon finds them again.

A process writes its run file (digest, boot id, its line of ``/proc/PID/stat``) before it becomes
the program, so there is no program without a run file, whenever we are killed. A run file counts
only while a process with that PID *and* that start time exists: a process that got the PID later
is never terminated.
"""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moxwell.clock import Clock
from moxwell.errors import Busy

GRACE_SECONDS = 6.0  # kube-apiserver would wait for its watchers up to a minute
POLL_SECONDS = 0.05
RUN_FILES = "*.run"
STOPPED_LAST = "etcd"  # and etcd-1, …
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# $1 folder, $2 run file, $3 digest; the rest is the program
_LAUNCH = """umask 077; cd "$1" || exit 126
IFS= read -r stat </proc/$$/stat && IFS= read -r boot </proc/sys/kernel/random/boot_id || exit 126
printf '%s\\n%s\\n%s\\n' "$3" "$boot" "$stat" >"$2.new" && mv "$2.new" "$2" || exit 126
shift 3; exec "$@"
"""


class ProcessRemains(Busy):
    """A process still exists after SIGKILL."""

    reason = "ProcessRemains"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What to start; a different ``digest`` means the program must be restarted."""

    name: str  # of its run file and its log
    argv: tuple[str, ...]
    folder: Path
    digest: str

    @property
    def run_file(self) -> Path:
        return self.folder / f"{self.name}.run"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process, identified by its PID and its start time in ticks since the boot."""

    pid: int
    start_time: int
    digest: str


class Processes:
    """Starts, finds and terminates processes."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        """``environ`` is the whole environment of the programs."""
        self._clock, self._environ = clock, dict(environ)

    def start(self, spec: LaunchSpec) -> RunningProcess:
        """Start a program in a session of its own; its output is appended to its log."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        script = ("sh", "-c", _LAUNCH, "sh", str(spec.folder), str(spec.run_file), spec.digest)
        stdin = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        stdout = (os.POSIX_SPAWN_OPEN, 1, str(spec.log), flags, 0o600)
        pid = os.posix_spawn(
            "/bin/sh",
            [*script, *spec.argv],
            self._environ,
            file_actions=[stdin, stdout, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGPIPE),
        )
        return RunningProcess(pid, _start_time(pid) or 0, spec.digest)

    def find(self, run_file: Path) -> RunningProcess | None:
        """The process of a run file, if it exists."""
        return find(run_file)

    async def wait(self, process: RunningProcess) -> int | None:
        """Wait until it has exited; its exit code if it was our child."""
        with _opened(process) as handle:
            if handle is not None:
                loop, exited = asyncio.get_running_loop(), asyncio.Event()
                loop.add_reader(handle, exited.set)
                try:
                    await exited.wait()
                finally:
                    loop.remove_reader(handle)
        return _reap(process.pid)

    def memory(self, process: RunningProcess) -> int:
        """Its resident memory in bytes; 0 if it has exited."""
        try:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def terminate(self, process: RunningProcess) -> None:
        """Send SIGTERM, and SIGKILL after a grace period."""
        with _opened(process) as handle:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if handle is None or await self._exits_on(handle, number):
                    _reap(process.pid)
                    return
        raise ProcessRemains(f"process {process.pid} still exists after SIGKILL")

    async def _exits_on(self, handle: int, number: signal.Signals) -> bool:
        """Send a signal; whether the process, with all its threads, exits in the grace period."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        exited = select.poll()
        exited.register(handle, select.POLLIN)
        deadline = self._clock.monotonic() + GRACE_SECONDS
        while self._clock.monotonic() < deadline:
            if exited.poll(0):
                return True
            await self._clock.sleep(POLL_SECONDS)
        return False


def find(run_file: Path) -> RunningProcess | None:
    """The process of a run file, if it exists."""
    try:
        digest, boot, stat = run_file.read_text().splitlines()
        pid, (_, start_time) = int(stat.partition(" ")[0]), _parse_stat(stat)
    except (OSError, ValueError, IndexError):
        return None
    if boot != _BOOT_ID.read_text().strip() or _start_time(pid) != start_time:
        return None
    return RunningProcess(pid, start_time, digest)


def run_files(root: Path) -> list[Path]:
    """All run files below a folder."""
    return sorted(root.rglob(RUN_FILES))


async def terminate_all(root: Path, clock: Clock) -> int:
    """Terminate what a killed daemon left running below a folder; returns how many processes."""
    processes, count = Processes(clock, {}), 0
    for last in (False, True):  # etcd after its clients
        files = [f for f in run_files(root) if (f.stem.split("-")[0] == STOPPED_LAST) is last]
        found = [process for file in files if (process := find(file)) is not None]
        await asyncio.gather(*(processes.terminate(process) for process in found))
        for file in files:
            file.unlink(missing_ok=True)
        count += len(found)
    return count


def _parse_stat(line: str) -> tuple[str, int]:
    """State and start time of a ``stat`` line; the command before them may contain brackets."""
    fields = line.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _start_time(pid: int) -> int | None:
    """When a process started; None if it does not exist or is a zombie."""
    try:
        state, start_time = _parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else start_time


@contextlib.contextmanager
def _opened(process: RunningProcess) -> Iterator[int | None]:
    """A pidfd of exactly this process; None if it does not exist any more."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:  # compared while the pidfd is open, so the PID cannot be reused meanwhile
        yield handle if _start_time(process.pid) == process.start_time else None
    finally:
        os.close(handle)


def _reap(pid: int) -> int | None:
    """The exit code of a child; None if it is not our child or still runs."""
    with contextlib.suppress(ChildProcessError):
        exited, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if exited else None
    return None


def tail(log: Path, lines: int = 1) -> Sequence[str]:
    """The last lines of a log."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def rotate_log(log: Path, limit: int) -> None:
    """Move the end of a log beyond the limit to ``.1`` and truncate it."""
    if not log.exists() or log.stat().st_size <= limit:
        return
    with log.open("rb+") as file:
        file.seek(-limit // 2, os.SEEK_END)
        old = log.with_name(log.name + ".1")
        old.touch(mode=0o600)
        old.write_bytes(file.read())
        file.truncate(0)
