"""HA groups, and the rules they became in Proxmox VE 9: one field for both."""

import asyncio

import pytest

from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import Estate, message, ready, reason, running


async def prepare(estate: Estate, region: str) -> None:
    """A group on 8; on 9 a rule, which needs somebody in it."""
    pve = PveWriter(SwitchableTransport(estate.transports[region]))
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
def test_a_machine_is_in_the_group_it_names_and_leaves_it_when_it_goes(region: str) -> None:
    async def main() -> None:
        async with running(region) as (estate, _):
            await prepare(estate, region)
            await apply_cluster(estate, region=region)
            await apply_machine(estate, "m", templateID=9000, highAvailability={"group": "near"})
            machine = await estate.until("m", ready)
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", estate.region(region).ha
            if region == "north":
                assert ha.resources[sid].options["group"] == "near"
            else:
                assert sid in ha.rules["near"]["resources"].split(",")
            await estate.delete("m")
            await estate.until_gone("m")
            assert sid not in ha.resources
            assert region == "north" or ha.rules["near"]["resources"] == "vm:300"

    run_virtual(main())


@pytest.mark.parametrize(
    "region",
    [pytest.param("north", id="a group on 8.4"), pytest.param("south", id="a rule on 9.2")],
)
def test_a_group_that_is_not_there_is_told_before_anything_is_made(region: str) -> None:
    async def main() -> None:
        async with running(region) as (estate, _):
            await apply_cluster(estate, region=region)
            await apply_machine(estate, "m", templateID=9000, highAvailability={"group": "near"})
            machine = await estate.until("m", lambda m: reason(m) == "InsufficientResources")
            assert f"region {region} has no HA group or rule near" in message(machine)
            assert [p for method, p in estate.sent(region) if method != "GET"] == []
            await prepare(estate, region)
            await estate.until("m", ready)

    run_virtual(main())


def test_a_rule_that_goes_while_its_machine_is_made_is_told() -> None:
    async def main() -> None:
        async with running("south") as (estate, _):
            await prepare(estate, "south")
            await apply_cluster(estate, region="south")
            await apply_machine(estate, "m", templateID=9000, highAvailability={"group": "near"})
            await estate.until("m", lambda m: m.spec.claim is not None)
            del estate.region("south").ha.rules["near"]
            machine = await estate.until("m", lambda m: reason(m) == "HARuleNotFound")
            assert "no HA rule 'near'" in message(machine)

    run_virtual(main())
