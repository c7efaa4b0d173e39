"""A controller killed after every single effect of every call, and every single answer lost."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.errors import AttachedElsewhere
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi_calls import GIB
from moxwell.testing.csi_kill import Part, Play, Story, after_each_effect

ZONES = {"local-lvm": "r1-h0", "local-zfs": "r1-h0", "ceph": "", "nfs": ""}


async def make(play: Play, name: str, storage: str, **how: Any) -> None:
    play.kept[name] = await calls.create(
        play.control, name, storage, **{"zone": ZONES[storage], **how}
    )


def source_of(play: Play, name: str) -> Any:
    found = play.kept[name]
    return calls.of_snapshot(found) if hasattr(found, "snapshot_id") else calls.of_volume(found)


def made(storage: str, *, snapshot: bool = False, attached: bool = False, **how: Any) -> Part:
    async def prepare(play: Play) -> None:
        await make(play, "pvc-1", storage, **how)
        play.stage.write(play.kept["pvc-1"].volume_id, "monday")
        if snapshot:
            play.kept["snap"] = await calls.snapshot(play.control, "snap", play.kept["pvc-1"])
        if attached:
            await calls.attach(play.control, play.kept["pvc-1"])

    return prepare


async def nothing(play: Play) -> None:
    return None


async def undo(play: Play) -> None:
    """Everything that an orchestrator knows of, away."""
    for name, thing in play.kept.items():
        if name.startswith("pvc"):
            for vmid in (101, 102):
                await calls.detach(play.control, thing, vmid)
    for name, thing in play.kept.items():
        if name.startswith("snap"):
            await calls.unsnapshot(play.control, thing)
        elif name.startswith("pvc"):
            await calls.delete(play.control, thing)


def contents(**wanted: str) -> Part:
    async def check(play: Play) -> None:
        listed = await calls.volumes(play.control)
        assert listed == sorted(
            v.volume_id for name, v in play.kept.items() if name.startswith("pvc")
        )
        for name, mark in wanted.items():
            volume = play.kept[name.replace("_", "-")]
            assert play.stage.content(volume.volume_id) == mark

    return check


def creating(storage: str) -> Story:
    async def act(play: Play) -> None:
        await make(play, "pvc-1", storage)

    return Story(nothing, act, contents(), undo)


def restoring(storage: str, *, snapshot: bool = True, **how: Any) -> Story:
    async def act(play: Play) -> None:
        source = source_of(play, "snap" if snapshot else "pvc-1")
        await make(play, "pvc-2", storage, source=source, **how)

    async def retreat(play: Play) -> None:
        await act(play)  # an id is only known from an answer, so it is asked for
        await calls.delete(play.control, play.kept.pop("pvc-2"))

    checked = contents(pvc_1="monday", pvc_2="monday")
    return Story(made(storage, snapshot=snapshot), act, checked, undo, retreat)


def snapping(storage: str, *, attached: bool = False) -> Story:
    async def act(play: Play) -> None:
        taken = await calls.snapshot(play.control, "snap", play.kept["pvc-1"])
        assert play.kept.setdefault("snap", taken).snapshot_id == taken.snapshot_id

    async def retreat(play: Play) -> None:
        await act(play)
        await calls.unsnapshot(play.control, play.kept["snap"])

    async def check(play: Play) -> None:
        assert len(await calls.snapshots(play.control)) == 1
        await contents(pvc_1="monday")(play)

    return Story(made(storage, attached=attached), act, check, undo, retreat)


def unsnapping(storage: str, *, gone: bool) -> Story:
    async def prepare(play: Play) -> None:
        await made(storage, snapshot=True)(play)
        if gone:
            await calls.delete(play.control, play.kept.pop("pvc-1"))

    async def act(play: Play) -> None:
        await calls.unsnapshot(play.control, play.kept["snap"])

    async def check(play: Play) -> None:
        assert await calls.snapshots(play.control) == []
        assert len(play.stage.all_disks()) == (0 if gone else 1)
        assert play.stage.helper_vms() == []

    return Story(prepare, act, check, undo)


def deleting(storage: str, *, snapshot: bool, clone: bool = False) -> Story:
    async def prepare(play: Play) -> None:
        await made(storage, snapshot=snapshot)(play)
        if clone:
            await make(play, "pvc-2", storage, source=source_of(play, "pvc-1"))

    async def act(play: Play) -> None:
        name = "pvc-2" if clone else "pvc-1"
        await calls.delete(play.control, play.kept[name])

    async def check(play: Play) -> None:
        left = [play.kept["pvc-1"].volume_id] if clone else []
        assert await calls.volumes(play.control) == left
        assert len(await calls.snapshots(play.control)) == int(snapshot)
        for name in ("pvc-2",) if clone else ("pvc-1",):
            play.kept.pop(name)

    return Story(prepare, act, check, undo)


def publishing(storage: str, *, promised: bool = False, copied: bool = False) -> Story:
    name = "pvc-2" if copied else "pvc-1"

    async def prepare(play: Play) -> None:
        await made(storage)(play)
        if copied:
            await make(play, "pvc-2", storage, source=source_of(play, "pvc-1"), gib=2)
        if promised:
            await calls.expand(play.control, play.kept["pvc-1"], 2)

    async def act(play: Play) -> None:
        await calls.attach(play.control, play.kept[name])

    async def retreat(play: Play) -> None:
        await calls.detach(play.control, play.kept[name])

    async def check(play: Play) -> None:
        drive = str(play.stage.conf(101)["scsi1"])
        assert play.kept[name].volume_id.rpartition("/")[2] in drive
        assert "scsi2" not in play.stage.conf(101)
        assert ("size=2G" in drive) == (promised or copied)

    return Story(prepare, act, check, undo, retreat)


def moving_on(storage: str) -> Story:
    """The orchestrator gives up on one node and takes another, without a detach in between."""

    async def act(play: Play) -> None:
        await calls.attach(play.control, play.kept["pvc-1"], 101)

    async def retreat(play: Play) -> None:
        try:
            await calls.attach(play.control, play.kept["pvc-1"], 102)
        except AttachedElsewhere:
            await calls.detach(play.control, play.kept["pvc-1"], 101)
            raise

    async def check(play: Play) -> None:
        assert "scsi1" in play.stage.conf(101)

    return Story(made(storage), act, check, undo, retreat)


def unpublishing(storage: str) -> Story:
    async def act(play: Play) -> None:
        await calls.detach(play.control, play.kept["pvc-1"])

    async def check(play: Play) -> None:
        assert "scsi1" not in play.stage.conf(101)
        await calls.attach(play.control, play.kept["pvc-1"], 102 if storage == "ceph" else 101)

    return Story(made(storage, attached=True), act, check, undo)


def expanding(storage: str, *, attached: bool) -> Story:
    async def act(play: Play) -> None:
        assert await calls.expand(play.control, play.kept["pvc-1"], 2) == 2 * GIB

    async def check(play: Play) -> None:
        await calls.attach(play.control, play.kept["pvc-1"])
        assert "size=2G" in str(play.stage.conf(101)["scsi1"])

    return Story(made(storage, attached=attached), act, check, undo, nothing)


def modifying(storage: str, *, attached: bool) -> Story:
    async def act(play: Play) -> None:
        await calls.modify(play.control, play.kept["pvc-1"], diskIOPS="500")

    async def check(play: Play) -> None:
        await calls.attach(play.control, play.kept["pvc-1"])
        assert "iops_rd=500" in str(play.stage.conf(101)["scsi1"])

    return Story(made(storage, attached=attached), act, check, undo, nothing)


def replicating(what: str) -> Story:
    params = {"replicate": "true", "replicateZones": "r1-h0,r1-h1"}

    async def born(play: Play) -> None:
        await make(play, "pvc-1", "local-zfs", params=params)
        play.stage.write(f"r1/r1-h0/{play.kept['pvc-1'].volume_id.split('/', 2)[2]}", "monday")

    async def follow(play: Play) -> None:
        await calls.attach(play.control, play.kept["pvc-1"], 102)

    async def gone(play: Play) -> None:
        await calls.delete(play.control, play.kept["pvc-1"])

    async def check(play: Play) -> None:
        listed = await calls.volumes(play.control)
        assert listed == ([] if what == "delete" else [play.kept["pvc-1"].volume_id])
        if what == "follow":
            assert "pvc-1" in str(play.stage.conf(102)["scsi1"])

    act = {"create": born, "follow": follow, "delete": gone}[what]
    return Story(nothing if what == "create" else born, act, check, undo)


STORIES = {
    "create on one host": creating("local-lvm"),
    "create for all hosts": creating("ceph"),
    "restore, linked": restoring("local-lvm"),
    "restore, copied from a storage's snapshot": restoring("ceph"),
    "restore, copied from a copy": restoring("local-zfs"),
    "restore on another host": restoring("local-lvm", zone="r1-h1"),
    "clone through a passing snapshot": restoring("local-lvm", snapshot=False),
    "clone by copy": restoring("local-zfs", snapshot=False),
    "snapshot by the storage": snapping("local-lvm"),
    "snapshot by the storage, in use": snapping("ceph", attached=True),
    "snapshot by copy": snapping("local-zfs"),
    "delete a snapshot": unsnapping("local-lvm", gone=False),
    "delete the last snapshot of a deleted volume": unsnapping("ceph", gone=True),
    "delete a copy": unsnapping("local-zfs", gone=False),
    "delete": deleting("local-lvm", snapshot=False),
    "delete with a snapshot": deleting("ceph", snapshot=True),
    "delete with a copied snapshot": deleting("local-zfs", snapshot=True),
    "delete a clone": deleting("local-lvm", snapshot=False, clone=True),
    "publish": publishing("ceph"),
    "publish what shall grow": publishing("local-lvm", promised=True),
    "publish a clone that shall grow": publishing("local-lvm", copied=True),
    "publish, then elsewhere": moving_on("ceph"),
    "unpublish": unpublishing("ceph"),
    "expand online": expanding("ceph", attached=True),
    "expand offline": expanding("local-lvm", attached=False),
    "modify attached": modifying("ceph", attached=True),
    "modify detached": modifying("ceph", attached=False),
    "create replicated": replicating("create"),
    "follow a pod": replicating("follow"),
    "delete replicated": replicating("delete"),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_a_kill_costs_a_call_and_nothing_else(tmp_path: Path, story: Story) -> None:
    assert after_each_effect(tmp_path, story)
