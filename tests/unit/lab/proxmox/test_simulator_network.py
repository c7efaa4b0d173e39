"""The network configuration of a node: pending until it is applied, and what is checked."""

from typing import Any

import pytest

from moxwell.lab.proxmox.message import SimRequest
from support.simulator_session import SimulatorSession, run_session

NET = "/nodes/n1/network"
BRIDGE = {"iface": "vmbr7", "type": "bridge", "autostart": "1"}


def test_a_change_takes_effect_when_it_is_applied() -> None:
    async def body(sim: SimulatorSession) -> None:
        form = {**BRIDGE, "cidr": "198.51.100.1/25", "comments": "new", "bridge_vlan_aware": "1"}
        assert (await sim.post(NET, **form)).status == 200
        shown = await sim.get(f"{NET}/vmbr7")
        assert shown == {
            "type": "bridge", "autostart": 1, "method": "static", "method6": "manual",
            "address": "198.51.100.1", "netmask": "25", "cidr": "198.51.100.1/25",
            "families": ["inet"], "bridge_ports": "", "bridge_stp": "off", "bridge_fd": "0",
            "bridge_vlan_aware": 1, "bridge_vids": "2-4094", "comments": "new\n", "priority": 5,
        }  # fmt: skip
        await sim.vm(100, net0="virtio,bridge=vmbr7")
        ended = await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")
        assert "bridge 'vmbr7' does not exist" in ended.log
        assert (await sim.run_task("PUT", NET)).status == "OK"
        assert (await sim.get(f"{NET}/vmbr7"))["active"] == 1
        assert (await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")).status == "OK"

    run_session(body)


def test_the_list_tells_what_is_not_applied_and_a_revert_forgets_it() -> None:
    async def body(sim: SimulatorSession) -> None:
        before = await changes(sim)
        await sim.post(NET, **BRIDGE)
        lines = (await changes(sim)).splitlines()
        assert {"+auto vmbr7", "+iface vmbr7 inet manual", "+\tbridge-stp off"} <= set(lines)
        await sim.request("DELETE", NET)
        assert await changes(sim) == before == ""
        assert (await sim.request("GET", f"{NET}/vmbr7")).status == 400

    run_session(body)


async def changes(sim: SimulatorSession) -> str:
    """The difference that is shown beside the list."""
    request = SimRequest("GET", tuple(NET.strip("/").split("/")), {}, sim.headers, None)
    answer = await sim.engine.handle("r1", request)
    return str(answer.json().get("changes", ""))


def test_an_update_keeps_what_is_not_sent_and_deletes_what_is_named() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post(NET, **BRIDGE, cidr="198.51.100.1/25", bridge_ports="eth9")
        await sim.put(f"{NET}/vmbr7", type="bridge", delete="cidr", mtu="9000")
        shown = await sim.get(f"{NET}/vmbr7")
        assert (shown["method"], shown["bridge_ports"]) == ("manual", "eth9")
        assert not {"cidr", "address", "netmask"} & set(shown)
        await sim.run_task("PUT", NET)
        await sim.request("DELETE", f"{NET}/vmbr7")
        assert "vmbr7" not in {row["iface"] for row in await sim.get(NET)}
        await sim.run_task("PUT", NET)
        assert "vmbr7" not in sim.region.hosts["n1"].bridges

    run_session(body)


REFUSED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("a name that exists", {**BRIDGE, "iface": "vmbr0"}, {"iface": "interface already exists"}),
    ("a second gateway", {**BRIDGE, "cidr": "198.51.100.2/24", "gateway": "198.51.100.1"},
     {"gateway": "Default gateway already exists on interface 'vmbr0'."}),
    ("a port in use", {**BRIDGE, "bridge_ports": "eth0"},
     {"bridge_ports": "eth0 is already used on interface 'vmbr0'."}),
    ("an address twice", {**BRIDGE, "cidr": "198.51.100.2/24", "address": "198.51.100.2",
     "netmask": "255.255.255.0"}, {"address": "address conflicts with cidr"}),
    ("a multicast address", {**BRIDGE, "cidr6": "ff02::1/64"},
     {"address": "address with type 'MULTICAST', cannot be used as host IPv6 address."}),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_refused_leaves_no_change(case: tuple[str, dict[str, Any], dict[str, str]]) -> None:
    async def body(sim: SimulatorSession) -> None:
        sim.region.hosts["n1"].bridges["vmbr0"]["gateway"] = "192.0.2.254"
        answer = await sim.post(NET, **case[1])
        assert (answer.status, answer.errors) == (400, case[2])
        assert sim.region.hosts["n1"].new_network is None

    run_session(body)


def test_open_vswitch_is_not_installed() -> None:
    async def body(sim: SimulatorSession) -> None:
        answer = await sim.post(NET, iface="vmbr8", type="OVSBridge")
        assert answer.message.startswith("Open VSwitch is not installed")

    run_session(body)
