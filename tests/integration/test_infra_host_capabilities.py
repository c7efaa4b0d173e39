"""Hardware that a host lacks is found out when a machine is placed, not when it starts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.pve import errors
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Region
from moxwell.pve.values import SecretValue
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import Estate, message, ready, reason, running


def story(tell: Callable[[Estate], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            await tell(estate)

    run_virtual(main())


LACKING = [
    pytest.param(
        {"network": {"networkDevices": [{"name": "net0", "bridge": "vmbr7"}]}},
        "host pve3 has no bridge vmbr7 that the token may use",
        id="a bridge that no host has",
    ),
    pytest.param(
        {"disks": {"extra": [{"disk": "scsi1", "sizeGb": 1, "storage": "lvm", "format": "qcow2"}]}},
        "storage lvm (lvmthin) does not support qcow2 images",
        id="a format that the storage cannot hold",
    ),
    pytest.param(
        {"isoStorage": "nowhere"}, "storage nowhere for ISO images does not exist there", id="iso"
    ),
]


@pytest.mark.parametrize("spec, says", LACKING)
def test_what_hosts_lack_is_told_before_anything_is_made(spec: dict[str, Any], says: str) -> None:
    async def tell(estate: Estate) -> None:
        await apply_cluster(estate)
        await apply_machine(estate, "m", templateID=9000, **spec)
        machine = await estate.until("m", lambda m: reason(m) == "InsufficientResources")
        assert says in message(machine)
        assert [p for m, p in estate.sent() if m != "GET"] == []

    story(tell)


def test_a_bridge_that_one_host_has_decides_where_it_goes() -> None:
    async def tell(estate: Estate) -> None:
        bridges = estate.region("north").hosts["pve2"].bridges
        bridges["vmbr7"] = dict(bridges["vmbr0"])
        await apply_cluster(estate)
        cards = {"networkDevices": [{"name": "net0", "bridge": "vmbr7"}]}
        for name in ("m0", "m1"):
            await apply_machine(estate, name, templateID=9000, network=cards)
        found = [await estate.until(name, ready) for name in ("m0", "m1")]
        assert {m.status.proxmox_node for m in found} == {"pve2"}
        assert sum(p.endswith("/network") for _, p in estate.sent()) == 3

    story(tell)


PCI = [
    {"id": "gpu", "map": ["node=pve1,path=0000:01:00,id=10de:1", "node=pve2,path=0000:02:00"]},
    {"id": "fpga", "map": ["node=pve2,path=0000:03:00"]},
]


def fitted(answer: Any) -> tuple[Region, ScriptedTransport, HostCapabilityCache]:
    wire = ScriptedTransport(answer)
    auth = TokenAuth("u@pve!t", SecretValue("s"))
    config = RegionConfig(region="r1", urls=("https://x",), auth=auth)
    clock = LoopClock()
    return Region(config, wire, clock), wire, HostCapabilityCache(clock)


def test_pci_mappings_are_read_once_for_all_hosts() -> None:
    async def main() -> None:
        region, wire, fittings = fitted(lambda *_: PCI)
        found = await fittings.mappings(region)
        assert found == {"pve1": frozenset({"gpu"}), "pve2": frozenset({"gpu", "fpga"})}
        await fittings.mappings(region)
        assert [path for _, path, _ in wire.sent] == ["/cluster/mapping/pci"]

    run_virtual(main())


def test_what_cannot_be_read_is_not_known_and_asked_again_later() -> None:
    async def main() -> None:
        region, wire, fittings = fitted(lambda *_: errors.UnknownPveError("no"))
        assert await fittings.mappings(region) is None
        assert await fittings.bridges(region, ["pve1"]) == {"pve1": None}
        assert await fittings.bridges(region, ["pve1"]) == {"pve1": None}
        assert len(wire.sent) == 2
        await asyncio.sleep(61)
        await fittings.bridges(region, ["pve1"])
        assert len(wire.sent) == 3

    run_virtual(main())


def test_machines_placed_at_once_wait_for_one_reading() -> None:
    async def main() -> None:
        async def slowly() -> Any:
            await asyncio.sleep(1)
            return [{"iface": "vmbr0", "type": "bridge"}]

        region, wire, fittings = fitted(lambda *_: slowly())
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(fittings.bridges(region, ["a", "b"])) for _ in range(50)]
        has = frozenset({"vmbr0"})
        assert all(task.result() == {"a": has, "b": has} for task in asked)
        assert len(wire.sent) == 2

    run_virtual(main())


NOTES: list[Any] = [
    pytest.param({"manager_status": {"node_status": {"a": "maintenance", "b": "online"}}}, {"a"}),
    pytest.param({"manager_status": {"node_request": {"b": {"maintenance": 1}}}}, {"b"}),
    pytest.param({"manager_status": {}, "lrm_status": {"c": {"mode": "maintenance"}}}, {"c"}),
    pytest.param({"manager_status": {}, "lrm_status": {"c": {}}}, set()),
    pytest.param({}, set()),
]


@pytest.mark.parametrize(
    "notes, hosts", NOTES, ids=["it is so", "it was asked for", "its agent says so", "no", "empty"]
)
def test_maintenance_is_read_from_the_managers_notes(notes: Any, hosts: set[str]) -> None:
    async def main() -> None:
        region, wire, fittings = fitted(lambda *_: notes)
        assert await fittings.in_maintenance(region) == hosts
        assert await fittings.in_maintenance(region) == hosts
        assert len(wire.sent) == 1
        await asyncio.sleep(11)
        await fittings.in_maintenance(region)
        assert len(wire.sent) == 2

    run_virtual(main())


def test_who_may_not_know_of_maintenance_asks_seldom() -> None:
    async def main() -> None:
        region, wire, fittings = fitted(lambda *_: errors.PermissionDenied("Sys.Audit"))
        assert await fittings.in_maintenance(region) == frozenset()
        await asyncio.sleep(30)
        await fittings.in_maintenance(region)
        assert len(wire.sent) == 1

    run_virtual(main())


def test_a_host_in_maintenance_gets_no_machine_and_is_explained() -> None:
    async def main() -> None:
        async with running("north") as (estate, life):
            for host in ("pve1", "pve2"):
                estate.mischief("north", "maintenance-on", node=host)
            await apply_cluster(estate)
            for name in ("m0", "m1"):
                await apply_machine(estate, name, templateID=9000)
            found = [await estate.until(name, ready) for name in ("m0", "m1")]
            assert {m.status.proxmox_node for m in found} == {"pve3"}
            rows = await life.infra.explainer.explain(Key("default", "m0"))
            said = {row.host: row.why_not for row in rows}
            assert said["pve1"] == ("host is in maintenance mode",)
            asked = sum(p.endswith("/manager_status") for _, p in estate.sent())
            await asyncio.sleep(1200)
            assert sum(p.endswith("/manager_status") for _, p in estate.sent()) == asked

    run_virtual(main())


def test_a_machine_waits_for_the_end_of_maintenance_and_many_ask_as_often_as_one() -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            for host in ("pve1", "pve2", "pve3"):
                estate.mischief("north", "maintenance-on", node=host)
            await apply_cluster(estate)
            for n in range(6):
                await apply_machine(estate, f"m{n}", templateID=9000)
            waiting = await estate.until("m5", lambda m: reason(m) == "InsufficientResources")
            assert "north/pve3: host is in maintenance mode" in message(waiting)
            before = sum(p.endswith("/manager_status") for _, p in estate.sent())
            await asyncio.sleep(600)
            asked = sum(p.endswith("/manager_status") for _, p in estate.sent()) - before
            assert asked <= 61
            estate.mischief("north", "maintenance-off", node="pve2")
            machine = await estate.until("m5", ready)
            assert machine.status.proxmox_node == "pve2"

    run_virtual(main())
