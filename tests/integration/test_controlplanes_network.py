"""A control plane is reached from another network namespace, behind a veth pair."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE, GUEST = "198.51.100.1", "198.51.100.2"

HOST_SIDE = f"""
import asyncio, subprocess, sys
from pathlib import Path
from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.addresses import TenantAddresses, parse
from moxwell.testing.inprocess_control_planes import InProcessControlPlanes
from moxwell.onboarding.local_address import local_address
from moxwell.testing.control_planes_contract import Stage

def ip(*words):
    subprocess.run(["ip", *words], check=True)

async def main(root):
    ip("link", "set", "lo", "up")
    guest = await asyncio.create_subprocess_exec(
        "unshare", "--net", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    guest.stdin.write(b"ready\\n")
    await guest.stdout.readline()  # its namespace exists
    ip("link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(guest.pid))
    ip("address", "add", "{HERE}/24", "dev", "veth0")
    ip("link", "set", "veth0", "up")
    inside = ["nsenter", "--net", "--target", str(guest.pid)]
    for words in (("address", "add", "{GUEST}/24", "dev", "veth1"), ("link", "set", "veth1", "up")):
        subprocess.run([*inside, "ip", *words], check=True)

    print("proposed", await local_address("https://{GUEST}:8006"))
    configured = parse("control_planes: {{address: {HERE}}}")
    configured.check()
    clock = SystemClock()
    tenants = TenantAddresses(configured, (root,))
    stage = Stage(lambda: InProcessControlPlanes(
        root, clock, new_port=configured.new_port, address=tenants.host), clock, "v1.34.1", "")
    await stage.begin()
    plane = await stage.up(stage.spec("a"))
    (root / "ca.crt").write_text(plane.ca)
    client = await asyncio.create_subprocess_exec(
        *inside, sys.executable, "-c", GUEST_SIDE, plane.host, str(plane.port), f"{{root}}/ca.crt")
    print("guest ended with", await client.wait(), flush=True)
    guest.kill()
    await guest.wait()
    await stage.end()

GUEST_SIDE = '''
import ssl, sys, urllib.request
host, port, ca = sys.argv[1:]
with urllib.request.urlopen(
    f"https://{{host}}:{{port}}/readyz", context=ssl.create_default_context(cafile=ca)
) as answer:
    print("guest reads", answer.read().decode(), flush=True)
'''
asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_guest_in_another_network_namespace_reaches_it(tmp_path: Path) -> None:
    probe = ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "v1"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces with veth pairs")
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", textwrap.dedent(HOST_SIDE), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert f"proposed {HERE}" in ran.stdout
    assert "guest reads ok" in ran.stdout
    assert "guest ended with 0" in ran.stdout
