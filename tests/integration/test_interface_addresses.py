"""The address of a tenant on an interface of a network namespace, with genuine iproute2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, subprocess, sys
from pathlib import Path
from moxwell.embedded.controlplanes import addresses
from moxwell.embedded.controlplanes.addresses import TenantAddresses
from moxwell.embedded.ports import is_free
from moxwell.runtime.key import Key

def shown():
    done = subprocess.run(["ip", "-json", "address", "show", "dev", "mx0"], capture_output=True)
    return sorted(a["local"] for i in json.loads(done.stdout) for a in i["addr_info"]
                  if a["family"] == "inet")

root = Path(sys.argv[1])
config = addresses.parse(
    "control_planes: {addresses: [198.51.100.7-198.51.100.9], interface: mx0}")
tenants = TenantAddresses(config, (root,))
first = tenants.host(root / "team" / "a")
assert is_free(6443, first)
second = tenants.host(root / "team" / "b")
print(first, second, shown())
tenants.release(Key("team", "a"))
print(shown())
"""


def test_addresses_come_and_go(tmp_path: Path) -> None:
    probe = ["unshare", "--net", "ip", "link", "add", "mx0", "type", "veth", "peer", "mx1"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces with interfaces")
    setup = (
        'ip link set lo up && ip link add mx0 type veth peer mx1 && ip link set mx0 up && exec "$@"'
    )
    words = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-ec", setup, "sh", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    added, kept = [line for line in done.stdout.splitlines() if line[:1] in "1["]
    first, second, *_ = added.split(" ")
    assert added == f"{first} {second} ['{first}', '{second}']"
    assert first != second
    assert kept == f"['{second}']"
