"""The network that `moxwell cni` makes in a network namespace, with genuine iproute2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, json, subprocess, sys
from pathlib import Path
from moxwell.cni.plan import PodNetwork, PodRoute
from moxwell.cni.system import NetworkCommandFailed, NodeSystem

def shown():
    words = ["ip", "-4", "-j", "route", "show", "proto", "98"]
    done = subprocess.run(words, capture_output=True, check=True)
    return {row["dst"]: row["gateway"] for row in json.loads(done.stdout or "[]")}

async def make(*routes):
    system = NodeSystem(Path(sys.argv[1]), "10.244.0.0/16")
    network = PodNetwork(("10.244.0.0/24",), frozenset(PodRoute(*each) for each in routes))
    try:
        await system.make(network)
    except NetworkCommandFailed as error:
        return {"routes": shown(), "failed": str(error)}
    return {"routes": shown(), "failed": ""}

async def main():
    good, bad = ("10.244.2.0/24", "198.51.100.2"), ("10.244.1.0/24", "203.0.113.9")
    moved = ("10.244.2.0/24", "198.51.100.3")
    print(json.dumps([await make(bad, good), await make(moved), await make()]))

asyncio.run(main())
"""
SETUP = """
ip link set lo up
ip link add mx0 mtu 1400 type veth peer mx1
ip address add 198.51.100.1/24 dev mx0
ip link set mx0 up
exec "$@"
"""
# Not every machine has iptables; this one answers as if the nat table had no rules.
IPTABLES = '#!/bin/sh\nprintf "%s\\n" "$*" >> "$RULES"\n'


def test_a_node_with_a_wrong_address_stops_no_other_route(tmp_path: Path) -> None:
    probe = ["unshare", "--net", "ip", "link", "add", "mx0", "type", "veth", "peer", "mx1"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no network namespaces with interfaces")
    folder, programs, rules = tmp_path / "net.d", tmp_path / "programs", tmp_path / "rules"
    folder.mkdir()
    programs.mkdir()
    (programs / "iptables").write_text(IPTABLES)
    (programs / "iptables").chmod(0o755)
    words = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-ec", SETUP, "sh", *words],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "RULES": str(rules)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, moved, alone = json.loads(done.stdout)
    assert first["routes"] == {"10.244.2.0/24": "198.51.100.2"}
    assert "10.244.1.0/24 via 203.0.113.9" in first["failed"]
    assert moved == {"routes": {"10.244.2.0/24": "198.51.100.3"}, "failed": ""}
    assert alone == {"routes": {}, "failed": ""}
    assert "-A MOXWELL-MASQ -s 10.244.0.0/24 ! -d 10.244.0.0/16 -j MASQUERADE" in rules.read_text()
    (written,) = folder.iterdir()
    assert json.loads(written.read_text())["plugins"][0]["mtu"] == 1500
