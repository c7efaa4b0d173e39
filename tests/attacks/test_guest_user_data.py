"""
User data that a tenant writes into its Secret and that a simulated guest reads.

The guests of all tenants run in one process. Whatever a guest reads ends that guest only, costs
memory in proportion to the text, and takes time in proportion to it: values and characters are
counted, so no test depends on a time.
"""

import asyncio
import base64
import gzip
import io
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from pycdlib import PyCdlib

from moxwell.api.requests import Handler
from moxwell.errors import Invalid
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.config_drive import ConfigDrive
from moxwell.lab.guests.control_plane import find_init
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.guests.userdata import find_join, read_user_data, result_of_scripts
from moxwell.testing.loop import LoopClock, run_virtual

HEAD = "#cloud-config\n"
BOMB = base64.b64encode(gzip.compress(b"\0" * (64 << 20))).decode()
FILE = "write_files: [{path: /a, encoding: gz+b64, content: "
HOSTILE = {
    "files that are a number": HEAD + "write_files: 5",
    "a file that is a number": HEAD + "write_files: [5]",
    "commands that are a number": HEAD + "runcmd: 5",
    "a file that is not base64": HEAD + "write_files: [{path: /a, encoding: b64, content: a}]",
    "a file that is not gzip": HEAD + FILE + "YQ==}]",
    "a file of gigabytes": HEAD + FILE + BOMB + "}]",
    "levels": HEAD + "a: " + "[" * 20_000,
    "a value that contains itself": HEAD + "a: &a [*a]",
    "levels of JSON": '{"a":' + "[" * 200_000,
    "Ignition with a list of texts": '{"ignition": 1, "storage": {"files": ["a"]}}',
    "Ignition with another storage": '{"ignition": 1, "storage": 5}',
    "a join that reads a list": HEAD + "write_files: [{path: /j, content: '[]'}]\n"
    "runcmd: ['kubeadm join --config /j']",
    "a join with another node": HEAD + "write_files: [{path: /j, content: 'kind: "
    "JoinConfiguration\n\n  nodeRegistration: 5\n\n  discovery: 5'}]\n"
    "runcmd: ['kubeadm join --config /j']",
}


def medium(user_data: str) -> bytes:
    disc = PyCdlib()
    disc.new(interchange_level=3, rock_ridge="1.09", vol_ident="cidata")
    for number, (name, text) in enumerate({"user-data": user_data, "meta-data": "{}"}.items()):
        data = text.encode()
        disc.add_fp(io.BytesIO(data), len(data), f"/F{number}.;1", rr_name=name)
    out = io.BytesIO()
    disc.write_fp(out)
    disc.close()
    return out.getvalue()


@dataclass
class Vm:
    """A virtual machine with a bootstrap ISO."""

    vmid: int
    image: bytes = field(repr=False)
    region: str = "north"
    node: str = "pve1"
    name: str = "guest"
    setup_seconds: float = 1.0

    @property
    def uuid(self) -> str:
        return f"00000000-0000-0000-0000-{self.vmid:012}"

    @property
    def conf(self) -> dict[str, Any]:
        return {"ide2": "local:iso/a.iso,media=cdrom"}

    def media(self, drive: str, /) -> bytes | None:
        return self.image

    def power_off(self) -> None:
        """Nothing has to stop."""

    def reboot(self) -> None:
        """Nothing has to start."""

    def live_config(self) -> dict[str, Any]:
        return self.conf

    def load(self) -> tuple[float, float]:
        return 0.0, 0.0

    def report_load(self, cpu: float, memory: float, /) -> None:
        """Nobody asks for the load."""


def dial(access: ApiAccess) -> Handler:
    """No guest here gets as far as its cluster."""
    raise NotImplementedError


async def _boot(user_data: str) -> tuple[str, str]:
    """What cloud-init says in a hostile guest, and in one that boots after it."""
    runner = GuestRunner(dial, LoopClock())
    running = asyncio.create_task(runner.run())
    bad, good = Vm(101, medium(user_data)), Vm(102, medium(HEAD + "hostname: good"))
    await runner.booted(bad)
    await asyncio.sleep(60)
    assert not running.done(), running.exception()
    await runner.booted(good)
    await asyncio.sleep(60)
    found = await _cloud_init(runner, bad), await _cloud_init(runner, good)
    running.cancel()
    await asyncio.wait([running])
    return found


async def _cloud_init(runner: GuestRunner, vm: Vm) -> str:
    """The state of cloud-init, as the guest agent tells."""
    started = await runner.agent(vm, "exec", {"command": ["cloud-init", "status"]})
    ended = await runner.agent(vm, "exec-status", {"pid": started["pid"]})
    return str(ended["out-data"]).removeprefix("status: ").strip()


@pytest.mark.parametrize("user_data", HOSTILE.values(), ids=HOSTILE)
def test_user_data_ends_no_other_guest(user_data: str) -> None:
    assert run_virtual(_boot(user_data)) == ("error", "done")


def test_compressed_files_are_limited_together() -> None:
    content = base64.b64encode(gzip.compress(b"\0" * (12 << 20))).decode()
    files = "\n".join(f"- {{path: /{n}, encoding: gz+b64, content: {content}}}" for n in range(20))
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match="bytes unpacked"):
            read_user_data(ConfigDrive(f"{HEAD}write_files:\n{files}\n"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kubeadm join " * 80_000, id="joins without a configuration"),
        pytest.param("kubeadm init " * 80_000, id="inits without a configuration"),
        pytest.param("\n" * 1_000_000, id="empty lines"),
    ],
)
def test_a_long_script_is_searched_once(text: str) -> None:
    """Each took minutes while a search began anew at each word; the run of tests would time out."""
    path = "/var/lib/cloud/scripts/per-boot/a"
    content = base64.b64encode(text.encode()).decode()
    user_data = f"{HEAD}write_files: [{{path: {path}, encoding: b64, content: {content}}}]"
    parsed = read_user_data(ConfigDrive(user_data))
    assert (find_join(parsed), find_init(parsed), result_of_scripts(parsed)) == (None, None, {})
