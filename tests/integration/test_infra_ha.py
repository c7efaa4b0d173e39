"""HA groups of Proxmox VE 8 and HA rules of 9 through one field of the spec."""

import asyncio

import pytest

from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import TwoRegions, message, ready, reason, running


async def prepare(env: TwoRegions, region: str) -> None:
    """Create an HA group on 8, and on 9 a rule with another resource."""
    pve = PveWriter(SwitchableTransport(env.transports[region]))
    if region == "north":
        await pve.ha.create_group("near", nodes="pve1,pve2")
        return
    await pve.qemu.create("pve1", 300, {"name": "theirs", "memory": 512})
    await asyncio.sleep(5)
    await pve.ha.add_resource("vm:300", state="stopped")
    await pve.ha.create_rule("near", "node-affinity", ("vm:300",), nodes="pve1,pve2")


@pytest.mark.parametrize(
    "region",
    [pytest.param("north", id="a group on 8.4"), pytest.param("south", id="a rule on 9.2")],
)
def test_a_machine_joins_its_ha_group_and_leaves_it_when_deleted(region: str) -> None:
    async def main() -> None:
        async with running(region) as (env, _):
            await prepare(env, region)
            await apply_cluster(env, region=region)
            await apply_machine(env, "m", templateID=9000, highAvailability={"group": "near"})
            machine = await env.until("m", ready)
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", env.region(region).ha
            if region == "north":
                assert ha.resources[sid].options["group"] == "near"
            else:
                assert sid in ha.rules["near"]["resources"].split(",")
            await env.delete("m")
            await env.until_gone("m")
            assert sid not in ha.resources
            assert region == "north" or ha.rules["near"]["resources"] == "vm:300"

    run_virtual(main())


@pytest.mark.parametrize(
    "region",
    [pytest.param("north", id="a group on 8.4"), pytest.param("south", id="a rule on 9.2")],
)
def test_a_missing_ha_group_is_reported_before_anything_is_created(region: str) -> None:
    async def main() -> None:
        async with running(region) as (env, _):
            await apply_cluster(env, region=region)
            await apply_machine(env, "m", templateID=9000, highAvailability={"group": "near"})
            machine = await env.until("m", lambda m: reason(m) == "InsufficientResources")
            assert f"region {region} has no HA group or rule near" in message(machine)
            assert [p for method, p in env.sent(region) if method != "GET"] == []
            await prepare(env, region)
            await env.until("m", ready)

    run_virtual(main())


def test_a_rule_deleted_during_creation_is_reported() -> None:
    async def main() -> None:
        async with running("south") as (env, _):
            await prepare(env, "south")
            await apply_cluster(env, region="south")
            await apply_machine(env, "m", templateID=9000, highAvailability={"group": "near"})
            await env.until("m", lambda m: m.spec.claim is not None)
            del env.region("south").ha.rules["near"]
            machine = await env.until("m", lambda m: reason(m) == "HARuleNotFound")
            assert "no HA rule 'near'" in message(machine)

    run_virtual(main())
