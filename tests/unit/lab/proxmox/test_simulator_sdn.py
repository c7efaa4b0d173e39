"""SDN: IPAM, VLAN tags and zone references."""

from typing import Any

import pytest

from support.simulator_cluster import SimulatedCluster, run_scenario

RANGE = "start-address=10.9.0.10,end-address=10.9.0.11"


async def network(sim: SimulatedCluster) -> None:
    await sim.request(
        "POST", "/cluster/sdn/zones", zone="z1", type="simple", ipam="pve", dhcp="dnsmasq"
    )
    await sim.request("POST", "/cluster/sdn/vnets", vnet="v1", zone="z1")
    form: dict[str, Any] = {"subnet": "10.9.0.0/24", "type": "subnet", "gateway": "10.9.0.1"}
    await sim.request("POST", "/cluster/sdn/vnets/v1/subnets", **form, dhcp_range=[RANGE])
    assert await sim.run_task("PUT", "/cluster/sdn") == "OK"


async def addresses(sim: SimulatedCluster) -> dict[str, int | None]:
    rows = await sim.request("GET", "/cluster/sdn/ipams/pve/status")
    return {row["ip"]: row.get("vmid") for row in rows}


def test_network_devices_get_and_release_addresses() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await network(sim)
        for vmid in (100, 101, 102):
            form = {"vmid": vmid, "net0": "virtio,bridge=v1"}
            assert await sim.run_task("POST", "/nodes/n1/qemu", **form) == "OK"
        assert await addresses(sim) == {"10.9.0.1": None, "10.9.0.10": 100, "10.9.0.11": 101}
        assert await sim.run_task("DELETE", "/nodes/n1/qemu/100") == "OK"
        assert await addresses(sim) == {"10.9.0.1": None, "10.9.0.10": 102, "10.9.0.11": 101}
        path = "/cluster/sdn/vnets/v1/subnets/z1-10.9.0.0-24"
        answer = await sim.send("DELETE", path)
        assert answer.reason.endswith("not empty")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "path, form, message",
    [
        pytest.param("zones", {"zone": "z2", "type": "simple", "ipam": "none"},
                     "ipam: none not existing", id="an ipam that is not there"),
        pytest.param("zones", {"zone": "z2", "type": "simple", "dnszone": "a.b"},
                     "dnszone: missing dns server", id="a dns zone without a server"),
        pytest.param("vnets", {"vnet": "v9", "zone": "tagged"}, "tag: missing vlan tag",
                     id="a vlan without a tag"),
        pytest.param("vnets", {"vnet": "v9", "zone": "tagged", "tag": 7},
                     "tag: tag 7 already exist in vnet v7", id="a tag twice"),
        pytest.param("vnets", {"vnet": "v9", "zone": "tagged", "tag": 5000},
                     "tag: vlan tag max value is 4096", id="a large tag"),
        pytest.param("vnets/v1/subnets",
                     {"subnet": "10.8.0.0/24", "type": "subnet",
                      "dhcp-range": ["start-address=10.7.0.1,end-address=10.8.0.9"]},
                     "dhcp-range: start-address 10.7.0.1 is not in subnet 10.8.0.0/24",
                     id="a range elsewhere"),
    ],
)  # fmt: skip
def test_an_error_is_a_400_inside_a_500(path: str, form: dict[str, Any], message: str) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await network(sim)
        await sim.request("POST", "/cluster/sdn/zones", zone="tagged", type="vlan", bridge="vmbr0")
        await sim.request("POST", "/cluster/sdn/vnets", vnet="v7", zone="tagged", tag=7)
        answer = await sim.send("POST", f"/cluster/sdn/{path}", **form)
        assert answer.status == 500
        text = answer.json()["message"]
        assert text.endswith(f"400 Parameter verification failed.\n{message}\n")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "method, path, form, message",
    [
        pytest.param("PUT", "zones/z1", {"delete": "ipam"},
                     "update sdn zone object failed: 400 Parameter verification failed.\n"
                     "ipam: can't change ipam if a subnet is already defined in this zone",
                     id="the ipam of a zone with subnets"),
        pytest.param("PUT", "zones/z1", {"bridge": "vmbr0"},
                     "update sdn zone object failed: unexpected property 'bridge'",
                     id="an option of another type"),
        pytest.param("PUT", "vnets/v1", {"vlanaware": 1},
                     "update sdn vnet object failed: 400 Parameter verification failed.\n"
                     "vlanaware: vlanaware vnet is not compatible with subnets",
                     id="a vlan aware vnet with subnets"),
        pytest.param("PUT", "vnets/v1", {"zone": "z2"},
                     "update sdn vnet object failed: 400 Parameter verification failed.\n"
                     "zone: can't change zone if subnets exist", id="another zone"),
        pytest.param("PUT", "vnets/v1", {"delete": "zone"},
                     "update sdn vnet object failed: unable to delete required option 'zone'",
                     id="a vnet without a zone"),
        pytest.param("PUT", "vnets/v1/subnets/z1-10.9.0.0-24",
                     {"dhcp-range": [RANGE, "start-address=10.9.0.11,end-address=10.9.0.30"]},
                     "update sdn subnet object failed: 400 Parameter verification failed.\n"
                     "dhcp-range: dhcp ranges must not overlap", id="ranges that overlap"),
        pytest.param("GET", "vnets/none/subnets", {}, "sdn vnet 'none' does not exist",
                     id="the subnets of a missing vnet"),
        pytest.param("DELETE", "vnets/v1/subnets/z1-10.7.0.0-24", {},
                     "delete sdn subnet object failed: zone '' doesn't exist in IPAM DB",
                     id="a missing subnet in a zone with an ipam"),
        pytest.param("PUT", "vnets/v1/ips",
                     {"zone": "z1", "ip": "10.9.0.20", "mac": "BC:24:11:00:00:01"},
                     "can't find any subnet for ip  at "
                     "/usr/share/perl5/PVE/Network/SDN/Subnets.pm line 115.",
                     id="a new address for an unknown device"),
        pytest.param("POST", "vnets/none/ips",
                     {"zone": "z1", "ip": "10.9.0.20", "mac": "BC:24:11:00:00:01"},
                     "no sdn zone ID specified", id="an address on a missing vnet"),
        pytest.param("POST", "controllers", {"controller": "bgp1", "type": "bgp", "node": "n1",
                                             "asn": 65000},
                     "missing value for required option 'peers'", id="bgp without peers"),
        pytest.param("POST", "ipams", {"ipam": "nb", "type": "netbox", "token": "t",
                                       "url": "http://127.0.0.1:9/api"},
                     "create sdn ipam object failed: Can't connect to netbox api: Invalid response "
                     "from server: 500 Can't connect to 127.0.0.1:9 (Connection refused)",
                     id="an ipam server that does not answer"),
    ],
)  # fmt: skip
def test_a_refused_change_names_its_cause(
    method: str, path: str, form: dict[str, Any], message: str
) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await network(sim)
        await sim.request("POST", "/cluster/sdn/zones", zone="z2", type="simple")
        answer = await sim.send(method, f"/cluster/sdn/{path}", **form)
        assert (answer.status, answer.json()["message"].rstrip("\n")) == (500, message)

    run_scenario(scenario)


