"""Wishes about one guest's disks, as a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.csi.attach_plan import SLOTS, Adjust, Attach, Detach, Wish, is_live, make_plan
from moxwell.csi.errors import Incompatible, NoRoom, NotNow
from moxwell.csi.ids import Identity
from moxwell.errors import Missing
from moxwell.pve.errors import Locked
from moxwell.pve.guests import GuestConfig

ID = Identity("0x5000000000000001", "pvc1")
BOOT = {"boot": "order=scsi0", "scsi0": "s:vm-1-disk-0,size=8G"}
A = "s:vm-9999-pvc-a"
BACKED = {"backup": "1"}
DRIVE_A = f"{A},wwn={ID.wwn},serial={ID.serial}"


def config(**more: str) -> GuestConfig:
    return GuestConfig({**BOOT, **more})


FULL = {slot: f"s:other-{slot}" for slot in SLOTS}


@pytest.mark.parametrize(
    ("have", "wish", "changes", "deletes"),
    [
        pytest.param({}, Attach(A, ID), {"scsi1": DRIVE_A}, (), id="first free slot"),
        pytest.param({"scsi1": "s:x"}, Attach(A, ID), {"scsi2": DRIVE_A}, (), id="next slot"),
        pytest.param({"scsi4": DRIVE_A}, Attach(A, ID), {}, (), id="attached already"),
        pytest.param({"scsi4": DRIVE_A}, Detach(A), {}, ("scsi4",), id="taken off"),
        pytest.param({"scsi4": f"{A}0"}, Detach(A), {}, (), id="a longer name is another disk"),
        pytest.param({}, Detach(A), {}, (), id="nothing to take off"),
        pytest.param(
            {"scsi4": f"{A},backup=0,size=1G"},
            Adjust(A, {"backup": "1"}),
            {"scsi4": f"{A},backup=1,size=1G"},
            (),
            id="an option changes and the rest stays",
        ),
        pytest.param(
            {"scsi4": f"{A},iops_rd=5"},
            Adjust(A, {"iops_rd": None}),
            {"scsi4": A},
            (),
            id="a limit is lifted",
        ),
        pytest.param(
            {"scsi4": f"{A},backup=1"}, Adjust(A, {"backup": "1"}), {}, (), id="so already"
        ),
    ],
)
def test_one_wish(
    have: dict[str, str], wish: Wish, changes: dict[str, str], deletes: tuple[str, ...]
) -> None:
    plan = make_plan(config(**have), [wish])
    assert (plan.changes, plan.deletes, plan.refusals) == (changes, deletes, {})


@pytest.mark.parametrize(
    ("have", "wish", "refusal"),
    [
        pytest.param({}, Detach("s:vm-1-disk-0"), NotNow, id="the boot disk is not taken off"),
        pytest.param({}, Attach("s:vm-1-disk-0", ID), NotNow, id="nor is it a volume"),
        pytest.param(FULL, Attach(A, ID), NoRoom, id="no slot is free"),
        pytest.param({"scsi1": A}, Attach(A, ID, {"ro": "1"}), Incompatible, id="not read-only"),
        pytest.param({}, Adjust(A, {"backup": "1"}), Missing, id="not there to adjust"),
    ],
)
def test_a_refusal(have: dict[str, str], wish: Wish, refusal: type[Exception]) -> None:
    plan = make_plan(config(**have), [wish])
    assert [type(r) for r in plan.refusals.values()] == [refusal]
    assert not plan.writes


def test_a_locked_guest_is_busy() -> None:
    with pytest.raises(Locked):
        make_plan(config(lock="backup"), [Attach(A, ID)])


names = st.sampled_from([f"s:vm-9999-pvc-{n}" for n in range(40)])
wishes = st.lists(names.map(lambda n: Attach(n, ID)) | names.map(Detach), max_size=40)


@given(held=st.lists(names, unique=True, max_size=30), asked=wishes)
def test_a_plan_that_is_carried_out_makes_every_granted_wish_true(
    held: list[str], asked: list[Wish]
) -> None:
    before = config(**dict(zip(SLOTS, held, strict=False)))
    last = {w.volid: w for w in asked}  # a volume is wished for once at a time
    distinct = list(last.values())
    plan = make_plan(before, distinct)
    after = {k: v for k, v in before.raw.items() if k not in plan.deletes} | plan.changes
    live = GuestConfig(after)
    assert all(is_live(distinct[i], slot, live) for i, slot in plan.slots.items())
    volumes = [text.partition(",")[0] for text in live.disks.values()]
    assert len(volumes) == len(set(volumes))
    assert set(plan.changes) & set(before.raw) == set()
