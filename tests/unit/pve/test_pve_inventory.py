"""Inventory of a region: views, corrections, events, polling interval."""

import asyncio
from typing import Any

import pytest

from moxwell.errors import Unreachable
from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.inventory import Inventory
from moxwell.pve.model import (
    InventoryChange,
    InventoryEvent,
    InventoryHealth,
    ObservedGuest,
    ObservedHost,
)
from moxwell.pve.ownership import Mark
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport

MARK = Mark("6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d")


def guest(vmid: int, **more: Any) -> dict[str, Any]:
    row = {"id": f"qemu/{vmid}", "type": "qemu", "vmid": vmid, "node": "pve1",
           "name": f"g{vmid}", "status": "running", "maxcpu": 2, "maxmem": 1 << 30,
           "cpu": 0.1, "uptime": 5}  # fmt: skip
    return {**row, **more}


HOST = {"id": "node/pve1", "type": "node", "node": "pve1", "status": "online", "maxcpu": 8,
        "maxmem": 1 << 36, "mem": 5}  # fmt: skip
STORE = {"id": "storage/pve1/local", "type": "storage", "node": "pve1", "storage": "local",
         "status": "available", "content": "iso,images", "plugintype": "dir",
         "maxdisk": 100, "disk": 40, "shared": 0}  # fmt: skip


