"""Killed after any single effect of create, update and delete: it settles, with nothing doubled."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress
from moxwell.runtime.manager import Manager
from moxwell.testing.applied import apply_cluster, apply_machine
from moxwell.testing.estate import Estate, is_true, make_estate, program, ready
from moxwell.testing.reconcile import Wires, crash_after_each_effect

DISK = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}
QUIET = 130.0


@dataclass
class MachineIsMade:
    """One machine, from apply to Ready with its seed taken away."""

    spec: dict[str, Any] = field(default_factory=lambda: {"templateID": 9000, "disks": DISK})

    async def world(self) -> Estate:
        return await make_estate()

    def program(self, world: Estate, wires: Wires) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: Estate) -> None:
        await apply_cluster(world)
        await apply_machine(world, "m", **self.spec)

    async def check(self, world: Estate) -> None:
        (guest,) = world.guests("north").values()
        machine = await world.machine("m")
        assert machine.spec.virtual_machine_id == guest.vmid
        assert is_true(machine, "Ready")
        assert machine.status.next_move == ""
        assert world.isos("north") == []
        assert len((await world.kube.list(IPAddress)).items) == 1
        await world.close()


@dataclass
class MachineIsUnmade(MachineIsMade):
    """The same machine, deleted when it is ready."""

    async def act(self, world: Estate) -> None:
        self.before = sorted(world.volumes("north"))
        await super().act(world)
        await world.until("m", lambda m: is_true(m, "Ready"), seconds=100_000)
        await world.delete("m")

    async def check(self, world: Estate) -> None:
        assert world.guests("north") == {}
        assert sorted(world.volumes("north")) == self.before
        assert (await world.kube.list(ProxmoxMachine)).items == ()
        assert (await world.kube.list(IPAddress)).items == ()
        assert world.region("north").guests[201].running
        await world.close()


@dataclass
class MachineIsChanged(MachineIsMade):
    """A machine that grows in place."""

    async def act(self, world: Estate) -> None:
        await super().act(world)
        await world.until("m", ready, seconds=100_000)
        bigger = {"bootVolume": {"disk": "scsi0", "sizeGb": 40}}
        change = {"spec": {"changes": "InPlace", "disks": bigger, "tags": ["x"]}}
        await world.kube.merge(ProxmoxMachine, "m", change, "default")

    async def check(self, world: Estate) -> None:
        (guest,) = world.guests("north").values()
        assert "size=40G" in guest.conf["scsi0"]
        assert "x" in guest.conf["tags"].split(";")
        await super().check(world)


@pytest.mark.slow
def test_killed_after_any_effect_of_making() -> None:
    effects = crash_after_each_effect(MachineIsMade(), quiet_seconds=QUIET)
    pve = [e for e in effects if e.startswith("north:")]
    assert len(pve) == 7, pve


@pytest.mark.slow
def test_killed_after_any_effect_of_unmaking() -> None:
    effects = crash_after_each_effect(MachineIsUnmade(), quiet_seconds=QUIET)
    assert sum("DELETE" in e for e in effects if e.startswith("north:")) == 2


@pytest.mark.slow
def test_killed_after_any_effect_of_changing() -> None:
    crash_after_each_effect(MachineIsChanged(), quiet_seconds=QUIET, stride=3)


@pytest.mark.slow
def test_killed_after_any_effect_with_firewall_and_high_availability() -> None:
    spec = {"templateID": 9000, "firewallGroups": ["kube"], "highAvailability": {}}
    crash_after_each_effect(MachineIsMade(spec), quiet_seconds=QUIET, stride=2)
