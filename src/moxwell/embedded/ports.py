"""TCP ports of this machine to listen on: free ones, and the same ones after a restart."""

import errno
import ipaddress
import random
import socket
from collections.abc import Callable
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.errors import Busy, Invalid, Missing

PORT_RANGE = (20_000, 32_000)  # below the range the kernel uses for outgoing connections


class PortTaken(Busy):
    """Another program listens on a port that our clients use."""

    reason = "PortTaken"


class AddressMissing(Missing):
    """This machine does not have an address to listen on."""

    reason = "AddressMissing"


def https_url(host: str, port: int) -> str:
    """The URL of a server on an IP address."""
    return f"https://{host_port(host, port)}"


def host_port(host: str, port: int) -> str:
    """``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on a port now; AddressMissing if it is another machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise AddressMissing(_missing_message(host)) from None
            return False
    return True


def _missing_message(host: str) -> str:
    length = ipaddress.ip_address(host).max_prefixlen
    return (
        f"this machine does not have the address {host}: add it to an interface "
        f"(`ip address add {host}/{length} dev …`), or change the configuration"
    )


def free_port(host: str = "127.0.0.1", ports: tuple[int, int] = PORT_RANGE) -> int:
    """A random port that is free now; ``ports`` excludes the second one."""
    candidates = range(*ports)
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if is_free(port, host):
            return port
    raise PortTaken(
        f"no port of {ports[0]}-{ports[1] - 1} is free on {host}: permit more ports in the "
        "configuration"
    )


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


def same_or_new_port(
    port: int, new_port: Callable[[], int], *, ours: bool, host: str = "127.0.0.1"
) -> int:
    """The port while it is free or our program listens on it; else a new one."""
    return port if ours or is_free(port, host) else new_port()
