"""Infeasible HA rules, groups and displayed states."""

from typing import Any

import pytest

from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.ha.rules_checks import (
    MANY_NODE_RULES,
    MULTIPLE_PRIORITIES,
    RESTRICTS,
    STEPS,
    TOO_FEW_NODES,
    TOO_FEW_RESOURCES,
    TOO_MANY_RESOURCES,
    WITH_NEGATIVE,
    WITH_OTHERS,
    WITH_POSITIVE,
    problems,
)
from support.simulator_cluster import SimulatedCluster, run_scenario

TWICE = "resource 'vm:100' is already used in another node affinity rule"
VMS = [f"vm:{n}" for n in (100, 101, 102, 103)]


def near(affinity: str, *sids: str, **more: Any) -> dict[str, Any]:
    row = {"type": "resource-affinity", "affinity": affinity, "resources": ",".join(sids)}
    return row | more


def at(nodes: str, *sids: str) -> dict[str, Any]:
    return {"type": "node-affinity", "nodes": nodes, "resources": ",".join(sids)}


@pytest.mark.parametrize(
    "rules, found",
    [
        pytest.param({"a": near("positive", *VMS[:2])}, {}, id="two together"),
        pytest.param({"a": near("positive", VMS[0])}, {"a": [TOO_FEW_RESOURCES]}, id="one alone"),
        pytest.param({"a": near("negative", *VMS)}, {"a": [TOO_MANY_RESOURCES]},
                     id="more apart than nodes"),
        pytest.param({"a": near("negative", *VMS, disable=1)}, {}, id="unless it is off"),
        pytest.param({"a": near("positive", *VMS[:2]), "b": near("negative", *VMS[:2])},
                     {"a": [WITH_NEGATIVE], "b": [WITH_POSITIVE]}, id="together and apart"),
        pytest.param({"a": at("n1", VMS[0]), "b": at("n2", VMS[0])},
                     {"a": [TWICE], "b": [TWICE]}, id="at two places"),
        pytest.param({"a": at("n1:2,n2:1", VMS[0]), "b": near("positive", *VMS[:2])},
                     {"a": [STEPS], "b": [MULTIPLE_PRIORITIES]}, id="with priorities and together"),
        pytest.param({"a": near("positive", "vm:100", "vm:101"), "b": at("n1", "vm:100"),
                      "c": at("n2", "vm:101")},
                     {"a": [MANY_NODE_RULES], "b": [WITH_OTHERS], "c": [WITH_OTHERS]},
                     id="together in two places"),
        pytest.param({"a": near("negative", "vm:100", "vm:101"), "b": at("n1", "vm:100", "vm:101")},
                     {"a": [TOO_FEW_NODES], "b": [RESTRICTS]}, id="apart on one node"),
        pytest.param({"a": near("positive", "vm:100", "vm:101"),
                      "b": near("positive", "vm:101", "vm:102"),
                      "c": near("negative", "vm:100", "vm:102")},
                     {"a": [WITH_NEGATIVE], "b": [WITH_NEGATIVE], "c": [WITH_POSITIVE]},
                     id="together through a third"),
    ],
)  # fmt: skip
def test_infeasible_rules(rules: dict[str, Any], found: dict[str, list[str]]) -> None:
    assert problems(rules, nodes=3) == found


async def resources(sim: SimulatedCluster, *vmids: int) -> None:
    for vmid in vmids:
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=vmid) == "OK"
        await sim.request("POST", "/cluster/ha/resources", sid=f"vm:{vmid}", state="stopped")


def test_an_infeasible_rule_is_rejected_with_a_400_inside_a_500() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await resources(sim, 100, 101)
        rule = {"rule": "pair", "type": "resource-affinity", "affinity": "positive"}
        await sim.request("POST", "/cluster/ha/rules", **rule, resources="vm:100,vm:101")
        other: dict[str, Any] = {
            "rule": "apart",
            "type": "resource-affinity",
            "affinity": "negative",
        }
        answer = await sim.send("POST", "/cluster/ha/rules", **other, resources="vm:100,vm:101")
        assert answer.status == 500
        assert answer.reason == "create ha rule failed: 400 Rule 'apart' is invalid."
        assert WITH_POSITIVE in answer.json()["message"]

    run_scenario(scenario, version="9.2.11")


