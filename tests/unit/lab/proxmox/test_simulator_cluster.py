"""Delayed resource lists, lost nodes and the HA manager."""

from typing import Any

from moxwell.lab.proxmox import chaos
from support.simulator_cluster import SimulatedCluster, run_scenario


async def make(sim: SimulatedCluster, vmid: int = 100, node: str = "n1", **conf: Any) -> None:
    form = {"vmid": vmid, "name": f"vm{vmid}", "memory": 64, **conf}
    assert await sim.run_task("POST", f"/nodes/{node}/qemu", **form) == "OK"


async def rows(sim: SimulatedCluster) -> dict[int, dict[str, Any]]:
    found = await sim.request("GET", "/cluster/resources", type="vm")
    return {row["vmid"]: row for row in found}


def test_resources_are_up_to_ten_seconds_old() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.pause(1)
        await make(sim)
        assert (await rows(sim))[100]["status"] == "unknown"
        await sim.pause(10)
        assert (await rows(sim))[100]["status"] == "stopped"
        assert await sim.run_task("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        assert (await rows(sim))[100]["status"] == "stopped"
        current = await sim.request("GET", "/nodes/n1/qemu/100/status/current")
        assert current["status"] == "running"
        await sim.pause(10)
        assert (await rows(sim))[100]["status"] == "running"

    run_scenario(scenario)


def test_a_reused_vmid_shows_the_old_status_until_the_next_update() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.pause(1)
        await make(sim)
        await sim.pause(10)
        assert (await rows(sim))[100]["name"] == "vm100"
        assert await sim.run_task("DELETE", "/nodes/n1/qemu/100") == "OK"
        assert 100 not in await rows(sim)
        await make(sim, name="other")
        assert (await rows(sim))[100]["name"] == "vm100"
        await sim.pause(10)
        assert (await rows(sim))[100]["name"] == "other"

    run_scenario(scenario)


def test_action_host_down() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, "n2")
        await sim.pause(10)
        chaos.perform(sim.engine.runtimes["r"], "host-down", {"node": "n2"})
        answer = await sim.send("GET", "/nodes/n2/status")
        assert (answer.status, answer.reason, answer.body) == (595, "Connection refused", b"")
        status = {row["name"]: row for row in await sim.request("GET", "/cluster/status")}
        assert (status["n2"]["online"], status["c"]["quorate"]) == (0, 1)
        nodes = {row["node"]: row for row in await sim.request("GET", "/nodes")}
        assert nodes["n2"]["status"] == "offline"
        assert "maxmem" in nodes["n2"]
        assert "mem" not in nodes["n2"]
        assert (await rows(sim))[100]["status"] == "stopped"
        await sim.pause(301)
        assert (await rows(sim))[100]["status"] == "unknown"
        nodes = {row["node"]: row for row in await sim.request("GET", "/nodes")}
        assert "maxmem" not in nodes["n2"]

    run_scenario(scenario)


def test_writes_fail_without_quorum() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for node in ("n2", "n3"):
            chaos.perform(sim.engine.runtimes["r"], "host-down", {"node": node})
        answer = await sim.send("POST", "/pools", poolid="p")
        assert (answer.status, answer.reason) == (500, "cluster not ready - no quorum?")
        assert (await sim.send("GET", "/pools")).status == 200

    run_scenario(scenario)


def test_ha_starts_resources() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, scsi0="shared:1")
        await sim.request("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        assert not sim.region.guests[100].running
        await sim.pause(25)
        assert sim.region.guests[100].running
        await sim.pause(10)
        assert sim.region.ha.resources["vm:100"].crm_state == "started"
        upid = await sim.request("POST", "/nodes/n1/qemu/100/status/stop")
        assert ":hastop:" in upid
        assert sim.region.guests[100].running
        await sim.pause(40)
        assert not sim.region.guests[100].running
        assert sim.region.ha.resources["vm:100"].crm_state == "stopped"

    run_scenario(scenario)


def test_ha_recovers_the_guests_of_a_lost_node() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim, 100, "n2", scsi0="shared:1")
        await sim.request("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        await sim.pause(40)
        chaos.perform(sim.engine.runtimes["r"], "host-down", {"node": "n2"})
        await sim.pause(30)
        assert sim.region.guests[100].node == "n2"
        await sim.pause(90)
        guest = sim.region.guests[100]
        assert guest.node in {"n1", "n3"}
        assert guest.running

    run_scenario(scenario)


def test_an_idle_region_runs_no_task() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await make(sim)
        await sim.request("POST", "/cluster/ha/resources", sid="vm:100", state="stopped")
        await sim.pause(100)
        assert sim.engine.background_tasks == frozenset()
        assert sim.engine.runtimes["r"].workers.active() == []

    run_scenario(scenario)


def test_nextid_range() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        options = {"next_id": "lower=500,upper=502"}
        await sim.request("PUT", "/cluster/options", **options)
        assert await sim.request("GET", "/cluster/nextid") == "500"
        await make(sim, 500)
        await make(sim, 501)
        answer = await sim.send("GET", "/cluster/nextid")
        assert answer.reason == "unable to get any free VMID in range [500, 502]"

    run_scenario(scenario)


def test_pool_members_move_only_with_allow_move() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for pool in ("a", "b"):
            await sim.request("POST", "/pools", poolid=pool)
        await sim.request("PUT", "/pools/a", vms="100")
        answer = await sim.send("PUT", "/pools/b", vms="100")
        assert "belongs already to pool 'a'" in answer.reason
        await sim.request("PUT", "/pools", poolid="b", vms="100", allow_move="1")
        assert sim.region.pools["a"].vms == []
        assert sim.region.pools["b"].vms == [100]

    run_scenario(scenario)


def test_sdn_is_pending_until_it_is_applied() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("POST", "/cluster/sdn/zones", zone="z1", type="simple", ipam="pve",
                          dhcp="dnsmasq")  # fmt: skip
        await sim.request("POST", "/cluster/sdn/vnets", vnet="v1", zone="z1")
        net = {"subnet": "10.9.0.0/24", "type": "subnet", "gateway": "10.9.0.1"}
        await sim.request("POST", "/cluster/sdn/vnets/v1/subnets", **net)
        pending = await sim.request("GET", "/cluster/sdn/zones", pending="1")
        assert [row["state"] for row in pending] == ["new"]
        assert await sim.request("GET", "/nodes/n1/network", type="vnet") == []
        assert await sim.run_task("PUT", "/cluster/sdn") == "OK"
        vnets = await sim.request("GET", "/nodes/n1/network", type="any_bridge")
        assert {row["iface"] for row in vnets} == {"vmbr0", "v1"}
        addresses = await sim.request("GET", "/cluster/sdn/ipams/pve/status")
        assert [row["ip"] for row in addresses] == ["10.9.0.1"]

    run_scenario(scenario)
