"""Whether a guest reaches its control plane, from the connections that its kernel lists."""

import pytest

from moxwell.lab.guests import agent
from moxwell.preflight import guest_connections
from moxwell.preflight.guest_connections import GuestProbe, TcpConnection, TcpState
from moxwell.preflight.outcome import CheckLevel

# Lines of a Debian 12: kubelet to 10.0.0.5:6443, a listener, one that waits for an answer.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2742 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21131 1
   1: 1500000A:B2D4 0500000A:192B 01 00000000:00000000 02:0000029C 00000000     0        0 30011 2
   2: 1500000A:B2D6 0600000A:192B 02 00000001:00000000 01:00000123 00000003     0        0 30012 2
   3: broken
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 0000000000000000FFFF00001500000A:B2D8 0000000000000000FFFF00000700000A:192B 01 00000000:0
   1: B80D0120000000000000000001000000:B2D9 B80D0120000000000000000005000000:01BB 02 00000000:0
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TCP, [("10.0.0.5", 6443, 1), ("10.0.0.6", 6443, 2)]),
        (TCP6, [("10.0.0.7", 6443, 1), ("2001:db8::5", 443, 2)]),
        ("", []),
        ("head\n1: zz:zz zz:zz zz\n2: 0 00:00 01\n", []),
    ],
)
def test_the_files_of_linux_are_read(text: str, expected: list[tuple[str, int, int]]) -> None:
    found = guest_connections.parse(text)
    assert [(c.address, c.port, c.state) for c in found] == expected


def test_a_simulated_guest_writes_what_linux_writes() -> None:
    system = agent.OperatingSystem(
        connections=lambda: [("10.0.0.5", 6443, True), ("10.0.0.6", 443, False)]
    )
    text = agent.answer(system, "file-read", {"file": "/proc/net/tcp"})["content"]
    assert guest_connections.parse(text) == (
        TcpConnection("10.0.0.5", 6443, TcpState.ESTABLISHED),
        TcpConnection("10.0.0.6", 443, TcpState.SYN_SENT),
    )


def _probe(*connections: tuple[str, int, TcpState], error: str = "") -> GuestProbe:
    return GuestProbe(
        cluster="c1",
        guest="w1",
        region="r1",
        host="api.example",
        port=6443,
        addresses=frozenset({"10.0.0.5", "10.0.0.6"}),
        connections=tuple(TcpConnection(*c) for c in connections),
        error=error,
    )


@pytest.mark.parametrize(
    ("probe", "level", "text"),
    [
        (_probe(("10.0.0.6", 6443, TcpState.ESTABLISHED)), CheckLevel.PASS, "is connected"),
        (
            _probe(("10.0.0.5", 6443, TcpState.SYN_SENT), ("10.0.0.6", 6443, TcpState.ESTABLISHED)),
            CheckLevel.PASS,
            "is connected",
        ),
        (_probe(("10.0.0.5", 6443, TcpState.SYN_SENT)), CheckLevel.FAIL, "gets no answer"),
        (_probe(("10.0.0.5", 22, TcpState.ESTABLISHED)), CheckLevel.WARN, "has no connection"),
        (_probe(("10.9.9.9", 6443, TcpState.ESTABLISHED)), CheckLevel.WARN, "has no connection"),
        (_probe(error="no agent"), CheckLevel.WARN, "could not be read: no agent"),
    ],
)
def test_an_established_connection_proves_it(
    probe: GuestProbe, level: CheckLevel, text: str
) -> None:
    found = guest_connections.check(probe)
    assert (found.level, text in found.what) == (level, True)
    assert bool(found.do) == (level is not CheckLevel.PASS)
