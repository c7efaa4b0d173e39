"""Every fault that the simulator can inject, and how the client handles it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moxwell.errors import Conflict, Missing, Retryable, Unreachable
from moxwell.lab.proxmox.chaos import ACTIONS
from moxwell.lab.proxmox.fault_injection import REQUEST_KINDS, TASK_KINDS
from moxwell.pve import errors, steps
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.inventory import Inventory
from moxwell.pve.model import InventoryChange
from moxwell.pve.ownership import Foreign
from moxwell.pve.regions import Region
from moxwell.pve.steps import GuestRef
from moxwell.pve.values import SecretValue
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import OURS, SimStage

G = GuestRef("r1", "pve1", 100, OURS)
NEW = GuestRef("r1", "pve1", 300, OURS)
CLONE = steps.Clone(NEW, template=9000, template_host="pve1", name="new")
TRIED: set[str] = set()

Story = Callable[[SimStage], Awaitable[None]]


def fault(*names: str) -> Callable[[Story], Callable[[], None]]:
    """Declare which faults a story covers, and run it on virtual time."""
    TRIED.update(names)

    def turn(story: Story) -> Callable[[], None]:
        def test() -> None:
            async def play() -> None:
                stage = SimStage()
                await story(stage)
                await stage.close()

            run_virtual(play())

        test.__name__ = story.__name__
        test.__doc__ = story.__doc__
        return test

    return turn


def test_every_fault_has_a_story() -> None:
    assert REQUEST_KINDS | TASK_KINDS | set(ACTIONS) == TRIED


@fault("latency")
async def test_latency_fails_only_above_the_deadline(stage: SimStage) -> None:
    stage.fault("latency", seconds=20, times=1)
    assert (await stage.pve.version()).major == 8
    stage.fault("latency", seconds=120)
    with pytest.raises(errors.RegionUnreachable):
        await stage.pve.version()
    with pytest.raises(errors.OutcomeUnknown):
        await stage.pve.qemu.start("pve1", 100)


@fault("cut-before")
async def test_a_cut_before_the_effect_has_unknown_outcome_and_is_safe_to_repeat(
    stage: SimStage,
) -> None:
    stage.fault("cut-before", method="POST", times=1)
    with pytest.raises(errors.OutcomeUnknown):
        await CLONE.perform(stage.pve)
    assert 300 not in stage.region.guests
    assert await stage.done(await CLONE.perform(stage.pve)) == "OK"


@fault("cut-after")
async def test_a_cut_after_the_effect_creates_no_second_guest(stage: SimStage) -> None:
    stage.fault("cut-after", method="POST", times=1)
    with pytest.raises(errors.OutcomeUnknown):
        await CLONE.perform(stage.pve)
    await asyncio.sleep(60)
    assert await CLONE.perform(stage.pve) is None  # it exists and has our mark
    assert sorted(stage.region.guests) == [100, 200, 300, 9000]


@fault("status")
async def test_statuses_are_classified(stage: SimStage) -> None:
    for status, error in (
        (595, errors.HostUnreachable),
        (596, errors.HostUnreachable),
        (503, errors.Overloaded),
        (500, errors.UnknownPveError),
        (401, errors.CredentialsRefused),
    ):
        stage.engine.faults["r1"].remove()
        stage.fault("status", status=status, text="simulated")
        with pytest.raises(error):
            await stage.pve.version()


@fault("task-fail")
async def test_a_failed_task_reports_its_exit_status(stage: SimStage) -> None:
    stage.fault("task-fail", task="qmclone", text="clone failed: no space left on device")
    exit_text = await stage.done(await CLONE.perform(stage.pve))
    assert isinstance(errors.classify_exit(exit_text), errors.StorageFull)


@fault("task-slow")
async def test_a_slow_task_is_followed_to_its_end(stage: SimStage) -> None:
    stage.fault("task-slow", task="qmstart", seconds=90)
    region = over(stage)
    runner = asyncio.create_task(region.run())
    ended: list[object] = []
    region.tasks.subscribe(lambda event: ended.append(event.owner))
    await region.perform(steps.Start(G), "me")
    await asyncio.sleep(60)
    assert ended == []
    await asyncio.sleep(60)
    assert ended == ["me"]
    assert region.inventory.guests[100].running
    runner.cancel()


@fault("host-down", "host-up")
async def test_a_lost_host_does_not_affect_the_others(stage: SimStage) -> None:
    seen = Inventory(stage.pve, stage.clock)
    await seen.refresh()
    stage.mischief("host-down", node="pve1")
    with pytest.raises(errors.HostUnreachable):
        await steps.Destroy(G).perform(stage.pve)
    await asyncio.sleep(310)  # for five minutes the cluster repeats the last state of the host
    await seen.refresh()
    assert seen.health.reachable  # the region answers through the other host
    assert not seen.hosts["pve1"].online
    assert seen.hosts["pve2"].online
    assert seen.guests[100].status == "unknown"  # neither stopped nor destroyed
    stage.mischief("host-up", node="pve1")
    await asyncio.sleep(30)
    await seen.refresh()
    assert seen.guests[100].status == "stopped"


@fault("maintenance-on", "maintenance-off")
async def test_maintenance_is_visible_in_the_manager_status(stage: SimStage) -> None:
    seen = Inventory(stage.pve, stage.clock)
    stage.mischief("maintenance-on", node="pve2")
    await seen.refresh()
    assert seen.hosts["pve2"].online
    assert (await stage.pve.ha.manager()).in_maintenance == {"pve2"}
    stage.mischief("maintenance-off", node="pve2")
    assert (await stage.pve.ha.manager()).in_maintenance == frozenset()


@fault("lock")
async def test_a_locked_guest_is_busy_until_it_is_unlocked(stage: SimStage) -> None:
    stage.mischief("lock", vmid=100, lock="backup")
    for step in (
        steps.Configure(G, changes={"cores": "2"}),
        steps.Start(G),
        steps.Destroy(G),
        steps.ResizeDisk(G, slot="scsi0", size_gib=9),
    ):
        with pytest.raises(errors.Locked, match="backup"):
            await step.perform(stage.pve)
    stage.mischief("lock", vmid=100, lock="")
    await steps.Configure(G, changes={"cores": "2"}).perform(stage.pve)


@fault("hold-file")
async def test_a_held_lock_file_is_busy(stage: SimStage) -> None:
    stage.mischief("hold-file", vmid=100, seconds=60)
    await asyncio.sleep(1)
    with pytest.raises(errors.Locked, match="can't lock file"):
        await steps.Configure(G, changes={"cores": "2"}).perform(stage.pve)
    await asyncio.sleep(60)
    await steps.Configure(G, changes={"cores": "2"}).perform(stage.pve)


@fault("fill-storage", "free-storage")
async def test_a_full_storage_is_busy_until_space_is_freed(stage: SimStage) -> None:
    full = steps.Clone(
        NEW, template=9000, template_host="pve1", name="new", full=True, storage="shared"
    )
    stage.mischief("fill-storage", storage="shared")
    exit_text = await stage.done(await full.perform(stage.pve))
    error = errors.classify_exit(exit_text)
    assert isinstance(error, Retryable), exit_text
    assert 300 not in stage.region.guests
    stage.mischief("free-storage", storage="shared")
    assert await stage.done(await full.perform(stage.pve)) == "OK"


@fault("take-vmid")
async def test_a_vmid_of_another_owner_is_refused_and_its_guest_kept(stage: SimStage) -> None:
    stage.mischief("take-vmid", vmid=300)
    with pytest.raises(Foreign, match="has no owner mark"):
        await CLONE.perform(stage.pve)
    with pytest.raises(Foreign):
        await steps.Destroy(NEW).perform(stage.pve)
    assert stage.conf(300)["name"] == "stranger"


@fault("delete-guest")
async def test_a_guest_deleted_by_others_is_noticed_and_destroy_succeeds(
    stage: SimStage,
) -> None:
    seen = Inventory(stage.pve, stage.clock)
    await seen.refresh()
    changes: list[object] = []
    seen.subscribe(changes.append)
    stage.mischief("delete-guest", vmid=100)
    await seen.refresh()
    assert [c.after for c in changes if isinstance(c, InventoryChange)] == [None]
    assert await seen.is_gone(100)
    assert await steps.Destroy(G).perform(stage.pve) is None
    with pytest.raises(errors.GuestMissing):
        await steps.Configure(G, changes={"cores": "2"}).perform(stage.pve)


@fault("move-guest")
async def test_a_guest_migrated_by_others_is_found_on_its_new_host(
    stage: SimStage,
) -> None:
    seen = Inventory(stage.pve, stage.clock)
    await seen.refresh()
    stage.mischief("move-guest", vmid=100, node="pve2")
    with pytest.raises(Missing):
        await steps.Start(G).perform(stage.pve)
    await seen.refresh()
    assert seen.guests[100].host == "pve2"
    assert not await seen.is_gone(100)


@fault("stop-guest")
async def test_a_guest_that_stopped_by_itself_is_noticed(stage: SimStage) -> None:
    assert await stage.done(await steps.Start(G).perform(stage.pve)) == "OK"
    stage.mischief("stop-guest", vmid=100)
    assert (
        await steps.Stop(G).perform(stage.pve) is None
    )  # read from its host, not from the stale list
    seen = Inventory(stage.pve, stage.clock)
    await asyncio.sleep(15)
    await seen.refresh()
    assert not seen.guests[100].running


@fault("qemu-status")
async def test_a_broken_guest_is_listed_with_its_state(stage: SimStage) -> None:
    assert await stage.done(await steps.Start(G).perform(stage.pve)) == "OK"
    stage.mischief("qemu-status", vmid=100, status="internal-error")
    seen = Inventory(stage.pve, stage.clock)
    await asyncio.sleep(15)
    await seen.refresh()
    assert seen.guests[100].status == "internal-error"
    assert seen.guests[100].has_process


@fault("load")
async def test_the_load_of_a_guest_is_listed(stage: SimStage) -> None:
    assert await stage.done(await steps.Start(G).perform(stage.pve)) == "OK"
    stage.mischief("load", vmid=100, cpu=0.5, memory=0.25)
    seen = Inventory(stage.pve, stage.clock)
    await asyncio.sleep(15)
    await seen.refresh()
    assert 0.4 <= seen.guests[100].cpu_load <= 0.6


@fault("silence-agent", "wake-agent")
async def test_a_silent_agent_is_unreachable(stage: SimStage) -> None:
    assert await stage.done(await steps.Start(G).perform(stage.pve)) == "OK"
    stage.mischief("silence-agent", vmid=100)
    with pytest.raises(errors.AgentNotRunning) as caught:
        await stage.pve.agent.interfaces("pve1", 100)
    assert isinstance(caught.value, Unreachable)
    stage.mischief("wake-agent", vmid=100)


@fault("stale")
async def test_a_stale_list_is_corrected_by_facts(stage: SimStage) -> None:
    region = over(stage)
    runner = asyncio.create_task(region.run())
    await region.inventory.wait_synced()
    stage.mischief("stale", seconds=300)
    await region.perform(steps.Start(G), "me")
    await asyncio.sleep(4)
    listed = {row.vmid: row.status for row in await stage.pve.cluster.resources("vm")}
    assert listed[100] == "stopped"
    assert region.inventory.guests[100].running
    runner.cancel()


@fault("pace")
async def test_a_guest_is_busy_during_a_slow_clone(stage: SimStage) -> None:
    stage.mischief("pace", bandwidth=20e6)
    full = steps.Clone(
        NEW, template=9000, template_host="pve1", name="new", full=True, storage="shared"
    )
    upid = await full.perform(stage.pve)
    await asyncio.sleep(2)
    with pytest.raises((errors.Locked, Conflict)):
        await full.perform(stage.pve)
    assert await stage.done(upid) == "OK"
    assert await full.perform(stage.pve) is None


def over(stage: SimStage) -> Region:
    """A region over the transport of the stage."""
    auth = TokenAuth("moxwell@pve!test", SecretValue("x"))
    config = RegionConfig(region="r1", urls=("https://x",), auth=auth)
    return Region(config, stage.transport, stage.clock)
