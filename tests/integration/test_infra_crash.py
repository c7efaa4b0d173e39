"""
Crash tests: killed after any write of create, update and delete, the next run completes the work.

Each story runs once for each of its writes and each way in which a write can end (see
``moxwell.testing.reconcile``). The contents of the regions are compared before and after: what does
not belong to the machine must not change.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter, Ending
from moxwell.testing.machine_objects import apply_cluster, apply_machine, registry_of
from moxwell.testing.reconcile import ENDINGS, crash_after_each_effect
from moxwell.testing.region_contents import (
    RegionContents,
    add_foreign_objects,
    contents_diff,
    contents_of,
)
from moxwell.testing.two_regions import (
    TwoRegions,
    applied,
    is_true,
    program,
    ready,
    start_two_regions,
)

pytestmark = pytest.mark.slow
QUIET = 130.0
POOL = {"name": "second"}
EVERYTHING: dict[str, Any] = {
    "templateID": 9000,
    "numCores": 4,
    "memoryMiB": 4096,
    "description": "a node",
    "tags": ["team-a"],
    "pool": "kube",
    "firewallGroups": ["kube", "web"],
    "highAvailability": {},
    "disks": {
        "bootVolume": {"disk": "scsi0", "sizeGb": 20},
        "extra": [{"disk": "scsi1", "sizeGb": 5, "storage": "lvm", "ssd": True}],
    },
    "network": {
        "networkDevices": [{"name": "net0"}, {"name": "net1", "ipPoolRef": [POOL], "vlan": 7}]
    },
    "changes": "InPlace",
}
PLAIN: dict[str, Any] = {
    "templateID": 9000,
    "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
    "changes": "InPlace",
}
FAR: dict[str, Any] = {"templateID": 9100, "target": "pve2", "full": True, "storage": "lvm"}


@dataclass
class CreateMachine:
    """Create a machine, until it is Ready and its bootstrap ISO is deleted."""

    spec: dict[str, Any] = field(default_factory=lambda: EVERYTHING)
    before: RegionContents = field(default_factory=dict)
    addresses: frozenset[str] = frozenset()

    async def world(self) -> TwoRegions:
        world = await start_two_regions()
        await add_foreign_objects(world.region("north"), world.transports["north"])
        _put_far_template(world)
        await _apply_pool(world)
        await apply_cluster(world)
        await asyncio.sleep(60)
        self.before, self.addresses = contents_of(world.region("north")), await _given(world)
        return world

    def program(self, world: TwoRegions, wires: EffectCounter) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: TwoRegions) -> None:
        await apply_machine(world, "m", **self.spec)

    async def check(self, world: TwoRegions) -> None:
        await self.check_machine(world)
        await world.close()

    async def check_machine(self, world: TwoRegions) -> None:
        machine = await world.machine("m")
        vmid = machine.spec.virtual_machine_id
        assert is_true(machine, "Ready")
        assert machine.status.next_move == ""
        new = set(contents_diff(self.before, contents_of(world.region("north"))))
        assert {n.split()[0] for n in new} <= {"guest", "volume", "ha", "pool"}
        assert all(str(vmid) in n for n in new), new
        assert not [n for n in new if n.endswith(".iso")], new
        assert _clones(world) == 1
        nics = 2 if self.spec is EVERYTHING else 1
        assert len(await _given(world) - self.addresses) == nics
        self.check_hardware(world.region("north").guests[vmid or 0], new)

    def check_hardware(self, guest: Any, new: set[str]) -> None:
        if self.spec is not EVERYTHING:
            return
        extra = 2 if "scsi2" in guest.conf else 1
        assert len([n for n in new if n.startswith("volume")]) == 1 + extra, new
        assert f"ha vm:{guest.vmid}" in new
        assert f"pool kube {guest.vmid}" in new
        assert sorted(r["action"] for r in guest.firewall.rules) == ["kube", "web"]


@dataclass
class ReadyMachine(CreateMachine):
    """The machine is ready before the story begins."""

    async def world(self) -> TwoRegions:
        world = await super().world()
        life = program(world, "north").manager
        running = asyncio.create_task(life.run())
        await super().act(world)
        await world.until("m", ready)
        life.stop()
        await running
        return world


@dataclass
class ChangeMachine(ReadyMachine):
    """Change cores, memory, disks, tags, description, firewall rules and HA in place."""

    async def act(self, world: TwoRegions) -> None:
        extra = [
            {"disk": "scsi1", "sizeGb": 7, "storage": "lvm", "ssd": True},
            {"disk": "scsi2", "sizeGb": 3, "storage": "lvm"},
        ]
        bigger = {"bootVolume": {"disk": "scsi0", "sizeGb": 40}, "extra": extra}
        change = {
            "disks": bigger,
            "tags": ["x"],
            "numCores": 6,
            "memoryMiB": 8192,
            "description": "grown",
            "firewallGroups": ["kube", "web"],
            "highAvailability": {"maxRestart": 3},
        }
        await world.kube.merge(ProxmoxMachine, "m", {"spec": change}, "default")

    async def check(self, world: TwoRegions) -> None:
        vmid = (await world.machine("m")).spec.virtual_machine_id or 0
        guest = world.region("north").guests[vmid]
        will = {key: str(value) for key, value in {**guest.conf, **guest.pending}.items()}
        assert "size=40G" in will["scsi0"]
        assert "x" in will["tags"].split(";")
        assert (will["cores"], will["memory"]) == ("6", "8192")
        assert ("size=7G" in will["scsi1"], "size=3G" in will["scsi2"]) == (True, True)
        assert will["description"].startswith("grown")
        assert sorted(r["action"] for r in guest.firewall.rules) == ["kube", "web"]
        assert world.region("north").ha.resources[f"vm:{vmid}"].options["max_restart"] == 3
        await super().check(world)


@dataclass
class RemoveSettings(ReadyMachine):
    """Remove tags, firewall rules, HA and a disk from the spec."""

    async def world(self) -> TwoRegions:
        world = await super().world()
        life = program(world, "north").manager
        running = asyncio.create_task(life.run())
        await world.until("m", lambda m: applied(m).hardware_hash != "")
        life.stop()
        await running
        return world

    def check_hardware(self, guest: Any, new: set[str]) -> None:
        assert len([n for n in new if n.startswith("volume")]) == 1, new
        assert f"ha vm:{guest.vmid}" not in new

    async def act(self, world: TwoRegions) -> None:
        disks = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}, "extra": []}
        change = {
            "disks": {**disks, "whenRemoved": "Delete"},
            "tags": [],
            "firewallGroups": ["web"],
            "highAvailability": None,
        }
        await world.kube.merge(ProxmoxMachine, "m", {"spec": change}, "default")

    async def check(self, world: TwoRegions) -> None:
        machine = await world.machine("m")
        guest = world.region("north").guests[machine.spec.virtual_machine_id or 0]
        assert not {"scsi1", "unused0"} & {*guest.conf, *guest.pending}
        assert "team-a" not in str(guest.conf["tags"]).split(";")
        assert [r["action"] for r in guest.firewall.rules] == ["web"]
        assert applied(machine).disks == ()
        await super().check(world)


async def check_gone(before: RegionContents, addresses: frozenset[str], world: TwoRegions) -> None:
    """Nothing of the machine remains, and nothing else has changed."""
    assert (await world.kube.list(ProxmoxMachine)).items == ()
    assert contents_diff(before, contents_of(world.region("north"))) == {}
    assert await _given(world) == addresses
    assert _clones(world) <= 1
    await world.close()


@dataclass
class DeleteMachine(ReadyMachine):
    """Delete a ready machine."""

    async def act(self, world: TwoRegions) -> None:
        await world.delete("m")

    async def check(self, world: TwoRegions) -> None:
        await check_gone(self.before, self.addresses, world)


@dataclass
class DeleteDuringCreation(CreateMachine):
    """Delete a machine during its creation."""

    after_seconds: float = 3.0

    async def act(self, world: TwoRegions) -> None:
        await super().act(world)
        await asyncio.sleep(self.after_seconds)
        await world.delete("m")

    async def check(self, world: TwoRegions) -> None:
        await check_gone(self.before, self.addresses, world)


def _clones(world: TwoRegions) -> int:
    """The number of guests created so far."""
    tasks = world.region("north").tasks.values()
    return sum(t.type == "qmclone" and t.exitstatus == "OK" for t in tasks)


async def _given(world: TwoRegions) -> frozenset[str]:
    claims = (await world.kube.list(IPAddressClaim)).items
    found = (await world.kube.list(IPAddress)).items
    assert {a.name for a in found} == {c.name for c in claims}
    return frozenset(a.spec.address for a in found)


def _put_far_template(world: TwoRegions) -> None:
    """Put a template on the local storage of another host, so that the clone is migrated."""
    region = world.region("north")
    text = "lvm:base-9100-disk-0,size=8G"
    region.guests[9100] = template = type(region.guests[9000])(9100, "qemu", "pve1")
    template.conf = {**region.guests[9000].conf, "name": "far", "scsi0": text}
    base = next(iter(region.storages["ceph"].volumes_on("pve1").values()))
    volume = type(base)("base-9100-disk-0", "raw", "images", base.size, base.used, 9100)
    region.storages["lvm"].volumes_on("pve1")[volume.name] = volume
    region.changed.add(9100)


async def _apply_pool(world: TwoRegions) -> None:
    """Create a foreign pool with an address in use."""
    head = {"namespace": "default"}
    group = "ipam.cluster.x-k8s.io"
    spec: dict[str, Any] = {
        "addresses": ["10.7.0.2-10.7.0.9"],
        "prefix": 24,
        "gateway": "10.7.0.1",
    }
    pool = {"apiVersion": f"{group}/v1alpha2", "kind": "InClusterIPPool"}
    await world.kube.create(
        {**pool, "metadata": {**head, **POOL}, "spec": spec}, registry_of("InClusterIPPool")
    )
    ref = {"apiGroup": group, "kind": "InClusterIPPool", **POOL}
    claim = {"apiVersion": f"{group}/v1beta2", "kind": "IPAddressClaim"}
    await world.kube.create(
        {**claim, "metadata": {**head, "name": "theirs"}, "spec": {"poolRef": ref}},
        registry_of("IPAddressClaim"),
    )


STORIES = [
    pytest.param(lambda: CreateMachine(EVERYTHING), id="made with everything"),
    pytest.param(lambda: CreateMachine(FAR), id="made by clone and migration"),
    pytest.param(lambda: ChangeMachine(EVERYTHING), id="contents_diff in place under HA"),
    pytest.param(lambda: ChangeMachine(PLAIN), id="contents_diff in place"),
    pytest.param(lambda: RemoveSettings(EVERYTHING), id="reduced in place"),
    pytest.param(lambda: DeleteMachine(EVERYTHING), id="unmade with everything"),
    pytest.param(
        lambda: DeleteDuringCreation(EVERYTHING, after_seconds=3), id="unmade as it clones"
    ),
    pytest.param(lambda: DeleteDuringCreation(FAR, after_seconds=30), id="unmade as it migrates"),
    pytest.param(
        lambda: DeleteDuringCreation(EVERYTHING, after_seconds=25), id="unmade as it boots"
    ),
]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("story", STORIES)
def test_after_any_effect(story: Any, ending: Ending) -> None:
    crash_after_each_effect(story(), quiet_seconds=QUIET, ending=ending)


def test_a_machine_with_all_settings_is_created_in_few_writes() -> None:
    effects = crash_after_each_effect(CreateMachine(), quiet_seconds=QUIET, part=(10_000, 10_001))
    writes = [e for e in effects if e.startswith("north:")]
    assert len(writes) == 10, writes


def test_a_plain_machine_is_created_in_seven_writes_and_deleted_in_two() -> None:
    made = crash_after_each_effect(CreateMachine(PLAIN), quiet_seconds=QUIET, part=(99, 100))
    assert sum(e.startswith("north:") for e in made) == 7, made
    gone = crash_after_each_effect(DeleteMachine(PLAIN), quiet_seconds=QUIET, part=(99, 100))
    assert sum(e.startswith("north:") for e in gone) == 2, gone
