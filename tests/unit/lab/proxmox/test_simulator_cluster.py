"""What the cluster shows: late lists, lost nodes, HA at work."""

from typing import Any

from sim_bench import Bench, tell

from moxwell.lab.proxmox import chaos


async def make(bench: Bench, vmid: int = 100, node: str = "n1", **conf: Any) -> None:
    form = {"vmid": vmid, "name": f"vm{vmid}", "memory": 64, **conf}
    assert await bench.done("POST", f"/nodes/{node}/qemu", **form) == "OK"


async def rows(bench: Bench) -> dict[int, dict[str, Any]]:
    found = await bench.ask("GET", "/cluster/resources", type="vm")
    return {row["vmid"]: row for row in found}


def test_the_list_is_up_to_ten_seconds_late() -> None:
    async def story(bench: Bench) -> None:
        await bench.pause(1)
        await make(bench)
        assert (await rows(bench))[100]["status"] == "unknown"
        await bench.pause(10)
        assert (await rows(bench))[100]["status"] == "stopped"
        assert await bench.done("POST", "/nodes/n1/qemu/100/status/start") == "OK"
        assert (await rows(bench))[100]["status"] == "stopped"
        current = await bench.ask("GET", "/nodes/n1/qemu/100/status/current")
        assert current["status"] == "running"
        await bench.pause(10)
        assert (await rows(bench))[100]["status"] == "running"

    tell(story)


def test_a_used_id_shows_its_former_owner_until_the_next_round() -> None:
    async def story(bench: Bench) -> None:
        await bench.pause(1)
        await make(bench)
        await bench.pause(10)
        assert (await rows(bench))[100]["name"] == "vm100"
        assert await bench.done("DELETE", "/nodes/n1/qemu/100") == "OK"
        assert 100 not in await rows(bench)
        await make(bench, name="other")
        assert (await rows(bench))[100]["name"] == "vm100"
        await bench.pause(10)
        assert (await rows(bench))[100]["name"] == "other"

    tell(story)


def test_a_lost_node() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, 100, "n2")
        await bench.pause(10)
        chaos.perform(bench.engine.desks["r"], "host-down", {"node": "n2"})
        answer = await bench.send("GET", "/nodes/n2/status")
        assert (answer.status, answer.reason, answer.body) == (595, "Connection refused", b"")
        status = {row["name"]: row for row in await bench.ask("GET", "/cluster/status")}
        assert (status["n2"]["online"], status["c"]["quorate"]) == (0, 1)
        nodes = {row["node"]: row for row in await bench.ask("GET", "/nodes")}
        assert nodes["n2"]["status"] == "offline"
        assert "maxmem" in nodes["n2"]
        assert "mem" not in nodes["n2"]
        assert (await rows(bench))[100]["status"] == "stopped"
        await bench.pause(301)
        assert (await rows(bench))[100]["status"] == "unknown"
        nodes = {row["node"]: row for row in await bench.ask("GET", "/nodes")}
        assert "maxmem" not in nodes["n2"]

    tell(story)


def test_without_quorum_nothing_is_written() -> None:
    async def story(bench: Bench) -> None:
        for node in ("n2", "n3"):
            chaos.perform(bench.engine.desks["r"], "host-down", {"node": node})
        answer = await bench.send("POST", "/pools", poolid="p")
        assert (answer.status, answer.reason) == (500, "cluster not ready - no quorum?")
        assert (await bench.send("GET", "/pools")).status == 200

    tell(story)


def test_ha_starts_what_is_to_run() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, scsi0="shared:1")
        await bench.ask("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        assert not bench.region.guests[100].running
        await bench.pause(25)
        assert bench.region.guests[100].running
        await bench.pause(10)
        assert bench.region.ha.resources["vm:100"].shown == "started"
        upid = await bench.ask("POST", "/nodes/n1/qemu/100/status/stop")
        assert ":hastop:" in upid
        assert bench.region.guests[100].running
        await bench.pause(40)
        assert not bench.region.guests[100].running
        assert bench.region.ha.resources["vm:100"].shown == "stopped"

    tell(story)


def test_ha_recovers_the_guests_of_a_lost_node() -> None:
    async def story(bench: Bench) -> None:
        await make(bench, 100, "n2", scsi0="shared:1")
        await bench.ask("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        await bench.pause(40)
        chaos.perform(bench.engine.desks["r"], "host-down", {"node": "n2"})
        await bench.pause(30)
        assert bench.region.guests[100].node == "n2"
        await bench.pause(90)
        guest = bench.region.guests[100]
        assert guest.node in {"n1", "n3"}
        assert guest.running

    tell(story)


def test_a_quiet_region_has_nothing_running() -> None:
    async def story(bench: Bench) -> None:
        await make(bench)
        await bench.ask("POST", "/cluster/ha/resources", sid="vm:100", state="stopped")
        await bench.pause(100)
        assert bench.engine._beside == set()
        assert bench.engine.desks["r"].workers.active() == []

    tell(story)


def test_the_next_id_keeps_to_its_range() -> None:
    async def story(bench: Bench) -> None:
        options = {"next_id": "lower=500,upper=502"}
        await bench.ask("PUT", "/cluster/options", **options)
        assert await bench.ask("GET", "/cluster/nextid") == "500"
        await make(bench, 500)
        await make(bench, 501)
        answer = await bench.send("GET", "/cluster/nextid")
        assert answer.reason == "unable to get any free VMID in range [500, 502]"

    tell(story)


def test_pools_move_members_only_when_told() -> None:
    async def story(bench: Bench) -> None:
        for pool in ("a", "b"):
            await bench.ask("POST", "/pools", poolid=pool)
        await bench.ask("PUT", "/pools/a", vms="100")
        answer = await bench.send("PUT", "/pools/b", vms="100")
        assert "belongs already to pool 'a'" in answer.reason
        await bench.ask("PUT", "/pools", poolid="b", vms="100", allow_move="1")
        assert bench.region.pools["a"].vms == []
        assert bench.region.pools["b"].vms == [100]

    tell(story)


def test_sdn_is_pending_until_it_is_applied() -> None:
    async def story(bench: Bench) -> None:
        await bench.ask("POST", "/cluster/sdn/zones", zone="z1", type="simple", ipam="pve")
        await bench.ask("POST", "/cluster/sdn/vnets", vnet="v1", zone="z1")
        net = {"subnet": "10.9.0.0/24", "type": "subnet", "gateway": "10.9.0.1"}
        await bench.ask("POST", "/cluster/sdn/vnets/v1/subnets", **net)
        pending = await bench.ask("GET", "/cluster/sdn/zones", pending="1")
        assert [row["state"] for row in pending] == ["new"]
        assert await bench.ask("GET", "/nodes/n1/network", type="vnet") == []
        assert await bench.done("PUT", "/cluster/sdn") == "OK"
        vnets = await bench.ask("GET", "/nodes/n1/network", type="any_bridge")
        assert {row["iface"] for row in vnets} == {"vmbr0", "v1"}
        addresses = await bench.ask("GET", "/cluster/sdn/ipams/pve/status")
        assert [row["ip"] for row in addresses] == ["10.9.0.1"]

    tell(story)
