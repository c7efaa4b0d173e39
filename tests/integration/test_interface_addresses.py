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


NEIGHBOUR = """
set -e
ip link set lo up
ip link add mx0 type veth peer mx1
unshare --net sleep 60 > /dev/null 2>&1 & other=$!
trap "kill $other" EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link set mx1 netns $other
inside() { nsenter --net=/proc/$other/ns/net "$@"; }
inside ip link set mx1 up
inside ip address add 198.51.100.1/24 dev mx1
inside ip address add fd00::1/64 dev mx1 nodad
ip link set mx0 up
for host in 198.51.100.7 fd00::7; do
  inside ip neigh replace $host lladdr 02:00:00:00:00:99 dev mx1 nud reachable
done
"$@" > /dev/null
for try in $(seq 50); do
  inside ip neigh show > "$OUT"
  grep -q 00:99 "$OUT" || break
  sleep 0.1
done
ip -brief link show mx0 | awk '{print $3}'
cat "$OUT"
"""
ANNOUNCED = """
import sys
from pathlib import Path
from moxwell.embedded.controlplanes.interfaces import Interfaces
for name, host in (("four", "198.51.100.7"), ("six", "fd00::7")):
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    Interfaces(has=lambda host: False).ensure(folder, "mx0", host)
"""


def test_neighbours_learn_of_an_added_address(tmp_path: Path) -> None:
    """A neighbour that knows another machine by the address knows this one afterwards."""
    probe = ["unshare", "--net", "ip", "link", "add", "mx0", "type", "veth", "peer", "mx1"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces with interfaces")
    words = [sys.executable, "-c", ANNOUNCED, str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", NEIGHBOUR, "sh", *words],
        capture_output=True, text=True, check=False, env={**os.environ, "OUT": str(tmp_path / "o")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    mac, *known = done.stdout.splitlines()
    learned = {line.split()[0]: line.split()[4] for line in known if "lladdr" in line}
    assert learned["198.51.100.7"] == learned["fd00::7"] == mac
