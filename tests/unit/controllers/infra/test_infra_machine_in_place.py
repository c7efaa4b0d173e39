"""Changing a guest in place: what is put on, what is taken off, and what is only told."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from moxwell.api.infra.machine import (
    Applied,
    AppliedDisk,
    MachineSpec,
    MachineStatus,
    ProxmoxMachine,
)
from moxwell.api.infra.template import Claim, Disks, ExtraDisk, HighAvailability
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.machine.describe import describe
from moxwell.controllers.infra.machine.in_place import change, memory
from moxwell.controllers.infra.machine.observed import GuestFound, Seen
from moxwell.controllers.infra.machine.plan import next_move
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import (
    Configure,
    DropFirewallGroup,
    JoinHaRule,
    LeaveHaRule,
    RegisterHa,
    RemoveDisk,
    RemoveHa,
    Resize,
    SetFirewall,
)
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.guest_hardware import meaning

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID)
CLAIM = Claim(host="a", uuid=UID, template=9000, template_host="a", iso_storage="local")
VOLUME, PVC = "lvm:vm-101-disk-1", "lvm:vm-9999-pvc-a"
HAD = Applied(disks=(AppliedDisk(disk="scsi1", volume=VOLUME),))
CARE = HighAvailability(group="far")
OURS = HaResource(sid="vm:101", comment=f"m {MARK.line}")


def machine(applied: Applied = HAD, **spec: Any) -> ProxmoxMachine:
    given = {"region": "r", "virtual_machine_id": 101, "claim": CLAIM, "changes": "InPlace", **spec}
    status = MachineStatus(applied=applied)
    meta = ObjectMeta(name="m", namespace="n", uid=UID)
    made = MachineSpec(provider_id="proxmox://r/101", **given)
    return ProxmoxMachine(metadata=meta, spec=made, status=status)


def guest(*tags: str, drive: str = "", **more: Any) -> GuestFound:
    raw = {"scsi0": "lvm:vm-101-disk-0,size=8G", "digest": "d", "tags": MARK.tags(tags)}
    if drive:
        raw["scsi1"] = f"{drive},size=5G"
    seen = GuestSeen(101, "a", status="running", tags=tuple(MARK.tags(tags).split(";")))
    return GuestFound(seen, True, marked=True, config=GuestConfig(raw), **more)


def extra(when: Any = None, *sizes: int) -> Disks:
    return Disks(
        extra=tuple(ExtraDisk(disk="scsi1", size_gb=size) for size in sizes), when_removed=when
    )


def rule(*sids: str) -> HaRule:
    return HaRule(rule="near", type="node-affinity", resources=",".join(sids))


@pytest.mark.parametrize(
    "obj, found, expected",
    [
        pytest.param(
            machine(Applied(tags=("a", "b")), tags=("b",)),
            guest("a", "b", "theirs"),
            ("tags", MARK.tags(["b", "theirs"])),
            id="a tag that was taken out leaves, a stranger's stays",
        ),
        pytest.param(machine(Applied()), guest("theirs"), None, id="a tag that was never ours"),
        pytest.param(
            machine(Applied(firewall_groups=("kube",))),
            guest(firewall_groups=frozenset({"kube", "theirs"})),
            DropFirewallGroup,
            id="a firewall group that was taken out",
        ),
        pytest.param(
            machine(Applied(firewall_groups=("kube",))),
            guest(firewall_groups=frozenset({"theirs"})),
            None,
            id="a firewall group that left already",
        ),
        pytest.param(
            machine(Applied(), firewall_groups=("kube", "web")),
            guest(firewall_groups=frozenset({"web"}), lacking_groups=("kube",)),
            "FirewallGroupNotFound",
            id="a firewall group that the region does not have",
        ),
        pytest.param(
            machine(Applied(), firewall_groups=("kube", "web")),
            guest(firewall_groups=frozenset({"web"})),
            SetFirewall,
            id="a firewall group put in",
        ),
        pytest.param(machine(), guest(drive=VOLUME), "DiskKept", id="a disk taken out is kept"),
        pytest.param(
            machine(disks=extra("Keep")), guest(drive=VOLUME), "DiskKept", id="kept by word"
        ),
        pytest.param(
            machine(disks=extra("Delete")), guest(drive=VOLUME), RemoveDisk, id="may be deleted"
        ),
        pytest.param(
            machine(disks=extra("Delete")), guest(drive=PVC), None, id="a claim in its slot stays"
        ),
        pytest.param(
            machine(disks=extra("Delete")),
            guest(drive="lvm:vm-101-disk-9"),
            "DiskKept",
            id="another disk of the guest in its slot is kept",
        ),
        pytest.param(
            machine(Applied(disks=(AppliedDisk(disk="scsi1"),)), disks=extra("Delete")),
            guest(drive=VOLUME),
            "DiskKept",
            id="a disk whose volume nobody saw is kept",
        ),
        pytest.param(machine(), guest(), None, id="the disk is gone"),
        pytest.param(machine(disks=extra(None, 7)), guest(drive=VOLUME), Resize, id="it grows"),
        pytest.param(
            machine(disks=extra(None, 7)),
            guest(drive=PVC),
            "SlotTaken",
            id="a claim in the slot does not grow, and it is told",
        ),
        pytest.param(machine(), guest(ha=OURS), RemoveHa, id="HA's care taken out"),
        pytest.param(
            machine(), guest(ha=HaResource(sid="vm:101", comment="by hand")), None, id="their HA"
        ),
        pytest.param(
            machine(high_availability=CARE), guest(care="rule"), RegisterHa, id="HA's care put in"
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, care="rule"),
            JoinHaRule,
            id="another rule is joined",
        ),
        pytest.param(
            machine(high_availability=CARE), guest(ha=OURS, care="joined"), None, id="joined"
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, care="rule", old_rule=rule("vm:101", "vm:9")),
            LeaveHaRule,
            id="the former rule is left first",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, care="rule", old_rule=rule("vm:9")),
            JoinHaRule,
            id="the former rule was left already",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, care="rule", old_rule=rule("vm:101")),
            "HARuleKept",
            id="the last one in a rule cannot leave it",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, care="missing"),
            "HARuleNotFound",
            id="a rule that is not there",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=structs.replace(OURS, group="near"), care="group"),
            RegisterHa,
            id="another group on 8",
        ),
        pytest.param(
            machine(high_availability=HighAvailability()),
            guest(ha=structs.replace(OURS, group="near"), care="group"),
            RegisterHa,
            id="no group any more on 8",
        ),
    ],
)
def test_the_next_change(obj: ProxmoxMachine, found: GuestFound, expected: Any) -> None:
    move = change(obj, found)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, tuple):
        assert isinstance(move, Configure)
        assert move.changes[expected[0]] == expected[1]
    else:
        assert move is None if expected is None else isinstance(move, expected)


def told(obj: ProxmoxMachine, found: GuestFound) -> dict[str, tuple[str, str]]:
    seen = Seen(guest=found, bootstrapped=True)
    status = describe(obj, seen, next_move(obj, seen))
    return {c.type: (c.status, c.reason) for c in status.conditions}


def test_what_is_kept_is_told_and_the_machine_is_ready() -> None:
    obj = machine()
    said = told(obj, guest(drive=VOLUME))
    assert said["Ready"] == ("True", "Provisioned")
    assert said["UpToDate"] == ("False", "DiskKept")


def test_it_is_up_to_date_again_once_the_disk_is_gone() -> None:
    obj = machine()
    seen = Seen(guest=guest(drive=VOLUME), bootstrapped=True)
    obj = structs.replace(obj, status=describe(obj, seen, next_move(obj, seen)))
    assert obj.status.hardware == meaning(obj.spec)
    unread = replace(guest(), config=None)
    assert told(obj, unread)["UpToDate"] == ("False", "DiskKept")
    assert told(obj, guest())["UpToDate"] == ("True", "AsAsked")


def test_a_machine_that_never_lacked_anything_has_no_such_condition() -> None:
    obj = machine(Applied())
    seen = Seen(guest=guest(), bootstrapped=True)
    assert next_move(obj, seen) == Done()
    assert "UpToDate" not in told(obj, guest())


def test_memory_holds_what_was_put_on_until_it_is_off() -> None:
    obj = machine(Applied(tags=("a",)), tags=("b",))
    assert memory(obj, guest("a")).tags == ("a", "b")
    assert memory(obj, guest("b")).tags == ("b",)
    assert memory(obj, None).tags == ("a", "b")
