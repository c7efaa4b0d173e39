"""Missing host capabilities are detected by placement, before anything is created."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.network import NetworkDevice
from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.controllers.infra.machine.placement_reader import PlacementReader
from moxwell.controllers.infra.templates import TemplateCache
from moxwell.pve import errors
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Region
from moxwell.pve.reservations import Reservations
from moxwell.pve.values import SecretValue
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import TwoRegions, message, ready, reason, running


def story(tell: Callable[[TwoRegions], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            await tell(env)

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


@pytest.mark.parametrize("spec, text", LACKING)
def test_missing_capabilities_are_reported_before_anything_is_created(
    spec: dict[str, Any], text: str
) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, **spec)
        machine = await env.until("m", lambda m: reason(m) == "InsufficientResources")
        assert text in message(machine)
        assert [p for m, p in env.sent() if m != "GET"] == []

    story(tell)


def test_templates_of_node_classes_see_the_bridge_of_the_zone() -> None:
    async def main() -> None:
        async with running("north") as (env, made):
            bridges = env.region("north").hosts["pve1"].bridges
            bridges["vmbr7"] = {**bridges["vmbr0"], "address": "10.7.0.1", "cidr": "10.7.0.1/24"}
            machines = made.manager.caches.of(ProxmoxMachine)
            templates = TemplateCache(env.clock)
            reader = PlacementReader(made.regions, env.clock, templates, Reservations(), machines)
            devices = (NetworkDevice(name="net0"), NetworkDevice(name="net1", bridge="vmbr0"))
            nics = {"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}
            region = made.regions["north"]
            found = await reader.host_bridges(region, "pve1", devices, nics, "vmbr7")
            assert {name: b.address4 for name, b in found.items()} == {
                "net0": "10.7.0.1/24",
                "net1": "10.1.0.1/24",
            }
            found = await reader.host_bridges(region, "pve1", devices, nics, "")
            assert found["net0"].address4 == "10.1.0.1/24"

    run_virtual(main())


def test_a_bridge_on_one_host_decides_the_placement() -> None:
    async def tell(env: TwoRegions) -> None:
        bridges = env.region("north").hosts["pve2"].bridges
        bridges["vmbr7"] = dict(bridges["vmbr0"])
        not_applied = {k: v for k, v in bridges["vmbr0"].items() if k != "active"}
        env.region("north").hosts["pve3"].bridges["vmbr7"] = not_applied
        await apply_cluster(env)
        cards = {"networkDevices": [{"name": "net0", "bridge": "vmbr7"}]}
        for name in ("m0", "m1"):
            await apply_machine(env, name, templateID=9000, network=cards)
        found = [await env.until(name, ready) for name in ("m0", "m1")]
        assert {m.status.proxmox_node for m in found} == {"pve2"}
        assert sum(p.endswith("/network") for _, p in env.sent()) == 3

    story(tell)


PCI = [
    {"id": "gpu", "map": ["node=pve1,path=0000:01:00,id=10de:1", "node=pve2,path=0000:02:00"]},
    {"id": "fpga", "map": ["node=pve2,path=0000:03:00"]},
]


def cache_of(answer: Any) -> tuple[Region, ScriptedTransport, HostCapabilityCache]:
    wire = ScriptedTransport(answer)
    auth = TokenAuth("u@pve!t", SecretValue("s"))
    config = RegionConfig(region="r1", urls=("https://x",), auth=auth)
    clock = LoopClock()
    return Region(config, wire, clock), wire, HostCapabilityCache(clock)


def test_pci_mappings_are_read_once_for_all_hosts() -> None:
    async def main() -> None:
        region, wire, capabilities = cache_of(lambda *_: PCI)
        found = await capabilities.mappings(region)
        assert found == {"pve1": frozenset({"gpu"}), "pve2": frozenset({"gpu", "fpga"})}
        await capabilities.mappings(region)
        assert [path for _, path, _ in wire.sent] == ["/cluster/mapping/pci"]

    run_virtual(main())


def test_unreadable_capabilities_are_unknown_and_read_again_later() -> None:
    async def main() -> None:
        region, wire, capabilities = cache_of(lambda *_: errors.UnknownPveError("no"))
        assert await capabilities.mappings(region) is None
        assert await capabilities.bridges(region, ["pve1"]) == {"pve1": None}
        assert await capabilities.bridges(region, ["pve1"]) == {"pve1": None}
        assert len(wire.sent) == 2
        await asyncio.sleep(61)
        await capabilities.bridges(region, ["pve1"])
        assert len(wire.sent) == 3

    run_virtual(main())


def test_concurrent_placements_share_one_request() -> None:
    async def main() -> None:
        async def slowly() -> Any:
            await asyncio.sleep(1)
            return [{"iface": "vmbr0", "type": "bridge", "active": 1}]

        region, wire, capabilities = cache_of(lambda *_: slowly())
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(capabilities.bridges(region, ["a", "b"])) for _ in range(50)]
        has = frozenset({"vmbr0"})
        assert all(task.result() == {"a": has, "b": has} for task in asked)
        assert len(wire.sent) == 2

    run_virtual(main())


MANAGER_STATUS: list[Any] = [
    pytest.param({"manager_status": {"node_status": {"a": "maintenance", "b": "online"}}}, {"a"}),
    pytest.param({"manager_status": {"node_request": {"b": {"maintenance": 1}}}}, {"b"}),
    pytest.param({"manager_status": {}, "lrm_status": {"c": {"mode": "maintenance"}}}, {"c"}),
    pytest.param({"manager_status": {}, "lrm_status": {"c": {}}}, set()),
    pytest.param({}, set()),
]


@pytest.mark.parametrize(
    "status, hosts",
    MANAGER_STATUS,
    ids=["it is so", "it was asked for", "its agent text so", "no", "empty"],
)
def test_maintenance_is_read_from_the_ha_manager_status(status: Any, hosts: set[str]) -> None:
    async def main() -> None:
        region, wire, capabilities = cache_of(lambda *_: status)
        assert await capabilities.in_maintenance(region) == hosts
        assert await capabilities.in_maintenance(region) == hosts
        assert len(wire.sent) == 1
        await asyncio.sleep(11)
        await capabilities.in_maintenance(region)
        assert len(wire.sent) == 2

    run_virtual(main())


def test_a_token_without_permission_asks_for_maintenance_seldom() -> None:
    async def main() -> None:
        region, wire, capabilities = cache_of(lambda *_: errors.PermissionDenied("Sys.Audit"))
        assert await capabilities.in_maintenance(region) == frozenset()
        await asyncio.sleep(30)
        await capabilities.in_maintenance(region)
        assert len(wire.sent) == 1

    run_virtual(main())


def test_a_host_in_maintenance_gets_no_machine_and_is_explained() -> None:
    async def main() -> None:
        async with running("north") as (env, life):
            for host in ("pve1", "pve2"):
                env.chaos("north", "maintenance-on", node=host)
            await apply_cluster(env)
            for name in ("m0", "m1"):
                await apply_machine(env, name, templateID=9000)
            found = [await env.until(name, ready) for name in ("m0", "m1")]
            assert {m.status.proxmox_node for m in found} == {"pve3"}
            rows = await life.infra.explainer.explain(Key("default", "m0"))
            verdicts = {row.host: row.why_not for row in rows}
            assert verdicts["pve1"] == ("host is in maintenance mode",)
            asked = sum(p.endswith("/manager_status") for _, p in env.sent())
            await asyncio.sleep(1200)
            assert sum(p.endswith("/manager_status") for _, p in env.sent()) == asked

    run_virtual(main())


def test_machines_wait_for_the_end_of_maintenance_with_shared_requests() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            for host in ("pve1", "pve2", "pve3"):
                env.chaos("north", "maintenance-on", node=host)
            await apply_cluster(env)
            for n in range(6):
                await apply_machine(env, f"m{n}", templateID=9000)
            waiting = await env.until("m5", lambda m: reason(m) == "InsufficientResources")
            assert "north/pve3: host is in maintenance mode" in message(waiting)
            before = sum(p.endswith("/manager_status") for _, p in env.sent())
            await asyncio.sleep(600)
            asked = sum(p.endswith("/manager_status") for _, p in env.sent()) - before
            assert asked <= 61
            env.chaos("north", "maintenance-off", node="pve2")
            machine = await env.until("m5", ready)
            assert machine.status.proxmox_node == "pve2"

    run_virtual(main())
