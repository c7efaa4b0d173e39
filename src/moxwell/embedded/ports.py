"""TCP ports of this machine to listen on: free ones, and the same ones after a restart."""

import random
import socket
from collections.abc import Callable
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.errors import Busy, Invalid

PORT_RANGE = (20_000, 32_000)  # below the range the kernel uses for outgoing connections


class PortTaken(Busy):
    """Another program listens on a port that clients of ours know."""

    reason = "PortTaken"


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on a port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A random port that is free now."""
    while True:
        port = random.SystemRandom().randrange(*PORT_RANGE)
        if is_free(port, host):
            return port


def remembered_port(file: Path, preferred: int, host: str = "127.0.0.1") -> int:
    """The port stored in a file; without a file the preferred port or a free one, then stored."""
    if file.exists():
        return _stored_port(file, host)
    port = preferred if preferred and is_free(preferred, host) else free_port(host)
    write_private(file, str(port).encode())
    return port


def _stored_port(file: Path, host: str) -> int:
    """The stored port; PortTaken if it is in use, because clients have saved it."""
    text = file.read_text().strip()
    if not text.isdigit():
        raise Invalid(f"{file} should hold a port, not {text[:20]!r}: delete the file")
    if not is_free(int(text), host):
        raise PortTaken(
            f"port {text} on {host} is taken by another program: stop that program, "
            f"or delete {file} for another port"
        )
    return int(text)


def same_or_new_port(port: int, new_port: Callable[[], int], *, ours: bool) -> int:
    """The port while it is free or our program listens on it; else a new one."""
    return port if ours or is_free(port) else new_port()
