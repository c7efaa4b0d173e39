"""A host goes down during a clone: another VMID is claimed, the stale clone is removed later."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.lab.proxmox.access import auth
from moxwell.pve.config import PasswordAuth
from moxwell.pve.values import SecretValue
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.pve import SimTransport
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect
from moxwell.testing.region_contents import RegionContents, contents_diff, contents_of
from moxwell.testing.two_regions import (
    TwoRegions,
    is_true,
    message,
    program,
    ready,
    reason,
    running,
    start_two_regions,
)

FULL: dict[str, Any] = {"templateID": 9000, "full": True, "storage": "ceph"}
CLONE_HOST = "pve1"  # the template's host, where clones are created
Prepare = Callable[[TwoRegions], None]


async def lose_clone(env: TwoRegions) -> int:
    """Lose the host during a clone; it returns after two minutes."""
    await apply_machine(env, "m", **FULL)
    machine = await env.until("m", lambda m: m.spec.virtual_machine_id is not None)
    vmid = machine.spec.virtual_machine_id or 0
    while vmid not in env.region("north").guests:
        await asyncio.sleep(1)
    await asyncio.sleep(4)
    assert env.region("north").guests[vmid].conf["lock"] == "clone"
    env.chaos("north", "host-down", node=CLONE_HOST)
    await asyncio.sleep(120)
    env.chaos("north", "host-up", node=CLONE_HOST)
    return vmid


def tell(
    story: Callable[[TwoRegions, RegionContents], Awaitable[None]], prepare: Prepare | None = None
) -> None:
    async def main() -> None:
        async with running("north", prepare=prepare) as (env, _):
            await apply_cluster(env)
            await asyncio.sleep(30)
            await story(env, contents_of(env.region("north")))

    run_virtual(main())


def test_another_vmid_is_claimed_and_the_stale_clone_is_removed_once_unlocked() -> None:
    async def story(env: TwoRegions, before: RegionContents) -> None:
        dead = await lose_clone(env)
        machine = await env.until("m", lambda m: is_true(m, "Ready"))
        assert machine.spec.virtual_machine_id != dead
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == (f"north/{dead}",)
        machine = await env.until("m", lambda m: m.status.next_move == "wait: StaleClone")
        assert (reason(machine), reason(machine, "NoStaleClones")) == ("Provisioned", "StaleClone")
        assert f"qm unlock {dead}" in message(machine, "NoStaleClones")
        assert env.region("north").guests[dead].lock == "clone"
        env.chaos("north", "lock", vmid=dead, lock="")
        machine = await env.until("m", lambda m: is_true(m, "NoStaleClones"))
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert dead not in env.region("north").guests
        await nothing_is_left(env, before)

    tell(story)


def test_a_machine_with_a_locked_stale_clone_is_deleted_once_it_is_unlocked() -> None:
    async def story(env: TwoRegions, before: RegionContents) -> None:
        dead = await lose_clone(env)
        await env.delete("m")
        machine = await env.until("m", lambda m: reason(m) == "StaleClone")
        assert f"qm unlock {dead}" in message(machine)
        assert env.region("north").guests[dead].lock == "clone"
        env.chaos("north", "lock", vmid=dead, lock="")
        await env.until_gone("m")
        assert contents_diff(before, contents_of(env.region("north"))) == {}

    tell(story)


def test_the_stale_clone_of_a_kept_machine_is_kept() -> None:
    async def story(env: TwoRegions, before: RegionContents) -> None:
        dead = await lose_clone(env)
        await env.until("m", lambda m: is_true(m, "Ready"))
        note = {"metadata": {"annotations": {"moxwell.dev/keep": "true"}}}
        await env.kube.merge(ProxmoxMachine, "m", note, "default")
        await env.delete("m")
        await env.until_gone("m")
        assert dead in env.region("north").guests

    tell(story)


def test_a_foreign_guest_with_the_abandoned_vmid_is_left_alone() -> None:
    async def story(env: TwoRegions, before: RegionContents) -> None:
        dead = await lose_clone(env)
        await env.until("m", lambda m: m.status.next_move == "wait: StaleClone")
        env.chaos("north", "delete-guest", vmid=dead)
        env.chaos("north", "take-vmid", vmid=dead)
        machine = await env.until("m", lambda m: is_true(m, "NoStaleClones"))
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert env.region("north").guests[dead].conf["name"] == "stranger"

    tell(story)


def test_a_long_clone_is_not_abandoned_after_a_restart() -> None:
    """After a restart the task is unknown, but a clone task runs on the host."""

    async def main() -> None:
        env = await start_two_regions()
        await apply_cluster(env)
        env.chaos("north", "pace", bandwidth=2e7)
        first = program(env, "north").manager
        life = asyncio.create_task(first.run())
        await apply_machine(env, "m", **FULL)
        vmid = (await env.until("m", lambda m: bool(m.spec.virtual_machine_id))).spec
        await asyncio.sleep(30)
        life.cancel()
        await asyncio.wait([life])
        second = program(env, "north").manager
        life = asyncio.create_task(second.run())
        machine = await env.until("m", ready, seconds=2000)
        assert machine.spec.virtual_machine_id == vmid.virtual_machine_id
        second.stop()
        await life
        await env.close()

    run_virtual(main())


def log_in_as_root(env: TwoRegions) -> None:
    """Configure the region with the password of root@pam."""
    region, now = env.region("north"), env.engine.runtimes["north"].now()
    headers = {
        "cookie": f"PVEAuthCookie={quote(auth.make_ticket(region, 'root@pam', now))}",
        "csrfpreventiontoken": auth.make_csrf(region, "root@pam", now),
    }
    env.transports["north"] = SimTransport(env.engine, "north", headers=headers)
    env.auths["north"] = PasswordAuth("root@pam", SecretValue("secret"))


def test_root_with_a_password_removes_the_stale_clone_at_once() -> None:
    async def story(env: TwoRegions, before: RegionContents) -> None:
        dead = await lose_clone(env)
        machine = await env.until(
            "m", lambda m: m.spec.virtual_machine_id != dead and is_true(m, "NoStaleClones")
        )
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert dead not in env.region("north").guests
        await nothing_is_left(env, before)

    tell(story, log_in_as_root)


async def nothing_is_left(env: TwoRegions, before: RegionContents) -> None:
    """Delete the machine and collect the bootstrap ISO of the abandoned VMID."""
    await env.delete("m")
    await env.until_gone("m")
    await asyncio.sleep(1000)
    assert contents_diff(before, contents_of(env.region("north"))) == {}


@dataclass
class LoseCloneHost:
    """Also kill the program after any write."""

    before: RegionContents = field(default_factory=dict)
    dead: int = 0

    async def world(self) -> TwoRegions:
        world = await start_two_regions()
        await apply_cluster(world)
        await asyncio.sleep(30)
        self.before = contents_of(world.region("north"))
        return world

    def program(self, world: TwoRegions, wires: EffectCounter) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: TwoRegions) -> None:
        self.dead = await lose_clone(world)
        await world.until("m", lambda m: is_true(m, "Ready"), seconds=100_000)
        world.chaos("north", "lock", vmid=self.dead, lock="")

    async def check(self, world: TwoRegions) -> None:
        machine = await world.machine("m")
        assert is_true(machine, "Ready")
        assert machine.status.next_move == ""
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        new = contents_diff(self.before, contents_of(world.region("north")))
        assert all(str(machine.spec.virtual_machine_id) in name for name in new), new
        await world.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_killed_after_any_effect_meanwhile(ending: Ending) -> None:
    crash_after_each_effect(LoseCloneHost(), quiet_seconds=1300.0, ending=ending)
