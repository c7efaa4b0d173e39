"""The simulated shell, its terminal and the simulated HTTP server of pods."""

from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.lab.guests.pod_usage import VmLoad, node_usage, pod_usage
from moxwell.lab.guests.simulated_http import SimulatedHttp, port_problem
from moxwell.lab.guests.simulated_shell import SimulatedShell
from moxwell.lab.guests.terminal import LineReader, TypedLine

CONTAINER: dict[str, Any] = {
    "name": "web",
    "image": "nginx",
    "env": [{"name": "COLOUR", "value": "blue"}],
    "volumeMounts": [{"name": "data", "mountPath": "/srv/data"}],
    "ports": [{"containerPort": 80}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
}
POD: dict[str, Any] = {
    "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"},
    "spec": {"containers": [CONTAINER]},
    "status": {"podIP": "10.244.1.2"},
}
COMMANDS: dict[str, tuple[list[str], str, int]] = {
    "hostname": (["hostname"], "web-1\n", 0),
    "address": (["hostname", "-i"], "10.244.1.2\n", 0),
    "variable": (["sh", "-c", 'echo "$COLOUR $HOSTNAME"'], "blue web-1\n", 0),
    "words": (["echo", "-n", "a", "b"], "a b", 0),
    "mounted folder": (["ls", "/srv"], "data\n", 0),
    "file": (["cat", "/etc/hostname"], "web-1\n", 0),
    "two commands": (["sh", "-c", "cd /srv; pwd && echo yes"], "/srv\nyes\n", 0),
    "failed condition": (["sh", "-c", "false && echo yes"], "", 1),
    "quoted separator": (["sh", "-c", "echo 'a;b'"], "a;b\n", 0),
    "exit code": (["sh", "-c", "exit 7"], "", 7),
    "unknown program": (["/usr/bin/curl", "-v"], "", 127),
    "missing file": (["cat", "/nothing"], "", 1),
    "pipe": (["sh", "-c", "ls | sort"], "", 2),
    "open quotation mark": (["sh", "-c", "echo 'a"], "", 2),
    "copy": (["tar", "cf", "-", "/etc"], "", 2),
}


@pytest.mark.parametrize(("argv", "out", "code"), COMMANDS.values(), ids=COMMANDS)
def test_commands(argv: list[str], out: str, code: int) -> None:
    result = SimulatedShell(POD, CONTAINER).execute(argv)
    assert (result.out, result.code) == (out, code), result.error
    assert bool(result.error) == (code in (2, 127) or ("cat" in argv[:1] and code == 1))


def test_an_unknown_command_says_what_the_shell_knows() -> None:
    error = SimulatedShell(POD, CONTAINER).execute(["psql"]).error
    assert "psql: not found: this shell is simulated and knows help, echo" in error


TYPED: dict[str, tuple[bytes, bytes, list[TypedLine]]] = {
    "a line": (b"ls\r", b"ls\r\n", [TypedLine("ls")]),
    "backspace": (b"lx\x7fs\r", b"lx\b \bs\r\n", [TypedLine("ls")]),
    "interrupt": (b"abc\x03", b"abc^C\r\n", [TypedLine()]),
    "end": (b"\x04", b"", [TypedLine(ended=True)]),
    "half a line": (b"l", b"l", []),
}


@pytest.mark.parametrize(("data", "echo", "lines"), TYPED.values(), ids=TYPED)
def test_a_terminal_edits_lines(data: bytes, echo: bytes, lines: list[TypedLine]) -> None:
    assert LineReader(tty=True).feed(data) == (echo, lines)


def test_a_line_has_a_limit() -> None:
    reader = LineReader(tty=False)
    reader.feed(b"x" * 1_000_000)
    assert len(reader.end()[0].text) == 4096


@pytest.mark.parametrize(
    ("request_bytes", "begins"),
    [
        pytest.param(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK", id="get"),
        pytest.param(b"GET /a HTTP/1.1\r\nHost", b"", id="half a request"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", b"", id="half a body"),
        pytest.param(b"\x16\x03\x01" * 30_000, b"HTTP/1.1 400 Bad Request", id="not HTTP"),
    ],
)
def test_simulated_http(request_bytes: bytes, begins: bytes) -> None:
    answer = SimulatedHttp(POD, 80).feed(request_bytes)
    assert answer.startswith(begins)
    assert bool(answer) == bool(begins)


def test_only_declared_ports_listen() -> None:
    assert port_problem(POD, 80) == ""
    assert "declared ports only: 80" in port_problem(POD, 81)
    assert port_problem({"spec": {"containers": [{"name": "c"}]}}, 81) == ""


def test_a_node_uses_what_its_vm_reports_and_at_least_its_pods() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    own = pod_usage(POD, now)["web"]
    assert 0.3 <= own.cpu <= 0.5
    assert 0.5 * 2**30 <= own.memory <= 0.7 * 2**30
    assert node_usage([POD], VmLoad(0.5, 0.5), 4, 8192, now).as_json() == {
        "cpu": "2000000000n",
        "memory": f"{4 * 1024 * 1024}Ki",
    }
    assert node_usage([POD], VmLoad(0, 0), 4, 8192, now) == own