def test_the_global_lock_wants_its_token() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/sdn/zones", zone="z1", type="simple")
        answer = await sim.send("POST", "/cluster/sdn/lock")
        assert "configuration has pending changes" in answer.reason
        token = await sim.request("POST", "/cluster/sdn/lock", **{"allow-pending": 1})
        answer = await sim.send("DELETE", "/cluster/sdn/zones/z1")
        assert answer.reason.startswith("delete sdn zone object failed: invalid lock token")
        await sim.request("POST", "/cluster/sdn/rollback",
                          **{"lock-token": token, "release-lock": 1})  # fmt: skip
        assert await sim.request("GET", "/cluster/sdn/zones") == []
        await sim.request("POST", "/cluster/sdn/zones", zone="z1", type="simple")

    run_scenario(scenario, version="9.2.11")


def test_a_subnet_without_ranges_gives_all_its_addresses() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await network(sim)
        await sim.request("POST", "/cluster/sdn/vnets", vnet="v2", zone="z1")
        for subnet in ("10.5.0.0/30", "fd00::/64"):
            form = {"subnet": subnet, "type": "subnet"}
            await sim.request("POST", "/cluster/sdn/vnets/v2/subnets", **form)
        assert await sim.run_task("PUT", "/cluster/sdn") == "OK"
        form = {"vmid": "100", "net0": "virtio,bridge=v2"}
        assert await sim.run_task("POST", "/nodes/n1/qemu", **form) == "OK"
        assert await addresses(sim) == {"10.9.0.1": None, "10.5.0.1": 100, "fd00::": 100}

    run_scenario(scenario)


@pytest.mark.parametrize(
    "path, expected",
    [
        pytest.param("zones/z1/bridges",
                     [{"name": "v1", "vlan_filtering": 0,
                       "ports": [{"name": "tap100i0", "index": "net0", "vmid": 100}]}],
                     id="the bridges of a zone"),
        pytest.param("zones/none/bridges", {"zone": "zone does not exist"}, id="of no zone"),
        pytest.param("zones/z1/ip-vrf", {"zone": "zone is not an EVPN zone"}, id="no EVPN"),
        pytest.param("vnets/v1/mac-vrf", {"zone": "zone z1 is not an EVPN zone."},
                     id="no EVPN vnet"),
    ],
)  # fmt: skip
def test_sdn_on_a_node(path: str, expected: Any) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await network(sim)
        form = {"vmid": "100", "net0": "virtio,bridge=v1"}
        assert await sim.run_task("POST", "/nodes/n1/qemu", **form) == "OK"
        assert await sim.run_task("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        answer = (await sim.send("GET", f"/nodes/n1/sdn/{path}")).json()
        assert (answer["data"] if answer["data"] is not None else answer["errors"]) == expected

    run_scenario(scenario, version="9.2.11")
