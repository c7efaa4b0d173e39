"""The processes of ``moxwell operator`` and ``moxwell csi`` that replace their commands."""

import asyncio
import ssl
import subprocess
import sys
from asyncio import sslproto
from pathlib import Path
from typing import Any

import pytest

from moxwell.app.autoscaler_files import AutoscalerFiles
from moxwell.app.operator import OperatorOptions
from moxwell.cli import service_process
from moxwell.clock import SystemClock
from moxwell.controllers.cloud.loops import CloudIntervals
from moxwell.csi.main import ControllerOptions, NodeOptions
from moxwell.csi.registration import KubeletRegistration
from moxwell.lab.proxmox import certs
from moxwell.runtime.settings import LeaseTimes, Listen, ManagerSettings

SETTINGS = ManagerSettings(
    identity="host_1",
    namespaces=("a", "b"),
    lease_times=LeaseTimes(lease_duration=30, renew_deadline=20.0, retry_period=3.0),
    health=Listen(host="::", port=1, tls=True),
)
OPERATOR = OperatorOptions(
    config=Path("/etc/regions"),
    settings=SETTINGS,
    controllers=("infra",),
    dry_run=True,
    intervals=CloudIntervals(refresh_seconds=7.5),
    provider_files=AutoscalerFiles(proxmox_vmid=500),
    autoscaler={"mode": "exact"},
)
HEAVY = (
    "typer",
    "click",
    "rich",
    "greenlet",
    "cryptography",
    "pycdlib",
    "re2",
    "moxwell.app.admission",
)
NODE = NodeOptions("n", registration=KubeletRegistration("/csi.sock", Path("/registry")))
ARGUMENTS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "operator": ((OPERATOR, "debug"), tuple[OperatorOptions, str]),
    "controller": (
        (ControllerOptions(Path("c"), journal=Path("j")), True, None),
        tuple[ControllerOptions, bool, Path | None],
    ),
    "node": ((NODE, False, Path("k")), tuple[NodeOptions, bool, Path | None]),
}


@pytest.mark.parametrize(("arguments", "type_"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_options_arrive_unchanged(arguments: tuple[Any, ...], type_: Any) -> None:
    assert service_process.decode(service_process.encode(*arguments), type_) == arguments


def test_what_only_a_command_line_needs_is_not_loaded() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['x', 'operator', '[]']\n"
        "from moxwell.cli import service_process\n"
        "try: service_process.main()\n"
        "except Exception as error: assert 'Expected' in str(error), error\n"
        "import moxwell.csi.main, moxwell.cli.kube_connection\n"
        f"print(*[name for name in {HEAVY} if sys.modules.get(name)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


async def test_a_small_tls_buffer_transfers_large_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", service_process.TLS_BUFFER)
    made = certs.make(tmp_path, SystemClock().now())
    body = bytes(range(256)) * 4096

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(body)))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=made.context())
    trust = ssl.create_default_context(cafile=made.ca)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(body)
        assert await reader.readexactly(len(body)) == body
        writer.close()


@pytest.mark.parametrize(
    "command",
    [
        ("operator", "--cloud-provider=proxmox"),
        ("csi", "controller", "--standalone", "--journal=j"),
    ],
    ids=" ".join,
)
def test_an_error_is_printed_with_its_exit_code(command: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moxwell", *command, f"--config={tmp_path / 'none'}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "cannot read" in done.stderr
    assert "(InvalidConfiguration)" in done.stderr
    assert "Traceback" not in done.stderr