class World:
    """A region whose resource list the test sets."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows: list[dict[str, Any]] = list(rows)
        self.configs: dict[int, Any] = {}
        self.down = False
        self.transport = ScriptedTransport(self.answer)
        self.inventory = Inventory(PveWriter(self.transport), LoopClock())
        self.events: list[InventoryEvent] = []
        self.inventory.subscribe(self.events.append)

    def answer(self, method: str, path: str, params: dict[str, Any]) -> Any:
        if self.down:
            return errors.RegionUnreachable("down")
        if path == "/cluster/resources":
            return self.rows
        if path == "/cluster/nextid":
            if params["vmid"] in {row.get("vmid") for row in self.rows}:
                return errors.Exists("VM already exists", status=400)
            return str(params["vmid"])
        return self.configs[int(path.split("/")[4])]

    @property
    def changes(self) -> list[tuple[object, object]]:
        return [(e.before, e.after) for e in self.events if isinstance(e, InventoryChange)]

    async def refreshed(self) -> Inventory:
        await self.inventory.refresh()
        return self.inventory


async def test_a_view_is_indexed() -> None:
    world = World(
        HOST, STORE, guest(100, tags=MARK.tags(["web"]), template=1), guest(101, node="pve2"),
        {"id": "/pool/p1", "type": "pool", "pool": "p1"},
        {"id": "lxc/102", "type": "lxc", "vmid": 102, "node": "pve1", "name": "g101"},
    )  # fmt: skip
    seen = await world.refreshed()
    assert seen.synced
    assert seen.hosts["pve1"].online
    assert seen.storage("pve1", "local") is seen.storages["pve1", "local"]
    assert seen.storages["pve1", "local"].free_bytes == 60
    assert [g.vmid for g in seen.find_by_owner(MARK.key)] == [100]
    assert [g.vmid for g in seen.find_by_name("g101")] == [101, 102]
    assert [g.vmid for g in seen.on_host("pve2")] == [101]
    assert [g.vmid for g in seen.view.templates] == [100]
    assert seen.view.pools == {"p1"}
    assert seen.guests[102].kind == "lxc"
    assert seen.guests[102].status == "unknown"
    assert seen.find(999) is None


async def test_changes_cause_events_and_usage_does_not() -> None:
    world = World(HOST, guest(100))
    await world.refreshed()
    world.events.clear()
    world.rows = [{**HOST, "mem": 99}, guest(100, uptime=999, cpu=0.9)]
    await world.refreshed()
    assert world.events == []
    world.rows = [{**HOST, "status": "offline"}, guest(100, status="stopped"), guest(101)]
    await world.refreshed()
    kinds = [(type(a).__name__, bool(b)) for b, a in world.changes]
    assert kinds == [("ObservedHost", True), ("ObservedGuest", True), ("ObservedGuest", False)]
    world.rows = [HOST]
    world.events.clear()
    await world.refreshed()
    host, *gone = world.changes
    assert isinstance(host[1], ObservedHost)
    assert [after for _, after in gone] == [None, None]
    assert set(world.inventory.freed) == {100, 101}


async def test_a_listener_can_unsubscribe() -> None:
    world = World(guest(100))
    heard: list[InventoryEvent] = []
    world.inventory.subscribe(heard.append)()
    await world.refreshed()
    assert heard == []
    assert world.events


def test_a_fact_overrides_the_list_until_the_list_is_newer() -> None:
    async def story() -> None:
        world = World(guest(100, status="stopped"))
        seen = await world.refreshed()
        seen.learn(100, status="running")
        assert seen.guests[100].running
        for _ in range(3):  # the list still shows stopped
            await asyncio.sleep(3)
            await seen.refresh()
            assert seen.guests[100].running
        await asyncio.sleep(4)
        await seen.refresh()  # now the list must be right
        assert not seen.guests[100].running

    run_virtual(story())


def test_a_confirmed_fact_is_dropped() -> None:
    async def story() -> None:
        world = World(guest(100, status="stopped"))
        seen = await world.refreshed()
        seen.learn(100, status="running")
        world.rows = [guest(100)]
        await seen.refresh()
        world.rows = [guest(100, status="stopped")]
        await seen.refresh()
        assert not seen.guests[100].running

    run_virtual(story())


def test_created_and_destroyed_guests_are_visible_at_once() -> None:
    async def story() -> None:
        world = World(guest(100))
        seen = await world.refreshed()
        world.events.clear()
        seen.learn(200, host="pve1", name="new", status="stopped")
        seen.learn(200, tags=("moxwell",))
        seen.learn_destroyed(100)
        assert set(seen.guests) == {200}
        assert seen.guests[200].tags == ("moxwell",)
        assert [after for _, after in world.changes][-1] is None
        await seen.refresh()
        assert set(seen.guests) == {200}
        assert 100 in seen.freed

    run_virtual(story())


def test_a_fact_without_a_host_creates_no_guest() -> None:
    async def story() -> None:
        seen = await World().refreshed()
        seen.learn(300, status="running")
        assert seen.find(300) is None

    run_virtual(story())


async def test_an_unreachable_region_keeps_its_last_view_and_reports_it() -> None:
    world = World(guest(100))
    seen = await world.refreshed()
    assert seen.health.reachable
    world.down = True
    await seen.refresh()
    await seen.refresh()
    assert not seen.health.reachable
    assert "down" in seen.health.error
    assert set(seen.guests) == {100}
    world.down = False
    await seen.refresh()
    reported = [e.reachable for e in world.events if isinstance(e, InventoryHealth)]
    assert reported == [True, False, True]


async def test_is_gone_is_false_for_invisible_guests() -> None:
    world = World(guest(100))
    seen = await world.refreshed()
    assert not await seen.is_gone(100)
    assert await seen.is_gone(101)


def test_a_recent_answer_about_an_unused_vmid_is_used_until_a_guest_is_listed() -> None:
    async def story() -> None:
        world = World(HOST)
        inventory = world.inventory
        await inventory.refresh()
        for _ in range(3):
            assert await inventory.is_gone(101, recent=True)
        assert _asked(world) == 1
        assert await inventory.is_gone(101)
        assert _asked(world) == 2
        world.rows.append(guest(101))
        await inventory.refresh()
        assert not await inventory.is_gone(101, recent=True)
        world.rows.pop()
        await inventory.refresh()
        assert await inventory.is_gone(101, recent=True)
        asked = _asked(world)
        await asyncio.sleep(61)
        await inventory.refresh()
        assert await inventory.is_gone(101, recent=True)
        assert _asked(world) == asked + 1

    run_virtual(story())


def _asked(world: World) -> int:
    return sum(path == "/cluster/nextid" for _, path, _ in world.transport.sent)


# ------------------------------------------------------------------ polling interval


def polls(world: World, seconds: float, *, busy_at: float | None = None) -> int:
    async def play() -> None:
        runner = asyncio.create_task(world.inventory.run())
        await world.inventory.wait_synced()
        if busy_at is not None:
            await asyncio.sleep(busy_at)
            world.inventory.poll_frequently()
        await asyncio.sleep(seconds - (busy_at or 0))
        runner.cancel()

    run_virtual(play())
    return len(world.transport.sent)


@pytest.mark.parametrize("guests", [10, 1000, 10_000])
def test_the_idle_load_does_not_depend_on_the_number_of_guests(guests: int) -> None:
    world = World(HOST, *(guest(100 + n) for n in range(guests)))
    assert polls(world, 119) == 4  # two a minute
    assert {path for _, path, _ in world.transport.sent} == {"/cluster/resources"}


def test_work_shortens_the_polling_interval() -> None:
    world = World(HOST)
    assert polls(world, 60, busy_at=5) == pytest.approx(1 + 30 / 3 + 1, abs=2)


# ------------------------------------------------------------------ by UUID


def config(uuid: str) -> dict[str, Any]:
    return {"smbios1": f"uuid={uuid}"}


async def test_a_search_by_uuid_reads_each_configuration_once() -> None:
    world = World(*(guest(100 + n) for n in range(20)))
    world.configs = {100 + n: config(f"UUID-{n}") for n in range(20)}
    seen = await world.refreshed()
    world.transport.sent.clear()
    assert _vmid(await seen.find_by_uuid("uuid-19")) == 119
    assert _vmid(await seen.find_by_uuid("UUID-3")) == 103
    assert await seen.find_by_uuid("uuid-99") is None
    assert len(world.transport.sent) == 20
    assert seen.uuids.of(103) == "uuid-3"


async def test_a_reused_vmid_is_read_again() -> None:
    world = World(guest(100))
    world.configs = {100: config("old")}
    seen = await world.refreshed()
    assert _vmid(await seen.find_by_uuid("old")) == 100
    world.rows = []
    await seen.refresh()
    world.rows, world.configs = [guest(100)], {100: config("new")}
    await seen.refresh()
    assert await seen.find_by_uuid("old") is None
    assert _vmid(await seen.find_by_uuid("new")) == 100


async def test_a_search_by_uuid_fails_if_a_guest_is_unreadable() -> None:
    world = World(guest(100), guest(101))
    world.configs = {100: errors.PermissionDenied("no", status=403), 101: config("b")}
    seen = await world.refreshed()
    assert _vmid(await seen.find_by_uuid("b")) == 101
    with pytest.raises(Unreachable, match="1 could not be read"):
        await seen.find_by_uuid("a")


def _vmid(found: ObservedGuest | None) -> int | None:
    return found.vmid if found else None
