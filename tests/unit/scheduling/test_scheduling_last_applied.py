"""The record of applied settings, and which of them were removed from the spec."""

from typing import Any

import pytest
from msgspec import structs

from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.template import (
    AppliedDisk,
    Claim,
    ExtraDisk,
    HighAvailability,
    LastApplied,
    MachineDisks,
)
from moxwell.scheduling.guest_hardware import hardware_hash
from moxwell.scheduling.last_applied import (
    is_disk_of,
    record,
    recorded,
    removed_settings,
    wanted,
)

VOLUME = "lvm:vm-101-disk-1"


def spec(*slots: str, tags: tuple[str, ...] = (), **more: Any) -> ProxmoxMachineSpec:
    disks = MachineDisks(extra=tuple(ExtraDisk(disk=slot, size_gb=1) for slot in slots))
    return ProxmoxMachineSpec(disks=disks if slots else None, tags=tags, **more)


def disks(**volumes: str) -> tuple[AppliedDisk, ...]:
    return tuple(AppliedDisk(disk=slot, volume=volume) for slot, volume in volumes.items())


@pytest.mark.parametrize(
    "volume, ours",
    [
        pytest.param("lvm:vm-101-disk-1", True, id="a block volume"),
        pytest.param("local:101/vm-101-disk-1.qcow2", True, id="a file"),
        pytest.param(
            "local:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2", True, id="linked"
        ),
        pytest.param("ceph:base-9000-disk-0/vm-101-disk-0", True, id="linked on Ceph"),
        pytest.param("drbd:pm-0a1b2c3d_101", True, id="LINSTOR"),
        pytest.param("lvm:vm-9999-pvc-a", False, id="a volume claim"),
        pytest.param("lvm:vm-101-pvc-a", False, id="a volume claim that bears its number"),
        pytest.param("lvm:vm-1010-disk-1", False, id="another guest's"),
        pytest.param("local:iso/x.iso", False, id="an image"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_which_guest_a_volume_belongs_to(volume: str, ours: bool) -> None:
    assert is_disk_of(volume, 101) is ours


@pytest.mark.parametrize(
    "before, now, expected",
    [
        pytest.param(
            LastApplied(), spec("scsi1", tags=("X",)), LastApplied(), id="nothing was there"
        ),
        pytest.param(
            LastApplied(tags=("a", "b")),
            spec(tags=("B",)),
            LastApplied(tags=("a",)),
            id="a tag removed",
        ),
        pytest.param(
            LastApplied(firewall_groups=("kube", "web")),
            ProxmoxMachineSpec(firewall_groups=("web",)),
            LastApplied(firewall_groups=("kube",)),
            id="a firewall group removed",
        ),
        pytest.param(
            LastApplied(disks=disks(scsi1=VOLUME, scsi2="")),
            spec("scsi2"),
            LastApplied(disks=disks(scsi1=VOLUME)),
            id="a disk removed",
        ),
        pytest.param(
            LastApplied(ha_group="near"),
            ProxmoxMachineSpec(high_availability=HighAvailability(group="far")),
            LastApplied(ha_group="near"),
            id="another HA group",
        ),
        pytest.param(
            LastApplied(ha_group="near"),
            ProxmoxMachineSpec(high_availability=HighAvailability(group="near")),
            LastApplied(),
            id="the same HA group",
        ),
        pytest.param(
            LastApplied(ha_group="near"),
            ProxmoxMachineSpec(),
            LastApplied(ha_group="near"),
            id="no HA",
        ),
    ],
)
def test_removed_settings(
    before: LastApplied, now: ProxmoxMachineSpec, expected: LastApplied
) -> None:
    assert removed_settings(before, now) == expected


@pytest.mark.parametrize(
    "volumes, done, expected",
    [
        pytest.param(
            None, False, LastApplied(tags=("a", "b"), disks=disks(scsi1=VOLUME)), id="unread"
        ),
        pytest.param(
            {"scsi1": VOLUME}, True, LastApplied(tags=("b",), disks=disks(scsi1=VOLUME)), id="kept"
        ),
        pytest.param({}, True, LastApplied(tags=("b",)), id="the disk is gone"),
        pytest.param(
            {"scsi1": "lvm:vm-9999-pvc-a"}, True, LastApplied(tags=("b",)), id="a claim in its slot"
        ),
        pytest.param(
            {"scsi1": "lvm:vm-101-disk-7"},
            True,
            LastApplied(tags=("b",), disks=disks(scsi1="")),
            id="another disk of the guest in its slot: which is not known",
        ),
    ],
)
def test_a_removed_setting_is_recorded_until_it_is_removed_from_the_guest(
    volumes: dict[str, str] | None, done: bool, expected: LastApplied
) -> None:
    before = LastApplied(tags=("a",), disks=disks(scsi1=VOLUME))
    now = spec(tags=("b",))
    if done:
        expected = structs.replace(expected, hardware_hash=hardware_hash(now))
    assert record(before, now, volumes, vmid=101, done=done) == expected


@pytest.mark.parametrize(
    "there, known",
    [
        pytest.param(VOLUME, VOLUME, id="its own"),
        pytest.param("lvm:vm-9999-pvc-a", "", id="a foreign volume is never recorded"),
        pytest.param("", "", id="not made yet"),
    ],
)
def test_a_disk_is_known_by_its_volume(there: str, known: str) -> None:
    found = record(LastApplied(), spec("scsi1"), {"scsi1": there}, vmid=101)
    assert found.disks == disks(scsi1=known)


def test_settings_are_recorded_before_they_are_applied() -> None:
    asked = spec("scsi1", tags=("Team",), high_availability=HighAvailability(group="near"))
    assert record(LastApplied(), asked) == wanted(asked)
    assert wanted(asked) == LastApplied(tags=("team",), disks=disks(scsi1=""), ha_group="near")


def test_the_record_is_read_from_the_claim() -> None:
    applied = LastApplied(tags=("a",))
    claim = Claim(host="a", uuid="u", applied=applied)
    assert recorded(ProxmoxMachineSpec(claim=claim)) == applied
    assert recorded(ProxmoxMachineSpec(claim=Claim(host="a", uuid="u"))) == LastApplied()
    assert recorded(ProxmoxMachineSpec()) == LastApplied()
