"""Steps of the CSI driver: foreign targets and dry runs are refused, every write is audited."""

import asyncio
from typing import Any

import pytest

from moxwell.csi import steps
from moxwell.csi.helper_vms import DELETED_TAG, REFERENCE_TAG, HelperVM, current_tags
from moxwell.csi.ids import VolumeId
from moxwell.csi.steps import HelperVMRef
from moxwell.pve.audit import AuditRecord
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import DryRun, Effects
from moxwell.pve.guests import GuestConfig
from moxwell.pve.ownership import Foreign, Mark, is_helper_vm
from moxwell.pve.steps import Step

UPID = "UPID:h0:00000001:00000002:66000000:qmconfig:101:csi@pve!test:"
OWN = VolumeId("r1", "", "ceph", "vm-9999-pvc-1")
OTHER = VolumeId("r1", "", "ceph", "vm-101-disk-0")
VM = HelperVMRef("r1", "h0", 10_000, "helper VM tag")
NODE: dict[str, Any] = {"region_name": "r1", "host": "h0", "guest": 101}
DISK: dict[str, Any] = {"host": "h0", "vmid_in_name": 9999}


class RecordingTransport:
    """Answers every request with a task id and records it."""

    region = "r1"

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, *_: Any, **__: Any) -> bytes:
        self.sent.append((method, path))
        return f'{{"data":"{UPID}"}}'.encode()

    async def upload(self, *_: Any, **__: Any) -> bytes:
        raise NotImplementedError

    async def close(self) -> None:
        return None


class AuditList:
    """Keeps audit records."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)


STEPS: dict[str, Step] = {
    "allocate": steps.AllocateDisk(volume=OWN, size=1 << 30, **DISK),
    "delete": steps.DeleteDisk(volume=OWN, **DISK),
    "copy": steps.CopyDisk(volume=OWN, source=OTHER, **DISK),
    "update": steps.UpdateDisks(changes={"scsi1": "a:b"}, delete=("scsi2",), digest="d", **NODE),
    "revert": steps.RevertDisks(slots=("scsi1",), **NODE),
    "expand": steps.ExpandDisk(slot="scsi1", size_mib=2048, **NODE),
    "create": steps.CreateHelperVM(vm=VM, description="", config={"protection": 1}),
    "clone": steps.CloneHelperVM(vm=VM, source=10_001, name="n", description="", full=True),
    "configure": steps.ConfigureHelperVM(vm=VM, changes={"tags": "a"}, digest="d"),
    "migrate": steps.MigrateHelperVM(vm=VM, target="h1"),
    "destroy": steps.DestroyHelperVM(vm=VM),
    "snapshot": steps.CreateNativeSnapshot(vm=VM, name="snap", description=""),
    "delete snapshot": steps.DeleteNativeSnapshot(vm=VM, name="snap"),
    "replicate": steps.EnsureReplicationJob(vm=VM, job="10000-0", target="h1", schedule="*/5"),
    "schedule": steps.SetReplicationSchedule(vm=VM, job="10000-0", schedule="*/5"),
    "end replication": steps.DeleteReplicationJob(vm=VM, job="10000-0"),
}
FOREIGN: dict[str, Step] = {
    "allocate": steps.AllocateDisk(volume=OTHER, size=1 << 30, **DISK),
    "delete": steps.DeleteDisk(volume=OTHER, **DISK),
    "copy": steps.CopyDisk(volume=OTHER, source=OWN, **DISK),
    "update": steps.UpdateDisks(changes={"net0": "x"}, digest="d", **NODE),
    "detach": steps.UpdateDisks(changes={}, delete=("memory",), digest="d", **NODE),
    "revert": steps.RevertDisks(slots=("boot",), **NODE),
    "expand": steps.ExpandDisk(slot="efidisk0", size_mib=1, **NODE),
    "replicate": steps.EnsureReplicationJob(vm=VM, job="101-0", target="h1", schedule="*/5"),
    "schedule": steps.SetReplicationSchedule(vm=VM, job="101-0", schedule="*/5"),
    "end replication": steps.DeleteReplicationJob(vm=VM, job="101-0"),
}


def perform(step: Step, *, dry_run: bool = False) -> tuple[RecordingTransport, AuditList]:
    transport, audit = RecordingTransport(), AuditList()
    pve = PveWriter(transport, Effects(audit, dry_run=dry_run), step.owned)
    try:
        asyncio.run(step.perform(pve))
    finally:
        assert len(audit.records) == len(transport.sent) or dry_run
    return transport, audit


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_step_sends_one_write_that_is_audited_with_its_proof(step: Step) -> None:
    transport, audit = perform(step)
    assert len(transport.sent) == 1
    (record,) = audit.records
    assert (record.region, record.outcome, record.proof) == ("r1", "ok", step.owned.proof)
    assert record.proof


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_dry_run_refuses_every_step(step: Step) -> None:
    with pytest.raises(DryRun):
        perform(step, dry_run=True)


@pytest.mark.parametrize("step", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_step_on_a_foreign_target_sends_nothing(step: Step) -> None:
    transport = RecordingTransport()
    with pytest.raises(Foreign):
        asyncio.run(step.perform(PveWriter(transport, Effects(AuditList()), step.owned)))
    assert transport.sent == []


def test_every_step_is_tried() -> None:
    own = {
        kind
        for kind in vars(steps).values()
        if isinstance(kind, type) and issubclass(kind, Step) and kind.__module__ == steps.__name__
    }
    concrete = {kind for kind in own if kind.perform is not Step.perform}
    assert concrete == {type(step) for step in STEPS.values()}


MARK = Mark("2b0d7a44-6a52-4a6e-9f43-0c63d7b7f4a1")


@pytest.mark.parametrize(
    ("config", "proof"),
    [
        ({"tags": "moxwell;moxwell-csi-helper"}, "helper VM tag"),
        ({"tags": "moxwell;moxwell-csi-shell"}, "helper VM tag"),  # the tag of earlier versions
        ({"description": MARK.describe("x")}, "owner mark in the description"),
        ({"tags": "web", "description": "a guest of somebody else"}, None),
    ],
)
def test_only_a_helper_vm_can_be_the_target_of_a_step(
    config: dict[str, str], proof: str | None
) -> None:
    class Named:
        name = "r1"

    vm = HelperVM(10_000, "h0", GuestConfig(config))
    region: Any = Named()
    if proof is None:
        with pytest.raises(Foreign):
            vm.ref(region)
    else:
        assert vm.ref(region).proof == proof


def test_tags_of_earlier_versions_are_read() -> None:
    old = ("moxwell", "moxwell-csi-shell", "moxwell-csi-carrier", "moxwell-csi-gone")
    assert is_helper_vm(old)
    assert {REFERENCE_TAG, DELETED_TAG} <= current_tags(old)
    vm = HelperVM(10_000, "h0", GuestConfig({"tags": ";".join(old)}))
    assert vm.is_reference
    assert vm.is_volume_deleted
    assert not is_helper_vm(("moxwell", REFERENCE_TAG))
