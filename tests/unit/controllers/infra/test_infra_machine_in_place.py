"""Changes in place: settings applied, settings removed, and differences only reported."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from moxwell.api.capi.core import Cluster, Machine, MachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.template import (
    AppliedDisk,
    Claim,
    ExtraDisk,
    HighAvailability,
    LastApplied,
    MachineDisks,
)
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.machine.describe import describe
from moxwell.controllers.infra.machine.in_place import applied_record, change
from moxwell.controllers.infra.machine.moves import MachineVersion, RecordApplied
from moxwell.controllers.infra.machine.observed import (
    MachineGuest,
    ObservedProxmoxMachine,
    OwnerObjects,
)
from moxwell.controllers.infra.machine.plan import plan
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import (
    AddToHaRule,
    Configure,
    RegisterHa,
    RemoveDisk,
    RemoveFirewallGroup,
    RemoveFromHaRule,
    RemoveHa,
    ResizeDisk,
    SetFirewall,
    SetPool,
)
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.guest_hardware import hardware_hash

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID, "n/")
CLAIM = Claim(host="a", uuid=UID, template=9000, template_host="a", iso_storage="local")
VOLUME, PVC = "lvm:vm-101-disk-1", "lvm:vm-9999-pvc-a"
HAD = LastApplied(disks=(AppliedDisk(disk="scsi1", volume=VOLUME),))
CARE = HighAvailability(group="far")
OURS = HaResource(sid="vm:101", comment=f"m {MARK.line}")


def machine(applied: LastApplied = HAD, **spec: Any) -> ProxmoxMachine:
    claim = structs.replace(CLAIM, applied=applied)
    given = {"region": "r", "virtual_machine_id": 101, "claim": claim, "changes": "InPlace", **spec}
    meta = ObjectMeta(name="m", namespace="n", uid=UID)
    made = ProxmoxMachineSpec(provider_id="proxmox://r/101", **given)
    return ProxmoxMachine(metadata=meta, spec=made)


def observed(found: MachineGuest) -> ObservedProxmoxMachine:
    owners = OwnerObjects(Machine(spec=MachineSpec(cluster_name="c")), Cluster(), ProxmoxCluster())
    return ObservedProxmoxMachine(
        machine=owners.machine, owners=owners, guest=found, bootstrapped=True
    )


def recorded(obj: ProxmoxMachine, found: MachineGuest) -> ProxmoxMachine:
    """The machine after the plan has recorded what was applied."""
    move = plan(obj, observed(found))
    assert isinstance(move, RecordApplied)
    assert obj.spec.claim
    claim = structs.replace(obj.spec.claim, applied=move.applied)
    return structs.replace(obj, spec=structs.replace(obj.spec, claim=claim))


def guest(*tags: str, drive: str = "", pool: str = "", **more: Any) -> MachineGuest:
    raw = {"scsi0": "lvm:vm-101-disk-0,size=8G", "digest": "d", "tags": MARK.tags(tags)}
    if drive:
        raw["scsi1"] = f"{drive},size=5G"
    labels = tuple(MARK.tags(tags).split(";"))
    seen = ObservedGuest(101, "a", status="running", tags=labels, pool=pool)
    return MachineGuest(seen, True, marked=True, config=GuestConfig(raw), **more)


def extra(when: Any = None, *sizes: int) -> MachineDisks:
    return MachineDisks(
        extra=tuple(ExtraDisk(disk="scsi1", size_gb=size) for size in sizes), when_removed=when
    )


def rule(*sids: str) -> HaRule:
    return HaRule(rule="near", type="node-affinity", resources=",".join(sids))


@pytest.mark.parametrize(
    "obj, found, expected",
    [
        pytest.param(
            machine(LastApplied(tags=("a", "b")), tags=("b",)),
            guest("a", "b", "theirs"),
            ("tags", MARK.tags(["b", "theirs"])),
            id="a removed tag is removed, a foreign one stays",
        ),
        pytest.param(machine(LastApplied()), guest("theirs"), None, id="a tag that was never ours"),
        pytest.param(
            machine(LastApplied(firewall_groups=("kube",))),
            guest(firewall_groups=frozenset({"kube", "theirs"})),
            RemoveFirewallGroup,
            id="a firewall group that was removed",
        ),
        pytest.param(
            machine(LastApplied(firewall_groups=("kube",))),
            guest(firewall_groups=frozenset({"theirs"})),
            None,
            id="a firewall group that left already",
        ),
        pytest.param(
            machine(LastApplied(), firewall_groups=("kube", "web")),
            guest(firewall_groups=frozenset({"web"}), unknown_groups=("kube",)),
            "FirewallGroupNotFound",
            id="a firewall group that the region does not have",
        ),
        pytest.param(
            machine(LastApplied(), firewall_groups=("kube", "web")),
            guest(firewall_groups=frozenset({"web"})),
            SetFirewall,
            id="a firewall group put in",
        ),
        pytest.param(machine(pool="blue"), guest(), SetPool, id="a resource pool"),
        pytest.param(machine(pool="blue"), guest(pool="red"), SetPool, id="another resource pool"),
        pytest.param(machine(pool="blue"), guest(pool="blue"), None, id="the same resource pool"),
        pytest.param(machine(), guest(pool="red"), None, id="a pool that somebody chose stays"),
        pytest.param(machine(), guest(drive=VOLUME), "DiskKept", id="a disk removed is kept"),
        pytest.param(
            machine(disks=extra("Keep")), guest(drive=VOLUME), "DiskKept", id="kept explicitly"
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
            machine(LastApplied(disks=(AppliedDisk(disk="scsi1"),)), disks=extra("Delete")),
            guest(drive=VOLUME),
            "DiskKept",
            id="a disk without recorded volume is kept",
        ),
        pytest.param(machine(), guest(), None, id="the disk is gone"),
        pytest.param(machine(disks=extra(None, 7)), guest(drive=VOLUME), ResizeDisk, id="it grows"),
        pytest.param(
            machine(disks=extra(None, 7)),
            guest(drive=PVC),
            "SlotTaken",
            id="a foreign volume in the slot is not resized, and reported",
        ),
        pytest.param(machine(), guest(ha=OURS), RemoveHa, id="HA removed"),
        pytest.param(
            machine(), guest(ha=HaResource(sid="vm:101", comment="by hand")), None, id="their HA"
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha_mode="rule"),
            RegisterHa,
            id="HA added",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, ha_mode="rule"),
            AddToHaRule,
            id="another rule is joined",
        ),
        pytest.param(
            machine(high_availability=CARE), guest(ha=OURS, ha_mode="member"), None, id="joined"
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, ha_mode="rule", previous_rule=rule("vm:101", "vm:9")),
            RemoveFromHaRule,
            id="the previous rule is left first",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, ha_mode="rule", previous_rule=rule("vm:9")),
            AddToHaRule,
            id="the previous rule was left already",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, ha_mode="rule", previous_rule=rule("vm:101")),
            "HARuleKept",
            id="the last one in a rule cannot leave it",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=OURS, ha_mode="missing"),
            "HARuleNotFound",
            id="a rule that is not there",
        ),
        pytest.param(
            machine(high_availability=CARE),
            guest(ha=structs.replace(OURS, group="near"), ha_mode="group"),
            RegisterHa,
            id="another group on 8",
        ),
        pytest.param(
            machine(high_availability=HighAvailability()),
            guest(ha=structs.replace(OURS, group="near"), ha_mode="group"),
            RegisterHa,
            id="no group any more on 8",
        ),
    ],
)
def test_the_next_change(obj: ProxmoxMachine, found: MachineGuest, expected: Any) -> None:
    move = change(obj, found)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, tuple):
        assert isinstance(move, Configure)
        assert move.changes[expected[0]] == expected[1]
    else:
        assert move is None if expected is None else isinstance(move, expected)


def conditions(obj: ProxmoxMachine, found: MachineGuest) -> dict[str, tuple[str, str]]:
    seen = observed(found)
    status = describe(obj, seen, plan(obj, seen))
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_kept_disk_is_reported_and_the_machine_is_ready() -> None:
    obj = recorded(machine(), guest(drive=VOLUME))
    found = conditions(obj, guest(drive=VOLUME))
    assert found["Ready"] == ("True", "Provisioned")
    assert found["UpToDate"] == ("False", "DiskKept")


def test_it_is_up_to_date_again_once_the_disk_is_removed() -> None:
    obj = recorded(machine(), guest(drive=VOLUME))
    assert obj.spec.claim
    assert obj.spec.claim.applied
    assert obj.spec.claim.applied.hardware_hash == hardware_hash(obj.spec)
    unread = replace(guest(), config=None)
    assert "UpToDate" not in conditions(obj, unread)  # the status writer leaves it as it is
    assert conditions(obj, guest())["UpToDate"] == ("True", "UpToDate")
    assert plan(recorded(obj, guest()), observed(guest())) == Done()


def test_the_record_is_written_once() -> None:
    obj = machine(LastApplied())
    move = plan(obj, observed(guest()))
    done = LastApplied(hardware_hash=hardware_hash(obj.spec))
    assert move == RecordApplied(MachineVersion.of(obj), done)
    assert plan(recorded(obj, guest()), observed(guest())) == Done()


def test_a_machine_that_is_not_changed_in_place_has_no_such_condition() -> None:
    obj = machine(LastApplied(), changes="Never")
    assert plan(obj, observed(guest())) == Done()
    assert "UpToDate" not in conditions(obj, guest())


def test_the_record_holds_a_setting_until_it_is_removed_from_the_guest() -> None:
    obj = machine(LastApplied(tags=("a",)), tags=("b",))
    assert applied_record(obj, guest("a")).tags == ("a", "b")
    assert applied_record(obj, guest("b")).tags == ("b",)
    unread = replace(guest(), config=None)
    assert applied_record(obj, unread).tags == ("a", "b")
