"""
Whether guests reach the control plane of their cluster, from the TCP connections of a guest.

The guest agent reads ``/proc/net/tcp`` and ``/proc/net/tcp6``, which needs no more privileges than
reading the file that cloud-init leaves. A kubelet that reaches its API server has an established
connection; one that does not sends SYN again and again.
"""

import ipaddress
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum

from moxwell.errors import MoxwellError
from moxwell.preflight.outcome import RegionCheck, failed, passed, warned
from moxwell.pve.regions import Region

FILES = ("/proc/net/tcp", "/proc/net/tcp6")
NAME = "control plane"
MAX_TEXT, MAX_LINES = 4 << 20, 20_000  # of a guest that somebody may have taken over


class TcpState(IntEnum):
    """The TCP states of Linux that show whether a server answers; others are left out."""

    ESTABLISHED = 1
    SYN_SENT = 2


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A connection of a guest to a server."""

    address: str
    port: int
    state: TcpState


@dataclass(frozen=True, slots=True)
class GuestProbe:
    """A guest of a cluster and its connections; ``error`` says why they could not be read."""

    cluster: str
    guest: str
    region: str
    host: str  # of the control plane, as in the kubeconfig
    port: int
    addresses: frozenset[str]  # that the host resolves to
    connections: tuple[TcpConnection, ...] = ()
    error: str = ""


def parse(text: str) -> tuple[TcpConnection, ...]:
    """The connections of a file of ``/proc/net``; lines of another form are left out."""
    lines = text[:MAX_TEXT].splitlines()[1 : MAX_LINES + 1]
    return tuple(found for line in lines if (found := connection_of(line)) is not None)


def connection_of(line: str) -> TcpConnection | None:
    """The connection of a line of ``/proc/net/tcp``; None if it has none."""
    fields = line.split()
    try:
        address, _, port = fields[2].partition(":")
        state = TcpState(int(fields[3], 16))
        return TcpConnection(_address(address), int(port, 16), state)
    except (IndexError, ValueError, struct.error):
        return None


def _address(digits: str) -> str:
    """Each 32 bits of the address are in the byte order of the machine, here little-endian."""
    words = struct.unpack(f"<{len(digits) // 8}I", bytes.fromhex(digits))
    found = ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def check(probe: GuestProbe) -> RegionCheck:
    """Whether the guest reaches the control plane of its cluster."""
    who = f"guest {probe.guest} of cluster {probe.cluster} in region {probe.region}"
    server = f"its control plane at {probe.host}:{probe.port}"
    if probe.error:
        do = "install qemu-guest-agent in the template; the role needs to read files of guests"
        return warned(NAME, f"{who}: its connections could not be read: {probe.error}", do)
    states = {c.state for c in _to(probe.connections, probe.addresses, probe.port)}
    if TcpState.ESTABLISHED in states:
        return passed(NAME, f"{who} is connected to {server}")
    allow = f"allow TCP port {probe.port} from the network of the guests to {probe.host}"
    if TcpState.SYN_SENT in states:
        return failed(NAME, f"{who} gets no answer from {server}", allow)
    do = f"see /var/log/cloud-init-output.log and the kubelet in the guest; {allow}"
    return warned(NAME, f"{who} has no connection to {server}", do)


def _to(
    connections: Iterable[TcpConnection], addresses: Collection[str], port: int
) -> list[TcpConnection]:
    return [c for c in connections if c.port == port and c.address in addresses]


async def read(region: Region, host: str, vmid: int) -> tuple[tuple[TcpConnection, ...], str]:
    """The connections of a guest, or why they are not known."""
    found: list[TcpConnection] = []
    for file in FILES:
        try:
            found += parse((await region.reader.agent.read_file(host, vmid, file)).content)
        except MoxwellError as error:
            if not found:
                return (), str(error)
    return tuple(found), ""
