"""
Limits that a child process sets on itself before it loads anything large. Linux only.

``RLIMIT_DATA`` makes an allocation fail (MemoryError) before the machine runs out of memory; the
supervisor restarts the process at a lower value, its resident memory. A higher nice value gives the
CPU to the daemon first. There are no core dumps: they would contain private keys.
"""

import ctypes
import os
import resource
import signal

import msgspec

PR_SET_PDEATHSIG = 1
HEADROOM = 1.5  # of allocated memory over resident memory


class ProcessLimits(msgspec.Struct, frozen=True):
    """What one process may use."""

    memory: int = 1 << 30  # resident bytes
    nice: int = 5
    open_files: int = 16_384

    @property
    def data(self) -> int:
        """Bytes that it may allocate."""
        return int(self.memory * HEADROOM)


def apply(limits: ProcessLimits) -> None:
    """Set the limits on this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.data, limits.data))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = limits.open_files if hard == resource.RLIM_INFINITY else min(limits.open_files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    os.nice(limits.nice)


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send a signal to this process when ``parent``, its parent, ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), number)
