"""
``moxwell csi controller`` and ``moxwell csi node`` as processes, called by csi-sanity.

The simulator serves HTTPS. The node's sysfs is a directory that shows each disk of the simulated
guest as a loop device with WWN and serial, so disks are formatted, mounted and grown for real where
this machine can mount.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from envtest.plugin import skip_here
from moxwell.clock import SystemClock
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.csi import SimDisks, can_mount, world_text
from support.grpc_sockets import PATIENCE_SECONDS, end_of, until_answers

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("csi-programs")]
COMMAND = Path(sys.executable).with_name("moxwell")


@dataclass
class Estate:
    """A simulated region that serves HTTPS, and the configuration file for it."""

    simulator: serve.Simulator
    config: Path


@asynccontextmanager
async def estate(folder: Path) -> AsyncIterator[Estate]:
    clock = SystemClock()
    worlds = read_world(world_text(), "csi.yaml", clock.now().timestamp())
    made = certs.make(folder / "tls", clock.now())
    simulator = serve.Simulator({"r1": worlds["r1"]}, clock, tls=made.context())
    await simulator.start()
    urls = [url for (name, _), url in simulator.urls.items() if name == "r1"]
    row = {
        "region": "r1",
        "url": urls[0],
        "username": "root@pam",
        "password": "secret",
        "ca_file": str(made.ca),
    }
    config = folder / "regions.yaml"
    config.write_text(yaml.safe_dump({"clusters": [row]}))
    try:
        yield Estate(simulator, config)
    finally:
        await simulator.stop()


@contextmanager
def program(folder: Path, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the installed command and end it by its process id."""
    with (folder / f"{args[1]}.log").open("wb") as out:
        process = subprocess.Popen([str(COMMAND), *args], stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Kernel:
    """A sysfs directory that follows the disks of a simulated guest."""

    def __init__(self, disks: SimDisks, folder: Path) -> None:
        self._disks, self._folder = disks, folder

    async def follow(self) -> None:
        while True:
            found = await self._disks.list()
            wanted = {f"0:0:0:{n}": d for n, d in enumerate(found)}
            for entry, disk in wanted.items():
                location = self._folder / "bus/scsi/devices" / entry
                block = location / "block" / Path(disk.path).name
                block.mkdir(parents=True, exist_ok=True)
                (block / "size").write_text(str(disk.size // 512))
                (location / "vendor").write_text("QEMU")
                (location / "wwid").write_text(f"naa.{disk.wwn[2:]}")
                (location / "vpd_pg80").write_bytes(b"\0\x80\0\x14" + disk.serial.encode())
                for other in (location / "block").iterdir():
                    if other != block:
                        (other / "size").unlink(missing_ok=True)
                        other.rmdir()
            self._drop(set(wanted))
            await asyncio.sleep(0.03)

    def _drop(self, objects: set[str]) -> None:
        for location in (self._folder / "bus/scsi/devices").glob("*:*:*:*"):
            if location.name not in objects:
                (location / "vendor").unlink(missing_ok=True)


async def sanity(program: Path, folder: Path) -> str:
    (folder / "params.yaml").write_text(yaml.safe_dump({"storage": "local-lvm"}))
    process = await asyncio.create_subprocess_exec(
        str(program),
        f"--csi.endpoint=unix://{folder}/node.sock",
        f"--csi.controllerendpoint=unix://{folder}/controller.sock",
        f"--csi.mountdir={folder}/m/target",
        f"--csi.stagingdir={folder}/m/staging",
        f"--csi.testvolumeparameters={folder}/params.yaml",
        "--csi.testvolumesize=1073741824",
        "--csi.testvolumeexpandsize=2147483648",
        "--ginkgo.no-color",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


def page(port: int, path: str) -> tuple[int, str]:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.status, answer.read().decode()


async def scenario(suite: Path, folder: Path, port: int) -> None:
    async with estate(folder) as world:
        region = world.simulator.engine.runtimes["r1"].region
        disks = SimDisks(region, 101, folder, loops=True)
        kernel = asyncio.create_task(Kernel(disks, folder / "sys").follow())
        control = (
            "csi", "controller", "--config", str(world.config), "--standalone",
            "--csi-address", f"unix://{folder}/controller.sock",
            "--journal", str(folder / "journal.json"), "--metrics-address", f"127.0.0.1:{port}",
        )  # fmt: skip
        seat = (
            "csi", "node", "--node-id", "proxmox://r1/101", "--standalone", "--region", "r1",
            "--zone", "r1-h0", "--csi-address", f"unix://{folder}/node.sock",
            "--sysfs", str(folder / "sys"),
        )  # fmt: skip
        try:
            with program(folder, *control) as one, program(folder, *seat) as two:
                await until_answers(folder / "controller.sock", one, folder / "controller.log")
                await until_answers(folder / "node.sock", two, folder / "node.log")
                out = await sanity(suite, folder)
                (folder / "sanity.log").write_text(out)
                assert " 0 Failed" in out, out[-6000:]
                await check_pages(port)
                await check_ends(one, two, folder)
        finally:
            kernel.cancel()
            await asyncio.wait([kernel])
            disks.close()
        left = [v.name for s in region.storages["local-lvm"].volumes.values() for v in s.values()]
        assert not [name for name in left if "pvc" in name or "sanity" in name]


async def check_pages(port: int) -> None:
    status, text = await asyncio.to_thread(page, port, "/metrics")
    wanted = 'method_name="/csi.v1.Controller/CreateVolume"'
    assert status == 200
    assert any(
        line.startswith("csi_plugin_operations_seconds_count") and wanted in line
        for line in text.splitlines()
    )
    assert 'proxmox_api_request_duration_seconds_count{request="attachVolume"}' in text
    assert (await asyncio.to_thread(page, port, "/healthz"))[0] == 200
    assert (await asyncio.to_thread(page, port, "/readyz"))[0] == 200


async def check_ends(
    one: "subprocess.Popen[bytes]", two: "subprocess.Popen[bytes]", folder: Path
) -> None:
    """Assert that both processes exit with 0 on SIGTERM and remove their sockets."""
    for process in (one, two):
        process.send_signal(signal.SIGTERM)
    codes = [await asyncio.to_thread(process.wait, PATIENCE_SECONDS) for process in (one, two)]
    assert codes == [0, 0], end_of(folder / "controller.log")
    assert _sockets(folder) == []


def _sockets(folder: Path) -> list[Path]:
    return list(folder.glob("*.sock"))


def test_both_programs_pass_csi_sanity_on_loop_devices(envtest_program, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from moxwell.embedded.ports import free_port

    (tmp_path / "m").mkdir()
    if not can_mount(tmp_path):
        skip_here("this machine may not mount loop devices")
    asyncio.run(scenario(envtest_program("csi-sanity"), tmp_path, free_port()))


def _run(*args: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "300"}
    return subprocess.run(
        [str(COMMAND), "csi", *args], env=env, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip


GOOD = "clusters: [{region: r1, url: 'https://127.0.0.1:1', username: u@pam, password: x}]\n"


@pytest.mark.parametrize(
    ("config", "args", "code", "said"),
    [
        pytest.param(None, (), 1, "cannot read", id="no configuration file"),
        pytest.param("clusters: {", (), 1, "not YAML", id="no YAML"),
        pytest.param("clusters: []", (), 1, "at least one region", id="no region"),
        pytest.param(
            GOOD + "features: {controllerVMID: 7}\n",
            (),
            1,
            "must be above 100",
            id="owner too low",
        ),
        pytest.param(
            GOOD, ("--csi-address", "unix:///no/where/csi.sock"), 1, "/no/where", id="no folder"
        ),
        pytest.param(GOOD, ("--csi-address", "tcp://1"), 1, "unix:///path", id="no unix socket"),
        pytest.param(GOOD, ("--metrics-address", "x"), 1, "not a listen address", id="no address"),
    ],
)
def test_invalid_input_prints_one_line_and_exits(
    tmp_path: Path, config: str | None, args: tuple[str, ...], code: int, said: str
) -> None:
    file = tmp_path / "regions.yaml"
    if config is not None:
        file.write_text(config)
    given = args if "--csi-address" in args else (*args, "--csi-address", f"{tmp_path}/csi.sock")
    done = _run("controller", "--standalone", "--config", str(file), *given)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    file, path = tmp_path / "regions.yaml", tmp_path / "csi.sock"
    file.write_text(GOOD)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        done = _run("controller", "--standalone", "--config", str(file), "--csi-address", str(path))
    assert done.returncode == 75
    assert "another process listens" in done.stderr


def test_a_standalone_node_needs_region_and_zone() -> None:
    done = _run("node", "--node-id", "n", "--standalone")
    assert done.returncode == 2
    assert "--region" in done.stderr
