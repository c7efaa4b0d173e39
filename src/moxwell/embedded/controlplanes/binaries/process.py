"""
Programs as the system sees them: started, found again by a later daemon, ended.

A program writes its own page (process id, birth, boot, what it was started as) before it becomes
the program, so there is none without a page, whenever we are killed. A page counts only while a
process with that id *and* that birth lives: a number that was given to a stranger is never ended.
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

GRACE_SECONDS = 6.0  # an API server waits for its watchers much longer than they are worth
POLL_SECONDS = 0.05
PAGE = "*.run"
LAST = ("etcd",)
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# $1 folder, $2 page, $3 what it is; the rest is the program. The page is there before the program.
_LAUNCH = """umask 077; cd "$1" || exit 126
IFS= read -r stat </proc/$$/stat && IFS= read -r boot </proc/sys/kernel/random/boot_id || exit 126
printf '%s\\n%s\\n%s\\n' "$3" "$boot" "$stat" >"$2.new" && mv "$2.new" "$2" || exit 126
shift 3; exec "$@"
"""


class WillNotEnd(Busy):
    """A process is still there after it was killed."""

    reason = "ProcessRemains"


@dataclass(frozen=True, slots=True)
class Job:
    """What to start: ``mark`` says what it is, and differs when it should be started anew."""

    stem: str  # of its page and its log
    argv: tuple[str, ...]
    folder: Path
    mark: str

    @property
    def page(self) -> Path:
        return self.folder / f"{self.stem}.run"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.stem}.log"


@dataclass(frozen=True, slots=True)
class Life:
    """One process: its id, and its birth in ticks since the boot."""

    pid: int
    born: int
    mark: str


class Processes:
    """Starts, finds and ends processes of this machine."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        """``environ`` is all that a program gets: it holds no secret."""
        self._clock, self._environ = clock, dict(environ)

    def start(self, job: Job) -> Life:
        """Start a program in a session of its own, its output appended to its log."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        words = ["sh", "-c", _LAUNCH, "sh", str(job.folder), str(job.page), job.mark, *job.argv]
        out = (os.POSIX_SPAWN_OPEN, 1, str(job.log), flags, 0o600)
        quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        actions = [quiet, out, (os.POSIX_SPAWN_DUP2, 1, 2)]
        pid = os.posix_spawn(
            "/bin/sh", words, self._environ, file_actions=actions, setsid=True,
            setsigmask=(), setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGPIPE),
        )  # fmt: skip
        return Life(pid, _born(pid) or 0, job.mark)

    def find(self, page: Path) -> Life | None:
        """The process a page tells of, if it lives."""
        return find(page)

    async def ended(self, life: Life) -> int | None:
        """Wait until it has ended; its exit code if it was a child of ours."""
        with _held(life) as handle:
            if handle is not None:
                loop, over = asyncio.get_running_loop(), asyncio.Event()
                loop.add_reader(handle, over.set)
                try:
                    await over.wait()
                finally:
                    loop.remove_reader(handle)
        return _reaped(life.pid)

    async def end(self, life: Life) -> None:
        """Ask it to end, insist after a grace."""
        with _held(life) as handle:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if handle is None or await self._sent(handle, number):
                    _reaped(life.pid)
                    return
        raise WillNotEnd(f"process {life.pid} does not end, not even when killed")

    async def _sent(self, handle: int, number: signal.Signals) -> bool:
        """Send a signal; whether the process was gone within the grace, all its threads."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        over = select.poll()
        over.register(handle, select.POLLIN)
        deadline = self._clock.monotonic() + GRACE_SECONDS
        while self._clock.monotonic() < deadline:
            if over.poll(0):
                return True
            await self._clock.sleep(POLL_SECONDS)
        return False


def find(page: Path) -> Life | None:
    """The process a page tells of, if it lives."""
    try:
        mark, boot, stat = page.read_text().splitlines()
        pid, (_, born) = int(stat.partition(" ")[0]), _read_stat(stat)
    except (OSError, ValueError, IndexError):
        return None
    if boot != _BOOT.read_text().strip() or _born(pid) != born:
        return None
    return Life(pid, born, mark)


def pages(root: Path) -> Iterator[Path]:
    """All pages below a folder."""
    yield from sorted(root.rglob(PAGE))


async def end_all(root: Path, clock: Clock) -> int:
    """End whatever a killed daemon left running below a folder; how many that were."""
    hands, count = Processes(clock, {}), 0
    for last in (False, True):  # the store goes after those that write to it
        mine = [page for page in pages(root) if (page.stem in LAST) is last]
        found = [life for page in mine if (life := find(page)) is not None]
        await asyncio.gather(*(hands.end(life) for life in found))
        for page in mine:
            page.unlink(missing_ok=True)
        count += len(found)
    return count


def _read_stat(line: str) -> tuple[str, int]:
    """State and birth; the name before them may hold anything, brackets too."""
    fields = line.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _born(pid: int) -> int | None:
    """When a living process was born; None for none, and for one that only waits to be reaped."""
    try:
        state, born = _read_stat(Path(f"/proc/{pid}/stat").read_text())
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else born


@contextlib.contextmanager
def _held(life: Life) -> Iterator[int | None]:
    """A handle on exactly this process; None where it is not there any more."""
    try:
        handle = os.pidfd_open(life.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        same = _born(life.pid) == life.born  # asked with the handle open: no number changes hands
        yield handle if same else None
    finally:
        os.close(handle)


def _reaped(pid: int) -> int | None:
    """Take leave of a child; None where it is nobody's child of ours, or lives."""
    with contextlib.suppress(ChildProcessError):
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None
    return None


def tail(log: Path, lines: int = 1) -> Sequence[str]:
    """The last lines of a log."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def bound(log: Path, limit: int) -> None:
    """Keep a log small: beyond the limit its end moves to ``.1`` and it begins anew."""
    if not log.exists() or log.stat().st_size <= limit:
        return
    with log.open("rb+") as file:
        file.seek(-limit // 2, os.SEEK_END)
        old = log.with_name(log.name + ".1")
        old.touch(mode=0o600)
        old.write_bytes(file.read())
        file.truncate(0)
