"""Orphaned guests are counted and reported, but not deleted."""

import asyncio

from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import Program, ready, running
from moxwell.web import actions


def counted(life: Program, region: str) -> float | None:
    registry = life.runtime.metrics.registry
    return registry.get_sample_value("moxwell_orphaned_guests", {"region": region})


def test_an_orphaned_guest_is_counted_and_reported_but_not_deleted() -> None:
    async def main() -> None:
        async with running() as (env, life):
            await apply_cluster(env)
            await apply_machine(env, "m")
            await env.until("m", ready)
            await asyncio.sleep(1000)
            assert (counted(life, "north"), counted(life, "south")) == (0, 0)
            (vmid,) = env.guests("north")
            guest = env.guests("north")[vmid]
            guest.conf["tags"] = "moxwell;mox-0123456789abcdef"  # of an owner that does not exist
            guest.conf["description"] = "moxwell-owner=0123456789abcdef"
            env.engine.runtimes["north"].mark_changed(vmid)
            await asyncio.sleep(1500)
            assert (counted(life, "north"), counted(life, "south")) == (1, 0)
            assert guest.running
            list_findings = actions.make(env.kube, life.infra, life.regions, clock=env.clock)[
                "health"
            ]
            found = [row["what"] for row in (await list_findings({}))["rows"]]
            expected = f"region north: guest {vmid} on {guest.node} has no ProxmoxMachine"
            assert expected in found

    run_virtual(main())
