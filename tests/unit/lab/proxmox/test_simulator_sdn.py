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
