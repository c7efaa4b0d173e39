"""Several regions without a default; rotated credentials; steps through a region; preflight."""

import asyncio
from typing import Any

import pytest

from moxwell.errors import Bug, Missing
from moxwell.pve import errors, preflight
from moxwell.pve.client import PveWriter
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.model import InventoryEvent
from moxwell.pve.ownership import Mark
from moxwell.pve.preflight import PreflightReport
from moxwell.pve.regions import Region, Regions, UnknownRegion
from moxwell.pve.steps import Destroy, GuestRef, Start
from moxwell.pve.tasks import TaskEnded
from moxwell.pve.values import SecretValue
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_proxmox import closed_url
from moxwell.testing.scripted_transport import ScriptedTransport

URL = closed_url()
MARK = Mark("6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d")
UPID = "UPID:pve1:00000001:00000001:6AFA23F8:qmstart:100:u@pve:"


def config(name: str, secret: str = "s", **more: Any) -> RegionConfig:
    auth = TokenAuth("u@pve!t", SecretValue(secret))
    return RegionConfig(region=name, urls=(URL,), auth=auth, **more)


class Transports:
    """Makes a scripted transport per region and remembers them."""

    def __init__(self) -> None:
        self.made: list[ScriptedTransport] = []
        self.exit_text = "OK"

    def __call__(self, config: RegionConfig) -> ScriptedTransport:
        transport = ScriptedTransport(self.answer, region=config.region)
        self.made.append(transport)
        return transport

    def answer(self, method: str, path: str, params: dict[str, Any]) -> Any:
        if path == "/cluster/resources":
            return [{"id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1",
                     "name": "g", "status": "stopped", "tags": MARK.tags()}]  # fmt: skip
        if path.endswith("/status/current"):
            return {"status": "stopped", "vmid": 100, "tags": MARK.tags()}
        if path == "/cluster/tasks":
            return [{"upid": UPID, "endtime": 1, "status": self.exit_text}]
        return UPID


async def test_a_region_is_found_by_name_and_there_is_no_default() -> None:
    regions = Regions([config("a"), config("b")], LoopClock(), connect=Transports())
    assert (list(regions), len(regions), "a" in regions) == (["a", "b"], 2, True)
    assert regions["a"].reader.region == "a"
    assert regions.find("c") is None
    for name in ("", "c", "default"):
        with pytest.raises(UnknownRegion, match="known: a, b") as caught:
            regions[name]
        assert isinstance(caught.value, Missing)


async def test_a_region_is_reached_over_http_unless_a_transport_is_given() -> None:
    regions = Regions([config("a", zones={"z": ("pve1",)})], LoopClock())
    assert regions["a"].zone_of("pve1") == "z"
    with pytest.raises(errors.RegionUnreachable, match="no URL answers"):
        await regions["a"].reader.version()
    await regions.close()


def test_the_task_of_a_step_is_followed_and_updates_the_inventory() -> None:
    async def story() -> None:
        transports, ended = Transports(), list[TaskEnded]()
        regions = Regions([config("a")], LoopClock(), connect=transports)
        regions.subscribe_tasks(ended.append)
        runner = asyncio.create_task(regions.run())
        region = regions["a"]
        await region.inventory.wait_synced()
        step = Start(GuestRef("a", "pve1", 100, MARK))
        assert await region.perform(step, "owner") == UPID
        assert not region.inventory.guests[100].running  # the task still runs
        await asyncio.sleep(2)
        assert [(event.owner, event.ok) for event in ended] == [("owner", True)]
        assert region.inventory.guests[100].running  # although the list shows stopped
        with pytest.raises(Bug):
            await region.perform(Start(GuestRef("b", "pve1", 100, MARK)), "owner")
        runner.cancel()

    run_virtual(story())


def test_a_failed_task_does_not_update_the_inventory() -> None:
    async def story() -> None:
        transports = Transports()
        transports.exit_text = "VM is locked (backup)"
        regions = Regions([config("a")], LoopClock(), connect=transports)
        runner = asyncio.create_task(regions.run())
        region = regions["a"]
        await region.inventory.wait_synced()
        await region.perform(Start(GuestRef("a", "pve1", 100, MARK)), "owner")
        await asyncio.sleep(3)
        assert not region.inventory.guests[100].running
        runner.cancel()

    run_virtual(story())


