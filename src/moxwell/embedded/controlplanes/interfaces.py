"""
Adds the address of a tenant's control plane to an interface, and removes it with the tenant.

The tenant's folder records the interface before the address is added, so that after a crash an
address that we added is known, and one that was there before is never removed. ``ip`` of iproute2
does the work; without the right to use it the error says what to run. An added address is announced
to the neighbours, which may know another machine by it.
"""

import ipaddress
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from moxwell.atomic_file import write_private
from moxwell.embedded.controlplanes.announcement import announce
from moxwell.embedded.ports import AddressMissing, is_free
from moxwell.errors import Denied, Terminal

log = structlog.get_logger(__name__)
FILE = "interface"
IP_SECONDS = 10.0
Announce = Callable[[str, str], str]  # interface and address; returns why it failed
Run = Callable[[Sequence[str]], str]  # returns why it failed; empty: it did not


class AddressDenied(Denied):
    """An address cannot be added to the interface."""

    reason = "AddressDenied"


def run_ip(words: Sequence[str]) -> str:
    """Run ``ip``; returns its message if it fails."""
    try:
        done = subprocess.run(
            ["ip", *words], capture_output=True, text=True, check=False, timeout=IP_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"ip cannot be run: {type(error).__name__}"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"ip exits {done.returncode}")


def has_address(host: str) -> bool:
    """Whether this machine has an address."""
    try:
        is_free(0, host)
    except AddressMissing:
        return False
    return True


class Interfaces:
    """The addresses of this machine's interfaces."""

    def __init__(
        self,
        run: Run = run_ip,
        has: Callable[[str], bool] = has_address,
        announce: Announce = announce,
    ) -> None:
        self._run, self._has, self._announce = run, has, announce

    def ensure(self, folder: Path, interface: str, host: str) -> None:
        """Add the address of a tenant's folder unless the machine has it."""
        if not interface or self._has(host):
            return
        words = ("address", "add", f"{host}/{_length(host)}", "dev", interface)
        write_private(folder / FILE, f"{interface} {host}".encode())
        if why := self._run(words):
            (folder / FILE).unlink()
            raise AddressDenied(
                f"the address {host} cannot be added to {interface} ({why}): run "
                f"`ip {' '.join(words)}` as root, or give Moxwell the capability CAP_NET_ADMIN"
            )
        log.info("address added", address=host, interface=interface)
        if why := self._announce(interface, host):
            log.warning("address not announced", address=host, interface=interface, reason=why)

    def release(self, folder: Path) -> None:
        """Remove the address that was added for a tenant's folder."""
        file = folder / FILE
        if not file.exists():
            return
        interface, host = file.read_text().split(" ")
        if self._has(host):
            words = ("address", "delete", f"{host}/{_length(host)}", "dev", interface)
            if why := self._run(words):
                raise Terminal(
                    f"the address {host} cannot be removed from {interface} ({why}): run "
                    f"`ip {' '.join(words)}` as root"
                )
            log.info("address removed", address=host, interface=interface)
        file.unlink()


def _length(host: str) -> int:
    return ipaddress.ip_address(host).max_prefixlen
