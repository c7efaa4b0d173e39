"""infra.machine with embedded API server, runtime and simulator: create, run, change, delete."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.controllers.infra.machine.see import NAMESPACES
from moxwell.pve import preflight
from moxwell.scheduling.guest_hardware import hardware_hash
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import (
    WORLD,
    TwoRegions,
    applied,
    is_true,
    message,
    ready,
    reason,
    running,
)

MACHINES: tuple[preflight.Feature, ...] = ("machines",)
DISK = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}


def story(tell: Callable[[TwoRegions], Awaitable[None]], *regions: str) -> None:
    async def main() -> None:
        async with running(*regions) as (env, _):
            await tell(env)

    run_virtual(main())


def only_guest(env: TwoRegions, region: str = "north") -> Any:
    (guest,) = env.guests(region).values()
    return guest


def test_from_apply_to_ready() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(
            env, "m", templateID=9000, numCores=4, memoryMiB=4096, disks=DISK, tags=["team-a"]
        )
        machine = await env.until("m", ready)
        guest = only_guest(env)
        assert machine.spec.provider_id == f"proxmox://north/{guest.vmid}"
        assert guest.conf["cores"] == 4
        assert guest.conf["memory"] == "4096"
        assert "size=20G" in guest.conf["scsi0"]
        assert guest.conf["smbios1"] == f"uuid={machine.uid}"
        assert "team-a" in guest.conf["tags"]
        assert guest.conf["ide2"] == "none,media=cdrom"
        assert env.isos("north") == []
        assert machine.status.initialization.provisioned
        assert [a.address for a in machine.status.addresses] == ["m", "10.0.0.10"]
        files = env.guest_os.config_drives[f"north/{guest.vmid}"]
        assert files["user-data"] == b"#cloud-config\n# join m\n"
        eth0 = yaml.safe_load(files["network-config"])["ethernets"]["eth0"]
        assert eth0["addresses"] == ["10.0.0.10/24"]
        assert eth0["match"]["macaddress"].upper() in guest.conf["net0"]

    story(tell, "north")


def test_delete_leaves_nothing_and_touches_no_foreign_object() -> None:
    async def tell(env: TwoRegions) -> None:
        before = sorted(env.volumes("north"))
        await apply_cluster(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        await env.delete("m")
        await env.until_gone("m")
        assert env.guests("north") == {}
        assert env.region("north").guests[201].running
        assert sorted(env.volumes("north")) == before
        assert (await env.kube.list(IPAddressClaim)).items == ()
        assert (await env.kube.list(IPAddress)).items == ()

    story(tell, "north")


@pytest.mark.parametrize(("spec", "seconds"), [({}, 4), ({"shutdownSeconds": 0}, 2)])
def test_twenty_machines_are_deleted_at_the_same_time(spec: dict[str, Any], seconds: int) -> None:
    """One takes a shutdown of 3 seconds, or a stop, and its destruction; twenty take 1 s more."""

    async def tell(env: TwoRegions) -> None:
        names = [f"m{number}" for number in range(20)]
        await apply_cluster(env)
        for name in names:
            await apply_machine(env, name, **spec)
        for name in names:
            await env.until(name, ready)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(env.delete(name) for name in names))
        await asyncio.gather(*(env.until_gone(name) for name in names))
        assert asyncio.get_running_loop().time() - began <= seconds + 1
        assert env.guests("north") == {}

    story(tell, "north")


def test_a_machine_deleted_during_creation_leaves_nothing() -> None:
    async def tell(env: TwoRegions) -> None:
        before = sorted(env.volumes("north"))
        await apply_cluster(env)
        for seconds in range(12):
            name = f"m{seconds}"
            await apply_machine(env, name)
            await asyncio.sleep(seconds)
            await env.delete(name)
            await env.until_gone(name)
            assert env.guests("north") == {}
            assert sorted(env.volumes("north")) == before

    story(tell, "north")


ZONES = [
    {"zone": "a", "region": "north", "nodes": ["pve1", "pve2"]},
    {
        "zone": "b",
        "region": "south",
        "ipv4Config": {"addresses": ["10.2.1.10-10.2.1.99"], "prefix": 24, "gateway": "10.2.1.1"},
        "dnsServers": ["9.9.9.9"],
    },
]


def test_one_cluster_in_two_regions_with_colliding_names() -> None:
    async def tell(env: TwoRegions) -> None:
        made = await apply_cluster(env, zoneConfig=ZONES, region=None)
        for n in range(4):
            await apply_machine(env, f"m{n}")
        found = [await env.until(f"m{n}", ready) for n in range(4)]
        assert sorted(m.spec.region or "" for m in found) == ["north"] * 2 + ["south"] * 2
        south = [m for m in found if m.spec.region == "south"]
        assert all(m.status.failure_domain == "b" for m in south)
        assert all(m.status.addresses[1].address.startswith("10.2.1.") for m in south)
        assert {m.spec.claim.host for m in found if m.spec.claim and m.spec.region == "north"} == {
            "pve1",
            "pve2",
        }
        assert made["metadata"]["name"] == "c"

    story(tell)


def test_the_failure_domain_is_respected() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, zoneConfig=ZONES, region=None)
        await apply_machine(env, "m", failure_domain="b")
        assert (await env.until("m", ready)).spec.region == "south"

    story(tell)


def test_losing_a_region_does_not_affect_the_other() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, zoneConfig=ZONES, region=None)
        await apply_machine(env, "lost", failure_domain="b")
        await env.until("lost", ready)
        env.fault("south", "cut-before")
        await apply_machine(env, "m")
        assert (await env.until("m", ready)).spec.region == "north"
        lost = await env.until("lost", lambda m: reason(m) == "RegionUnreachable")
        assert lost.status.initialization.provisioned
        assert not is_true(lost, "Ready")
        await env.delete("lost")
        await asyncio.sleep(300)
        assert (await env.machine("lost")).metadata.finalizers
        env.engine.faults["south"].remove()
        await env.until_gone("lost")
        assert env.guests("south") == {}

    story(tell)


@pytest.mark.parametrize(
    "what, args, expected",
    [
        pytest.param("stop-guest", {}, "Stopped", id="stopped by hand"),
        pytest.param("delete-guest", {}, "Vanished", id="vanished"),
    ],
)
def test_external_changes_of_a_running_guest_are_reported(
    what: str, args: dict[str, Any], expected: str
) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        env.chaos("north", what, vmid=machine.spec.virtual_machine_id, **args)
        seen = await env.until("m", lambda m: reason(m) == expected)
        assert seen.status.initialization.provisioned
        await asyncio.sleep(600)
        assert reason(await env.machine("m")) == expected

    story(tell, "north")


@pytest.mark.parametrize(
    ("status", "expected"),
    [("paused", "Paused"), ("internal-error", "GuestFailed"), ("prelaunch", "Starting")],
)
def test_a_guest_that_does_not_execute_is_reported_and_can_be_deleted(
    status: str, expected: str
) -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        env.chaos("north", "qemu-status", vmid=machine.spec.virtual_machine_id, status=status)
        seen = await env.until("m", lambda m: reason(m) == expected)
        assert seen.status.power_state == status
        await env.delete("m")
        await env.until_gone("m", 120)
        assert env.guests("north") == {}

    story(tell, "north")


def test_a_stopped_guest_is_started_if_the_spec_says_so() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, whenStopped="Start")
        machine = await env.until("m", ready)
        env.chaos("north", "stop-guest", vmid=machine.spec.virtual_machine_id)
        await asyncio.sleep(120)
        assert only_guest(env).running
        await env.until("m", ready)

    story(tell, "north")


def test_a_migration_is_followed() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        vmid = machine.spec.virtual_machine_id
        env.chaos("north", "move-guest", vmid=vmid, node="pve3")
        moved = await env.until("m", lambda m: m.status.proxmox_node == "pve3")
        assert is_true(moved, "Ready")
        await env.delete("m")
        await env.until_gone("m")
        assert env.guests("north") == {}

    story(tell, "north")


def test_insufficient_resources_are_named_and_retried() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, memoryMiB=300 * 1024)
        stuck = await env.until("m", lambda m: reason(m) == "InsufficientResources")
        assert "north/pve2: needs 307200 MiB memory" in message(stuck)
        env.region("north").hosts["pve3"].memory = 512 << 30
        machine = await env.until("m", ready)
        assert machine.status.proxmox_node == "pve3"

    story(tell, "north")


def test_high_availability_registers_and_purges() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, highAvailability={"maxRestart": 2})
        machine = await env.until("m", ready)
        sid = f"vm:{machine.spec.virtual_machine_id}"
        assert env.region("north").ha.resources[sid].options["max_restart"] == 2
        await env.delete("m")
        await env.until_gone("m")
        assert env.region("north").ha.resources == {}
        assert env.guests("north") == {}

    story(tell, "north")


def test_firewall_groups_are_set_before_the_first_start() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, firewallGroups=["kube"])
        waiting = await env.until("m", lambda m: reason(m) == "InsufficientResources")
        assert "region north has no firewall group kube" in message(waiting)
        env.region("north").firewall.groups["kube"] = {"rules": []}
        await env.until("m", ready)
        rules = only_guest(env).firewall.rules
        assert [(r["type"], r["action"]) for r in rules] == [("group", "kube")]
        sent = [path for method, path in env.sent() if method in ("POST", "PUT")]
        assert _first(sent, "firewall") < _first(sent, "status/start")

    story(tell, "north")


def _first(paths: list[str], part: str) -> int:
    return next(n for n, path in enumerate(paths) if part in path)


def test_extra_disks_nics_and_cpu_type() -> None:
    extra = [{"disk": "scsi1", "sizeGb": 5, "storage": "lvm", "ssd": True, "discard": True}]
    network = {
        "networkDevices": [
            {"name": "net0", "bridge": "vmbr0", "vlan": 7, "queues": 4},
            {"name": "net1", "bridge": "vmbr0", "model": "e1000", "dhcp4": True},
        ]
    }

    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(
            env,
            "m",
            templateID=9000,
            cpuType="host",
            disks={**DISK, "extra": extra},
            network=network,
            onBoot=True,
        )
        await env.until("m", ready)
        conf = only_guest(env).conf
        assert conf["cpu"] == "host"
        assert conf["onboot"] == 1
        assert conf["scsi1"].startswith("lvm:vm-")
        assert "ssd=1" in conf["scsi1"]
        assert "discard=on" in conf["scsi1"]
        assert "bridge=vmbr0,queues=4,tag=7" in conf["net0"]
        assert conf["net1"].startswith("e1000=")
        files = next(iter(env.guest_os.config_drives.values()))
        eth0 = yaml.safe_load(files["network-config"])["ethernets"]
        assert eth0["eth1"]["dhcp4"] is True

    story(tell, "north")


def test_dhcp_needs_no_pool_and_the_address_is_reported() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, ipv4Config=None)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        assert [a.address for a in machine.status.addresses] == ["m", "10.9.9.9"]
        files = next(iter(env.guest_os.config_drives.values()))
        assert yaml.safe_load(files["network-config"])["ethernets"]["eth0"]["dhcp4"] is True

    story(tell, "north")


def test_changes_in_place_if_the_spec_allows_them() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, numCores=2, disks=DISK)
        await env.until("m", ready)
        bigger = {"bootVolume": {"disk": "scsi0", "sizeGb": 40}}
        change = {"spec": {"changes": "InPlace", "memoryMiB": 8192, "disks": bigger, "tags": ["x"]}}
        await env.kube.merge(ProxmoxMachine, "m", change, "default")
        await asyncio.sleep(120)
        guest = only_guest(env)
        assert "size=40G" in guest.conf["scsi0"]
        assert "x" in guest.conf["tags"].split(";")
        assert "8192" in (guest.conf["memory"], guest.pending.get("memory"))
        assert guest.running
        writes = [p for m, p in env.sent() if m in ("PUT", "POST")]
        await asyncio.sleep(1200)
        assert [p for m, p in env.sent() if m in ("PUT", "POST")] == writes

    story(tell, "north")


def test_a_changed_cpu_type_is_written_once() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", templateID=9000, changes="InPlace", cpuType="x86-64-v2")
        await env.until("m", lambda m: ready(m) and applied(m).hardware_hash != "")
        change = {"spec": {"cpuType": "host"}}
        await env.kube.merge(ProxmoxMachine, "m", change, "default")
        await asyncio.sleep(60)
        guest = only_guest(env)
        assert {**guest.conf, **guest.pending}["cpu"] == "host"
        machine = await env.machine("m")
        assert applied(machine).hardware_hash == hardware_hash(machine.spec)
        assert is_true(machine, "Ready")
        configs = [p for _, p in env.sent() if p.endswith("/config")]
        await asyncio.sleep(1200)
        assert [p for _, p in env.sent() if p.endswith("/config")] == configs

    story(tell, "north")


def test_a_changed_dhcp_address_is_reported_at_a_bounded_request_rate() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env, ipv4Config=None)
        for n in range(12):
            await apply_machine(env, f"m{n}", numCores=1)
        for n in range(12):
            await env.until(f"m{n}", ready)
        env.guest_os.dhcp_address = "10.9.9.10"
        await asyncio.sleep(90)
        found = [(await env.machine(f"m{n}")).status.addresses[1].address for n in range(12)]
        assert set(found) == {"10.9.9.10"}
        await asyncio.sleep(60)
        before = len(env.sent())
        await asyncio.sleep(600)
        asked = [p for _, p in env.sent()[before:] if p.endswith("network-get-interfaces")]
        assert 90 <= len(asked) <= 101
        env.guest_os.without_agent.add("m3")
        await asyncio.sleep(120)
        assert [a.address for a in (await env.machine("m3")).status.addresses] == [
            "m3",
            "10.9.9.10",
        ]

    story(tell, "north")


def test_kept_guests_keep_their_addresses() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", meta={"annotations": {"moxwell.dev/keep": "true"}})
        await env.until("m", ready)
        await env.delete("m")
        await env.until_gone("m")
        assert only_guest(env).running
        assert "moxwell-kept" in only_guest(env).conf["tags"]
        assert len((await env.kube.list(IPAddress)).items) == 1

    story(tell, "north")


def test_a_host_that_is_down_keeps_the_finalizer() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        machine = await env.until("m", ready)
        host = machine.status.proxmox_node
        env.chaos("north", "host-down", node=host)
        await env.until("m", lambda m: reason(m) == "HostDown")
        await env.delete("m")
        await asyncio.sleep(900)
        assert (await env.machine("m")).metadata.finalizers
        env.chaos("north", "host-up", node=host)
        await env.until_gone("m")
        assert env.guests("north") == {}

    story(tell, "north")


def test_paused_objects_are_left_alone() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m", meta={"annotations": {"cluster.x-k8s.io/paused": "true"}})
        await asyncio.sleep(60)
        machine = await env.machine("m")
        assert is_true(machine, "Paused")
        assert machine.spec.claim is None
        change = {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}}
        await env.kube.merge(ProxmoxMachine, "m", change, "default")
        await env.until("m", ready)

    story(tell, "north")


def test_externally_managed_objects_are_left_alone() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(
            env, "m", meta={"annotations": {"cluster.x-k8s.io/managed-by": "other"}}
        )
        await asyncio.sleep(120)
        machine = await env.machine("m")
        assert machine.metadata.finalizers == ()
        assert machine.status.conditions == ()

    story(tell, "north")


def test_idle_machines_cause_no_requests() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        for n in range(3):
            await apply_machine(env, f"m{n}")
        for n in range(3):
            await env.until(f"m{n}", ready)
        await asyncio.sleep(120)
        before = len(env.sent())
        await asyncio.sleep(3600)
        assert {p for _, p in env.sent()[before:]} <= {"/cluster/resources"} | {
            p for _, p in env.sent()[before:] if p.endswith("/content")
        }

    story(tell, "north")


def test_the_machine_gets_its_node_reference() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        await apply_machine(env, "m")
        await env.until("m", ready)
        machine = await env.kube.get(Machine, "m", "default")
        assert machine.status.node_ref is not None

    story(tell, "north")


def with_least_privilege() -> str:
    """The world file in which the token has exactly the privileges that the preflight asks for."""
    world = WORLD
    for major in (8, 9):
        privileges = ", ".join(preflight.role(major, MACHINES))
        paths = sorted({n.path for n in preflight.needs(major, MACHINES)})
        acl = "".join(f"{{path: {p}, user: moxwell@pve, role: Moxwell}}, " for p in paths)
        old = "      acl: [{path: /, user: moxwell@pve, role: Administrator}]"
        new = f"      roles: [{{role: Moxwell, privs: [{privileges}]}}]\n      acl: [{acl}]"
        world = world.replace(old, new, 1)
    return world


@pytest.mark.parametrize("region", ["north", "south"])
def test_the_least_privilege_that_the_preflight_asks_for_suffices(region: str) -> None:
    async def main() -> None:
        async with running(world=with_least_privilege()) as (env, program):
            report = await preflight.check(program.regions[region].reader, MACHINES)
            assert report.ok, str(report)
            await apply_cluster(env, region=region)
            extra = [{"disk": "scsi1", "sizeGb": 2}]
            await apply_machine(env, "m", templateID=9000, disks={**DISK, "extra": extra})
            await env.until("m", ready)
            await env.delete("m")
            await env.until_gone("m")
            assert env.guests(region) == {}

    run_virtual(main())


def test_a_machine_of_an_isolated_tenant_uses_its_pool_only() -> None:
    async def tell(env: TwoRegions) -> None:
        await apply_cluster(env)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        isolated = {"moxwell.dev/isolated": "true", "moxwell.dev/pool": "mox-red"}
        space["metadata"] |= {"annotations": isolated}  # type: ignore[operator]
        await env.kube.apply(space, NAMESPACES, force=True)
        await apply_machine(env, "m", templateID=9000, pool="mox-blue")
        found = await env.until("m", lambda m: reason(m) == "OutsideTenant")
        assert "mox-blue is not the tenant's pool mox-red" in message(found)
        assert env.guests("north") == {}

    story(tell, "north")