def test_displayed_ha_state() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await resources(sim, 100)
        await sim.request("PUT", "/cluster/ha/resources/vm:100", state="started")

        async def crm_state() -> str:
            rows = await sim.request("GET", "/cluster/ha/status/current")
            return next(str(row["state"]) for row in rows if row["type"] == "service")

        seen = [await crm_state()]
        for _ in range(60):
            await sim.pause(1)
            state = await crm_state()
            if state != seen[-1]:
                seen.append(state)
        assert seen == ["queued", "starting", "started"]

    run_scenario(scenario)


def test_ha_groups_are_rejected_on_9() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        answer = await sim.send("GET", "/cluster/ha/groups")
        text = "cannot index groups: ha groups have been migrated to rules"
        assert (answer.status, answer.reason) == (500, text)

    run_scenario(scenario, version="9.2.11")


def test_an_unknown_security_group_is_accepted_and_listed_with_an_error() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=100) == "OK"
        form = {"sid": "vm:100", "state": "stopped", "group": "none"}
        await sim.request("POST", "/cluster/ha/resources", **form)
        (row,) = await sim.request("GET", "/cluster/ha/resources")
        assert row["errors"] == {"group": "group 'none' does not exist"}

    run_scenario(scenario)


def test_a_managed_guest_is_migrated_by_ha() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        form = {"vmid": 100, "scsi0": "shared:1", "memory": 64}
        assert await sim.run_task("POST", "/nodes/n1/qemu", **form) == "OK"
        await sim.request("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        await sim.pause(40)
        upid = await sim.request("POST", "/nodes/n1/qemu/100/migrate", target="n2", online=1)
        assert ":hamigrate:" in upid
        await sim.pause(60)
        guest = sim.region.guests[100]
        assert (guest.node, guest.running) == ("n2", True)

    run_scenario(scenario)


def test_node_maintenance() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        runtime = sim.engine.runtimes["r"]
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=100) == "OK"
        assert await sim.run_task("POST", "/nodes/n1/qemu", vmid=101) == "OK"
        await sim.request("POST", "/cluster/ha/resources", sid="vm:100", state="started")
        await sim.request("POST", "/cluster/ha/resources", sid="vm:101", state="stopped")
        await sim.clock.sleep(60)
        chaos.perform(runtime, "maintenance-on", {"node": "n1"})
        await sim.clock.sleep(120)
        guests = runtime.region.guests
        assert (guests[100].node != "n1", guests[100].running) == (True, True)
        assert guests[101].node == "n1"
        rows = await sim.request("GET", "/cluster/ha/status/current")
        (lrm,) = [row for row in rows if row["id"] == "lrm:n1"]
        assert "maintenance mode" in lrm["status"]
        notes = await sim.request("GET", "/cluster/ha/status/manager_status")
        assert notes["manager_status"]["node_status"]["n1"] == "maintenance"
        chaos.perform(runtime, "maintenance-off", {"node": "n1"})
        await sim.clock.sleep(120)
        assert (guests[100].node, guests[100].running) == ("n1", True)

    run_scenario(scenario)


@pytest.mark.parametrize(
    "form, message",
    [
        pytest.param({"type": "node-affinity", "delete": "nodes"},
                     "update HA rules failed: unable to delete required option 'nodes'",
                     id="a required option"),
        pytest.param({"type": "node-affinity", "delete": "nosuch"},
                     "update HA rules failed: no such option 'nosuch'", id="an unknown option"),
        pytest.param({"type": "node-affinity", "nodes": "n9"},
                     "update HA rules failed: cannot use non-existent node(s) n9.",
                     id="a node that is not there"),
    ],
)  # fmt: skip
def test_a_change_of_a_rule_is_refused(form: dict[str, Any], message: str) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await resources(sim, 100)
        rule = {"rule": "here", "type": "node-affinity", "nodes": "n2,n1:0", "resources": "vm:100"}
        await sim.request("POST", "/cluster/ha/rules", **rule)
        answer = await sim.send("PUT", "/cluster/ha/rules/here", **form)
        assert (answer.status, answer.reason) == (500, message)
        assert (await sim.request("GET", "/cluster/ha/rules/here"))["nodes"] == "n1,n2"

    run_scenario(scenario, version="9.2.11")
