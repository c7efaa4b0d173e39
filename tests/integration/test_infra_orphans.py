"""Guests whose machine is gone without them: counted, told, and left alone."""

import asyncio

from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import Program, ready, running
from moxwell.web import actions


def counted(life: Program, region: str) -> float | None:
    registry = life.runtime.metrics.registry
    return registry.get_sample_value("moxwell_orphaned_guests", {"region": region})


def test_a_guest_without_an_owner_is_counted_told_and_left_alone() -> None:
    async def main() -> None:
        async with running() as (estate, life):
            await apply_cluster(estate)
            await apply_machine(estate, "m")
            await estate.until("m", ready)
            await asyncio.sleep(1000)
            assert (counted(life, "north"), counted(life, "south")) == (0, 0)
            (vmid,) = estate.guests("north")
            guest = estate.guests("north")[vmid]
            guest.conf["tags"] = "moxwell;mox-0123456789abcdef"  # of an owner that is nowhere
            guest.conf["description"] = "moxwell-owner=0123456789abcdef"
            estate.engine.runtimes["north"].mark_changed(vmid)
            await asyncio.sleep(1500)
            assert (counted(life, "north"), counted(life, "south")) == (1, 0)
            assert guest.running
            tell = actions.make(estate.kube, life.infra, life.regions)["health"]
            said = [row["what"] for row in (await tell({}))["rows"]]
            expected = f"region north: guest {vmid} on {guest.node} has no ProxmoxMachine"
            assert expected in said

    run_virtual(main())
