"""Planning of one configuration write for several disk requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.csi.attach_plan import (
    SLOTS,
    AttachRequest,
    DetachRequest,
    DiskRequest,
    UpdateRequest,
    is_applied,
    make_plan,
)
from moxwell.csi.errors import FailedPrecondition, Incompatible, InsufficientCapacity
from moxwell.csi.ids import DiskIdentity
from moxwell.errors import Missing
from moxwell.pve.errors import Locked
from moxwell.pve.guests import GuestConfig

ID = DiskIdentity("0x5000000000000001", "pvc1")
BOOT = {"boot": "order=scsi0", "scsi0": "s:vm-1-disk-0,size=8G"}
A = "s:vm-9999-pvc-a"
DRIVE_A = f"{A},wwn={ID.wwn},serial={ID.serial}"


def config(**more: str) -> GuestConfig:
    return GuestConfig({**BOOT, **more})


FULL = {slot: f"s:other-{slot}" for slot in SLOTS}


@pytest.mark.parametrize(
    ("have", "disk_request", "changes", "deletes"),
    [
        pytest.param({}, AttachRequest(A, ID), {"scsi1": DRIVE_A}, (), id="first free slot"),
        pytest.param(
            {"scsi1": "s:x"}, AttachRequest(A, ID), {"scsi2": DRIVE_A}, (), id="next slot"
        ),
        pytest.param({"scsi4": DRIVE_A}, AttachRequest(A, ID), {}, (), id="attached already"),
        pytest.param({"scsi4": DRIVE_A}, DetachRequest(A), {}, ("scsi4",), id="taken off"),
        pytest.param(
            {"scsi4": f"{A}0"}, DetachRequest(A), {}, (), id="a longer name is another disk"
        ),
        pytest.param({}, DetachRequest(A), {}, (), id="nothing to take off"),
        pytest.param(
            {"scsi4": f"{A},backup=0,size=1G"},
            UpdateRequest(A, {"backup": "1"}),
            {"scsi4": f"{A},backup=1,size=1G"},
            (),
            id="an option changes and the rest stays",
        ),
        pytest.param(
            {"scsi4": f"{A},iops_rd=5"},
            UpdateRequest(A, {"iops_rd": None}),
            {"scsi4": A},
            (),
            id="a limit is lifted",
        ),
        pytest.param(
            {"scsi4": f"{A},backup=1"}, UpdateRequest(A, {"backup": "1"}), {}, (), id="so already"
        ),
    ],
)
def test_plans_one_request(
    have: dict[str, str],
    disk_request: DiskRequest,
    changes: dict[str, str],
    deletes: tuple[str, ...],
) -> None:
    plan = make_plan(config(**have), [disk_request])
    assert (plan.changes, plan.deletes, plan.rejections) == (changes, deletes, {})


@pytest.mark.parametrize(
    ("have", "disk_request", "rejection"),
    [
        pytest.param(
            {},
            DetachRequest("s:vm-1-disk-0"),
            FailedPrecondition,
            id="the boot disk is not taken off",
        ),
        pytest.param(
            {}, AttachRequest("s:vm-1-disk-0", ID), FailedPrecondition, id="nor is it a volume"
        ),
        pytest.param(FULL, AttachRequest(A, ID), InsufficientCapacity, id="no slot is free"),
        pytest.param(
            {"scsi1": A}, AttachRequest(A, ID, {"ro": "1"}), Incompatible, id="not read-only"
        ),
        pytest.param({}, UpdateRequest(A, {"backup": "1"}), Missing, id="not there to adjust"),
    ],
)
def test_rejects_an_impossible_request(
    have: dict[str, str], disk_request: DiskRequest, rejection: type[Exception]
) -> None:
    plan = make_plan(config(**have), [disk_request])
    assert [type(r) for r in plan.rejections.values()] == [rejection]
    assert not plan.writes


def test_a_locked_guest_raises_locked() -> None:
    with pytest.raises(Locked):
        make_plan(config(lock="backup"), [AttachRequest(A, ID)])


names = st.sampled_from([f"s:vm-9999-pvc-{n}" for n in range(40)])
requests = st.lists(
    names.map(lambda n: AttachRequest(n, ID)) | names.map(DetachRequest), max_size=40
)


@given(attached=st.lists(names, unique=True, max_size=30), requests_made=requests)
def test_every_accepted_request_is_applied_after_the_write(
    attached: list[str], requests_made: list[DiskRequest]
) -> None:
    before = config(**dict(zip(SLOTS, attached, strict=False)))
    last = {r.volid: r for r in requests_made}  # one request per volume at a time
    distinct = list(last.values())
    plan = make_plan(before, distinct)
    after = {k: v for k, v in before.raw.items() if k not in plan.deletes} | plan.changes
    live = GuestConfig(after)
    assert all(is_applied(distinct[i], slot, live) for i, slot in plan.slots.items())
    volumes = [text.partition(",")[0] for text in live.disks.values()]
    assert len(volumes) == len(set(volumes))
    assert set(plan.changes) & set(before.raw) == set()