def test_a_step_without_effect_does_not_mark_a_guest_as_destroyed() -> None:
    async def story() -> None:
        transports = Transports()
        answer = transports.answer

        def moved(method: str, path: str, params: dict[str, Any]) -> Any:
            if path.endswith("/config"):
                return errors.GuestMissing("Configuration file 'x' does not exist", status=500)
            return answer(method, path, params)

        transports.answer = moved  # type: ignore[method-assign]
        region = Regions([config("a")], LoopClock(), connect=transports)["a"]
        await region.inventory.refresh()
        assert await region.perform(Destroy(GuestRef("a", "pve1", 100, MARK)), "owner") is None
        assert region.inventory.find(100) is not None

    run_virtual(story())


def test_a_reload_keeps_the_inventory_and_uses_the_new_credentials() -> None:
    async def story() -> None:
        transports, events = Transports(), list[InventoryEvent]()
        regions = Regions([config("a"), config("b")], LoopClock(), connect=transports)
        regions.subscribe(events.append)
        runner = asyncio.create_task(regions.run())
        kept = regions["a"]
        await kept.inventory.wait_synced()
        assert regions.reload([config("a"), config("b")]) == ()
        touched = regions.reload([config("a", secret="new"), config("c")])
        assert touched == ("a", "b", "c")
        assert regions["a"] is kept
        assert kept.inventory.guests
        await regions["c"].inventory.wait_synced()
        await kept.inventory.refresh()
        first, second, new_a, _ = transports.made
        assert new_a.sent
        assert (first.closed, second.closed, new_a.closed) == (True, True, False)
        assert {event.region for event in events} >= {"a", "c"}
        runner.cancel()
        await asyncio.wait([runner])
        assert all(transport.closed for transport in transports.made)

    run_virtual(story())


def test_a_rotation_waits_for_running_requests() -> None:
    async def story() -> None:
        gate = asyncio.Event()

        async def slowly() -> Any:
            await gate.wait()
            return {"version": "8.4.1"}

        old = ScriptedTransport(lambda *_: slowly(), region="a")
        new = ScriptedTransport(lambda *_: {"version": "9.0.1"}, region="a")
        region = Region(config("a"), old, LoopClock())
        asked = asyncio.create_task(region.reader.version())
        await asyncio.sleep(0)
        region.reconnect(config("a", secret="n"), new)
        assert (await region.reader.version()).major == 9
        assert not old.closed
        gate.set()
        assert (await asked).major == 8
        assert old.closed

    run_virtual(story())


# ------------------------------------------------------------------ preflight


HA: tuple[preflight.Feature, ...] = ("ha",)


def test_a_role_per_release() -> None:
    assert "VM.Monitor" in preflight.role(8)
    assert "VM.Monitor" not in preflight.role(9)
    assert "VM.GuestAgent.FileRead" in preflight.role(9)
    assert "VM.GuestAgent.Unrestricted" not in preflight.role(9)
    assert "Sys.Console" not in preflight.role(9)
    assert "Sys.Console" in preflight.role(9, HA)
    first, *rest = preflight.commands(9, "u@pve", HA)
    assert first == "pveum role add Moxwell --privs 'Sys.Audit Sys.Console'"
    assert rest == ["pveum acl modify / --users u@pve --roles Moxwell"]


@pytest.mark.parametrize(
    ("path", "held"),
    [
        ("/vms", {"A", "B"}),
        ("/vms/100", {"A"}),
        ("/storage/x", {"C"}),
        ("/", {"C", "D"}),
    ],
)
def test_privileges_propagate_to_subpaths(path: str, held: set[str]) -> None:
    permissions = {"/": {"C": 1, "D": 0}, "/vms": {"A": 1, "B": 0}}
    assert preflight.held(permissions, path) == held


def test_without_grants_all_privileges_are_missing() -> None:
    assert preflight.held({}, "/vms") == frozenset()


async def test_the_preflight_names_what_is_missing_and_for_what() -> None:
    granted: dict[str, dict[str, int]] = {
        path: {n.privilege: 1 for n in preflight.needs(8) if n.path == path}
        for path in {n.path for n in preflight.needs(8)}
    }

    def answer(method: str, path: str, params: dict[str, Any]) -> Any:
        return {"version": "8.4.21"} if path == "/version" else granted

    pve = PveWriter(ScriptedTransport(answer))
    report = await preflight.check(pve)
    assert report.ok
    assert "all privileges are granted" in str(report)
    del granted["/storage"]["Datastore.Allocate"]
    report = await preflight.check(pve)
    assert isinstance(report, PreflightReport)
    assert "Datastore.Allocate on /storage: to delete bootstrap ISOs" in str(report)


def test_an_error_text_names_the_place() -> None:
    assert "r1" in str(errors.RegionUnreachable("x", where="region r1"))
