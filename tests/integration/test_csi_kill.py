"""CSI calls with the controller killed or a response lost after every write."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.errors import AttachedElsewhere
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi_calls import GIB
from moxwell.testing.csi_kill import Phase, Scenario, ScenarioRun, after_each_effect

ZONES = {"local-lvm": "r1-h0", "local-zfs": "r1-h0", "ceph": "", "nfs": ""}


async def make(run: ScenarioRun, name: str, storage: str, **how: Any) -> None:
    run.objects[name] = await calls.create(
        run.control, name, storage, **{"zone": ZONES[storage], **how}
    )


def source_of(run: ScenarioRun, name: str) -> Any:
    found = run.objects[name]
    return calls.of_snapshot(found) if hasattr(found, "snapshot_id") else calls.of_volume(found)


def prepare_volume(
    storage: str, *, snapshot: bool = False, attached: bool = False, **how: Any
) -> Phase:
    async def prepare(run: ScenarioRun) -> None:
        await make(run, "pvc-1", storage, **how)
        run.env.write(run.objects["pvc-1"].volume_id, "monday")
        if snapshot:
            run.objects["snap"] = await calls.snapshot(run.control, "snap", run.objects["pvc-1"])
        if attached:
            await calls.attach(run.control, run.objects["pvc-1"])

    return prepare


async def nothing(run: ScenarioRun) -> None:
    return None


async def undo(run: ScenarioRun) -> None:
    """Delete everything the orchestrator knows."""
    for name, thing in run.objects.items():
        if name.startswith("pvc"):
            for vmid in (101, 102):
                await calls.detach(run.control, thing, vmid)
    for name, thing in run.objects.items():
        if name.startswith("snap"):
            await calls.unsnapshot(run.control, thing)
        elif name.startswith("pvc"):
            await calls.delete(run.control, thing)


def contents(**wanted: str) -> Phase:
    async def check(run: ScenarioRun) -> None:
        listed = await calls.volumes(run.control)
        assert listed == sorted(
            v.volume_id for name, v in run.objects.items() if name.startswith("pvc")
        )
        for name, mark in wanted.items():
            volume = run.objects[name.replace("_", "-")]
            assert run.env.content(volume.volume_id) == mark

    return check


def creating(storage: str) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        await make(run, "pvc-1", storage)

    return Scenario(nothing, act, contents(), undo)


def restoring(storage: str, *, snapshot: bool = True, **how: Any) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        source = source_of(run, "snap" if snapshot else "pvc-1")
        await make(run, "pvc-2", storage, source=source, **how)

    async def give_up(run: ScenarioRun) -> None:
        await act(run)  # the id is only known from the response
        await calls.delete(run.control, run.objects.pop("pvc-2"))

    checked = contents(pvc_1="monday", pvc_2="monday")
    return Scenario(prepare_volume(storage, snapshot=snapshot), act, checked, undo, give_up)


def taking_snapshot(storage: str, *, attached: bool = False) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        snapshot = await calls.snapshot(run.control, "snap", run.objects["pvc-1"])
        assert run.objects.setdefault("snap", snapshot).snapshot_id == snapshot.snapshot_id

    async def give_up(run: ScenarioRun) -> None:
        await act(run)
        await calls.unsnapshot(run.control, run.objects["snap"])

    async def check(run: ScenarioRun) -> None:
        assert len(await calls.snapshots(run.control)) == 1
        await contents(pvc_1="monday")(run)

    return Scenario(prepare_volume(storage, attached=attached), act, check, undo, give_up)


def deleting_snapshot(storage: str, *, delete_replicated: bool) -> Scenario:
    async def prepare(run: ScenarioRun) -> None:
        await prepare_volume(storage, snapshot=True)(run)
        if delete_replicated:
            await calls.delete(run.control, run.objects.pop("pvc-1"))

    async def act(run: ScenarioRun) -> None:
        await calls.unsnapshot(run.control, run.objects["snap"])

    async def check(run: ScenarioRun) -> None:
        assert await calls.snapshots(run.control) == []
        assert len(run.env.all_disks()) == (0 if delete_replicated else 1)
        assert run.env.helper_vms() == []

    return Scenario(prepare, act, check, undo)


def deleting(storage: str, *, snapshot: bool, clone: bool = False) -> Scenario:
    async def prepare(run: ScenarioRun) -> None:
        await prepare_volume(storage, snapshot=snapshot)(run)
        if clone:
            await make(run, "pvc-2", storage, source=source_of(run, "pvc-1"))

    async def act(run: ScenarioRun) -> None:
        name = "pvc-2" if clone else "pvc-1"
        await calls.delete(run.control, run.objects[name])

    async def check(run: ScenarioRun) -> None:
        left = [run.objects["pvc-1"].volume_id] if clone else []
        assert await calls.volumes(run.control) == left
        assert len(await calls.snapshots(run.control)) == int(snapshot)
        for name in ("pvc-2",) if clone else ("pvc-1",):
            run.objects.pop(name)

    return Scenario(prepare, act, check, undo)


def publishing(storage: str, *, deferred: bool = False, cloned: bool = False) -> Scenario:
    name = "pvc-2" if cloned else "pvc-1"

    async def prepare(run: ScenarioRun) -> None:
        await prepare_volume(storage)(run)
        if cloned:
            await make(run, "pvc-2", storage, source=source_of(run, "pvc-1"), gib=2)
        if deferred:
            await calls.expand(run.control, run.objects["pvc-1"], 2)

    async def act(run: ScenarioRun) -> None:
        await calls.attach(run.control, run.objects[name])

    async def give_up(run: ScenarioRun) -> None:
        await calls.detach(run.control, run.objects[name])

    async def check(run: ScenarioRun) -> None:
        drive = str(run.env.conf(101)["scsi1"])
        assert run.objects[name].volume_id.rpartition("/")[2] in drive
        assert "scsi2" not in run.env.conf(101)
        assert ("size=2G" in drive) == (deferred or cloned)

    return Scenario(prepare, act, check, undo, give_up)


def attach_to_another_node(storage: str) -> Scenario:
    """The orchestrator gives up on one node and attaches to another without a detach."""

    async def act(run: ScenarioRun) -> None:
        await calls.attach(run.control, run.objects["pvc-1"], 101)

    async def give_up(run: ScenarioRun) -> None:
        try:
            await calls.attach(run.control, run.objects["pvc-1"], 102)
        except AttachedElsewhere:
            await calls.detach(run.control, run.objects["pvc-1"], 101)
            raise

    async def check(run: ScenarioRun) -> None:
        assert "scsi1" in run.env.conf(101)

    return Scenario(prepare_volume(storage), act, check, undo, give_up)


def unpublishing(storage: str) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        await calls.detach(run.control, run.objects["pvc-1"])

    async def check(run: ScenarioRun) -> None:
        assert "scsi1" not in run.env.conf(101)
        await calls.attach(run.control, run.objects["pvc-1"], 102 if storage == "ceph" else 101)

    return Scenario(prepare_volume(storage, attached=True), act, check, undo)


def expanding(storage: str, *, attached: bool) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        assert await calls.expand(run.control, run.objects["pvc-1"], 2) == 2 * GIB

    async def check(run: ScenarioRun) -> None:
        await calls.attach(run.control, run.objects["pvc-1"])
        assert "size=2G" in str(run.env.conf(101)["scsi1"])

    return Scenario(prepare_volume(storage, attached=attached), act, check, undo, nothing)


def modifying(storage: str, *, attached: bool) -> Scenario:
    async def act(run: ScenarioRun) -> None:
        await calls.modify(run.control, run.objects["pvc-1"], diskIOPS="500")

    async def check(run: ScenarioRun) -> None:
        await calls.attach(run.control, run.objects["pvc-1"])
        assert "iops_rd=500" in str(run.env.conf(101)["scsi1"])

    return Scenario(prepare_volume(storage, attached=attached), act, check, undo, nothing)


def replicating(what: str) -> Scenario:
    params = {"replicate": "true", "replicateZones": "r1-h0,r1-h1"}

    async def create_replicated(run: ScenarioRun) -> None:
        await make(run, "pvc-1", "local-zfs", params=params)
        run.env.write(f"r1/r1-h0/{run.objects['pvc-1'].volume_id.split('/', 2)[2]}", "monday")

    async def attach_elsewhere(run: ScenarioRun) -> None:
        await calls.attach(run.control, run.objects["pvc-1"], 102)

    async def delete_replicated(run: ScenarioRun) -> None:
        await calls.delete(run.control, run.objects["pvc-1"])

    async def check(run: ScenarioRun) -> None:
        listed = await calls.volumes(run.control)
        assert listed == ([] if what == "delete" else [run.objects["pvc-1"].volume_id])
        if what == "follow":
            assert "pvc-1" in str(run.env.conf(102)["scsi1"])

    act = {"create": create_replicated, "follow": attach_elsewhere, "delete": delete_replicated}[
        what
    ]
    return Scenario(nothing if what == "create" else create_replicated, act, check, undo)


SCENARIOS = {
    "create on local storage": creating("local-lvm"),
    "create on shared storage": creating("ceph"),
    "restore by linked clone": restoring("local-lvm"),
    "restore by full clone of a native snapshot": restoring("ceph"),
    "restore from a full copy": restoring("local-zfs"),
    "restore on another host": restoring("local-lvm", zone="r1-h1"),
    "clone with a temporary snapshot": restoring("local-lvm", snapshot=False),
    "clone by full copy": restoring("local-zfs", snapshot=False),
    "native snapshot": taking_snapshot("local-lvm"),
    "native snapshot while attached": taking_snapshot("ceph", attached=True),
    "snapshot by full copy": taking_snapshot("local-zfs"),
    "delete a snapshot": deleting_snapshot("local-lvm", delete_replicated=False),
    "delete the last snapshot of a deleted volume": deleting_snapshot(
        "ceph", delete_replicated=True
    ),
    "delete a snapshot copy": deleting_snapshot("local-zfs", delete_replicated=False),
    "delete": deleting("local-lvm", snapshot=False),
    "delete with a snapshot": deleting("ceph", snapshot=True),
    "delete with a copied snapshot": deleting("local-zfs", snapshot=True),
    "delete a clone": deleting("local-lvm", snapshot=False, clone=True),
    "publish": publishing("ceph"),
    "publish with a deferred size": publishing("local-lvm", deferred=True),
    "publish a clone with a larger size": publishing("local-lvm", cloned=True),
    "publish, then to another node": attach_to_another_node("ceph"),
    "unpublish": unpublishing("ceph"),
    "expand online": expanding("ceph", attached=True),
    "expand offline": expanding("local-lvm", attached=False),
    "modify attached": modifying("ceph", attached=True),
    "modify detached": modifying("ceph", attached=False),
    "create replicated": replicating("create"),
    "publish replicated on another host": replicating("follow"),
    "delete replicated": replicating("delete"),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_a_call_recovers_from_a_kill_after_any_write(tmp_path: Path, scenario: Scenario) -> None:
    assert after_each_effect(tmp_path, scenario)
