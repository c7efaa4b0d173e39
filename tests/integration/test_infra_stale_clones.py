"""A host dies in the middle of a clone: another id is claimed, and what is left goes later."""

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
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.pve import SimTransport
from moxwell.testing.reconcile import ENDINGS, Ending, EffectCounter, crash_after_each_effect
from moxwell.testing.region_contents import Lying, changed, lying
from moxwell.testing.two_regions import (
    Estate,
    is_true,
    make_estate,
    message,
    program,
    ready,
    reason,
    running,
)

FULL: dict[str, Any] = {"templateID": 9000, "full": True, "storage": "ceph"}
CLONE_HOST = "pve1"  # where the template lies, and so where clones are made
Prepare = Callable[[Estate], None]


async def lose_clone(estate: Estate) -> int:
    """A machine whose clone dies with its host, which comes back after two minutes."""
    await apply_machine(estate, "m", **FULL)
    machine = await estate.until("m", lambda m: m.spec.virtual_machine_id is not None)
    vmid = machine.spec.virtual_machine_id or 0
    while vmid not in estate.region("north").guests:
        await asyncio.sleep(1)
    await asyncio.sleep(4)
    assert estate.region("north").guests[vmid].conf["lock"] == "clone"
    estate.mischief("north", "host-down", node=CLONE_HOST)
    await asyncio.sleep(120)
    estate.mischief("north", "host-up", node=CLONE_HOST)
    return vmid


def tell(story: Callable[[Estate, Lying], Awaitable[None]], prepare: Prepare | None = None) -> None:
    async def main() -> None:
        async with running("north", prepare=prepare) as (estate, _):
            await apply_cluster(estate)
            await asyncio.sleep(30)
            await story(estate, lying(estate.region("north")))

    run_virtual(main())


def test_another_id_is_claimed_and_the_carcass_goes_when_it_is_unlocked() -> None:
    async def story(estate: Estate, before: Lying) -> None:
        dead = await lose_clone(estate)
        machine = await estate.until("m", lambda m: is_true(m, "Ready"))
        assert machine.spec.virtual_machine_id != dead
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == (f"north/{dead}",)
        machine = await estate.until("m", lambda m: m.status.next_move == "wait: StaleClone")
        assert (reason(machine), reason(machine, "NoStaleClones")) == ("Provisioned", "StaleClone")
        assert f"qm unlock {dead}" in message(machine, "NoStaleClones")
        assert estate.region("north").guests[dead].lock == "clone"
        estate.mischief("north", "lock", vmid=dead, lock="")
        machine = await estate.until("m", lambda m: is_true(m, "NoStaleClones"))
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert dead not in estate.region("north").guests
        await nothing_is_left(estate, before)

    tell(story)


def test_a_machine_with_a_locked_carcass_is_deleted_when_that_is_unlocked() -> None:
    async def story(estate: Estate, before: Lying) -> None:
        dead = await lose_clone(estate)
        await estate.delete("m")
        machine = await estate.until("m", lambda m: reason(m) == "StaleClone")
        assert f"qm unlock {dead}" in message(machine)
        assert estate.region("north").guests[dead].lock == "clone"
        estate.mischief("north", "lock", vmid=dead, lock="")
        await estate.until_gone("m")
        assert changed(before, lying(estate.region("north"))) == {}

    tell(story)


def test_who_keeps_a_machine_keeps_its_carcass() -> None:
    async def story(estate: Estate, before: Lying) -> None:
        dead = await lose_clone(estate)
        await estate.until("m", lambda m: is_true(m, "Ready"))
        note = {"metadata": {"annotations": {"moxwell.dev/keep": "true"}}}
        await estate.kube.merge(ProxmoxMachine, "m", note, "default")
        await estate.delete("m")
        await estate.until_gone("m")
        assert dead in estate.region("north").guests

    tell(story)


def test_what_somebody_made_at_the_old_id_is_his() -> None:
    async def story(estate: Estate, before: Lying) -> None:
        dead = await lose_clone(estate)
        await estate.until("m", lambda m: m.status.next_move == "wait: StaleClone")
        estate.mischief("north", "delete-guest", vmid=dead)
        estate.mischief("north", "take-vmid", vmid=dead)
        machine = await estate.until("m", lambda m: is_true(m, "NoStaleClones"))
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert estate.region("north").guests[dead].conf["name"] == "stranger"

    tell(story)


def test_a_clone_that_takes_long_is_not_given_up_by_a_new_program() -> None:
    """The new life does not know the task, but sees that a clone runs on the host."""

    async def main() -> None:
        estate = await make_estate()
        await apply_cluster(estate)
        estate.mischief("north", "pace", bandwidth=2e7)
        first = program(estate, "north").manager
        life = asyncio.create_task(first.run())
        await apply_machine(estate, "m", **FULL)
        vmid = (await estate.until("m", lambda m: bool(m.spec.virtual_machine_id))).spec
        await asyncio.sleep(30)
        life.cancel()
        await asyncio.wait([life])
        second = program(estate, "north").manager
        life = asyncio.create_task(second.run())
        machine = await estate.until("m", ready, seconds=2000)
        assert machine.spec.virtual_machine_id == vmid.virtual_machine_id
        second.stop()
        await life
        await estate.close()

    run_virtual(main())


def log_in_as_root(estate: Estate) -> None:
    """The region is configured with the password of root@pam."""
    region, now = estate.region("north"), estate.engine.runtimes["north"].now()
    headers = {
        "cookie": f"PVEAuthCookie={quote(auth.make_ticket(region, 'root@pam', now))}",
        "csrfpreventiontoken": auth.make_csrf(region, "root@pam", now),
    }
    estate.transports["north"] = SimTransport(estate.engine, "north", headers=headers)
    estate.auths["north"] = PasswordAuth("root@pam", SecretValue("secret"))


def test_root_with_a_password_removes_it_at_once() -> None:
    async def story(estate: Estate, before: Lying) -> None:
        dead = await lose_clone(estate)
        machine = await estate.until("m", lambda m: m.spec.virtual_machine_id != dead and is_true(m, "NoStaleClones"))
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        assert dead not in estate.region("north").guests
        await nothing_is_left(estate, before)

    tell(story, log_in_as_root)


async def nothing_is_left(estate: Estate, before: Lying) -> None:
    """After the machine is deleted, and the seed of the id it gave up is collected."""
    await estate.delete("m")
    await estate.until_gone("m")
    await asyncio.sleep(1000)
    assert changed(before, lying(estate.region("north"))) == {}


@dataclass
class CloneDies:
    """Killed as well while all this goes on."""

    before: Lying = field(default_factory=dict)
    dead: int = 0

    async def world(self) -> Estate:
        world = await make_estate()
        await apply_cluster(world)
        await asyncio.sleep(30)
        self.before = lying(world.region("north"))
        return world

    def program(self, world: Estate, wires: EffectCounter) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: Estate) -> None:
        self.dead = await lose_clone(world)
        await world.until("m", lambda m: is_true(m, "Ready"), seconds=100_000)
        world.mischief("north", "lock", vmid=self.dead, lock="")

    async def check(self, world: Estate) -> None:
        machine = await world.machine("m")
        assert is_true(machine, "Ready")
        assert machine.status.next_move == ""
        assert machine.spec.claim
        assert machine.spec.claim.stale_clones == ()
        new = changed(self.before, lying(world.region("north")))
        assert all(str(machine.spec.virtual_machine_id) in name for name in new), new
        await world.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_ended_after_any_effect_meanwhile(ending: Ending) -> None:
    crash_after_each_effect(CloneDies(), quiet_seconds=1300.0, ending=ending)
