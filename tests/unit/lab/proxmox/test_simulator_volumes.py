"""Volume names, capacity, content lists, uploads and backups."""

import re

import pytest

from moxwell.lab.proxmox.request_context import UploadedFile
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore
from support.simulator_session import SimulatorSession, run_session

NAMES = [
    ("files", "shared", "shared:100/vm-100-disk-0.raw", "shared:100/base-100-disk-0.raw"),
    ("LVM-thin", "thin", "thin:vm-100-disk-0", "thin:base-100-disk-0"),
    ("ZFS", "tank", "tank:vm-100-disk-0", "tank:base-100-disk-0"),
    ("Ceph", "ceph", "ceph:vm-100-disk-0", "ceph:base-100-disk-0"),
    ("thick LVM has no bases", "thick", "thick:vm-100-disk-0", "thick:vm-100-disk-0"),
]


@pytest.mark.parametrize("case", NAMES, ids=[case[0] for case in NAMES])
def test_volume_names_by_storage_type(case: tuple[str, str, str, str]) -> None:
    _, storage, disk, base = case

    async def body(sim: SimulatorSession) -> None:
        conf = await sim.vm(scsi0=f"{storage}:1")
        assert conf["scsi0"] == f"{disk},size=1G"
        await sim.run_task("POST", "/nodes/n1/qemu/100/template")
        assert (await sim.config())["scsi0"] == f"{base},size=1G"

    run_session(body)


LINKED = [
    ("files", "shared", "shared:100/base-100-disk-0.raw/101/vm-101-disk-0.qcow2"),
    ("LVM-thin forgets the base", "thin", "thin:vm-101-disk-0"),
    ("ZFS", "tank", "tank:base-100-disk-0/vm-101-disk-0"),
    ("Ceph", "ceph", "ceph:base-100-disk-0/vm-101-disk-0"),
]


@pytest.mark.parametrize("case", LINKED, ids=[case[0] for case in LINKED])
def test_linked_clones_are_named_after_their_base(case: tuple[str, str, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0=f"{case[1]}:1")
        await sim.run_task("POST", "/nodes/n1/qemu/100/template")
        assert (await sim.run_task("POST", "/nodes/n1/qemu/100/clone", newid="101")).status == "OK"
        assert (await sim.config(101))["scsi0"] == f"{case[2]},size=1G"

    run_session(body)


def test_lvm_does_not_support_linked_clones() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="thick:1")
        await sim.run_task("POST", "/nodes/n1/qemu/100/template")
        answer = await sim.post("/nodes/n1/qemu/100/clone", newid="101")
        assert answer.message == (
            "Linked clone feature is not supported for 'thick:vm-100-disk-0' (scsi0)"
        )

    run_session(body)


def test_a_full_storage_fails_the_task_and_leaves_no_volume() -> None:
    async def body(sim: SimulatorSession) -> None:
        ended = await sim.run_task(
            "POST", "/nodes/n1/qemu", vmid="100", scsi0="thick:1", scsi1="thick:5"
        )
        assert "insufficient free space" in ended.status
        assert await sim.get("/nodes/n1/storage/thick/content") == []
        assert (await sim.request("GET", "/nodes/n1/qemu/100/config")).status == 500

    run_session(body)


def test_a_copy_that_does_not_fit_is_removed() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1,format=qcow2")
        VolumeStore(sim.engine.runtimes["r1"], "n1").set_used(
            "shared:100/vm-100-disk-0.qcow2", 1 << 30
        )
        sim.region.storages["shared"].capacity = (1 << 30) + (64 << 20)
        ended = await sim.run_task("POST", "/nodes/n1/qemu/100/clone", newid="101")
        assert ended.status.startswith("clone failed: copy failed:")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="images")
        assert [row["vmid"] for row in rows] == [100]
        assert 101 not in sim.region.guests

    run_session(body)


def test_a_clone_takes_the_time_of_the_bandwidth() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        quick = await sim.run_task("POST", "/nodes/n1/qemu/100/clone", newid="101")
        slow = await sim.run_task("POST", "/nodes/n1/qemu/100/clone", newid="102", bwlimit="10240")
        assert quick.seconds == pytest.approx((1 << 30) / (100 << 20), rel=0.1)
        assert slow.seconds == pytest.approx((1 << 30) / (10 << 20), rel=0.01)

    run_session(body)


ALLOC = [
    ("a foreign id", "vm-777-pvc-1.raw", 200, "shared:777/vm-777-pvc-1.raw"),
    ("no name at all", "", 200, "shared:777/vm-777-disk-0.raw"),
    ("a name of its own", "foo.raw", 200, "shared:777/foo.raw"),
    ("a name without extension", "vm-777-x", 500, "unable to parse volume filename 'vm-777-x'"),
    ("a name with a blank", "vm 1.raw", 500, "unable to parse volume filename 'vm 1.raw'"),
]


@pytest.mark.parametrize("case", ALLOC, ids=[case[0] for case in ALLOC])
def test_allocating_an_image(case: tuple[str, str, int, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        path = "/nodes/n1/storage/shared/content"
        answer = await sim.post(path, vmid="777", filename=case[1], size="1G")
        assert (answer.status, answer.data or answer.message) == (case[2], case[3])

    run_session(body)


def test_block_storages_require_the_vmid_in_the_name() -> None:
    async def body(sim: SimulatorSession) -> None:
        path = "/nodes/n1/storage/tank/content"
        assert (await sim.post(path, vmid="7777", filename="foo", size="1G")).message == (
            "illegal name 'foo' - should be 'vm-7777-*'"
        )
        assert (await sim.post(path, vmid="7777", filename="vm-7777-a", size="1G")).status == 200
        assert (
            "already exists"
            in (await sim.post(path, vmid="7777", filename="vm-7777-a", size="1G")).message
        )

    run_session(body)


def test_an_upload_keeps_its_bytes() -> None:
    async def body(sim: SimulatorSession) -> None:
        form = {"content": "iso"}
        path = "/nodes/n1/storage/shared/upload"
        answer = await sim.request("POST", path, form, upload=UploadedFile("a b.iso", b"hello"))
        await sim.engine.runtimes["r1"].workers.wait(answer.data)
        info = await sim.get("/nodes/n1/storage/shared/content/shared:iso/a_b.iso")
        assert info["size"] == 512  # whole sectors, as qemu-img reports
        assert sim.region.storages["shared"].volumes_on("n1")["iso/a_b.iso"].data == b"hello"

    run_session(body)


def test_a_wrong_checksum_fails_the_upload() -> None:
    async def body(sim: SimulatorSession) -> None:
        form = {"content": "iso", "checksum": "00", "checksum-algorithm": "md5"}
        path = "/nodes/n1/storage/shared/upload"
        answer = await sim.request("POST", path, form, upload=UploadedFile("a.iso", b"hello"))
        task = await sim.engine.runtimes["r1"].workers.wait(answer.data)
        assert (task.exitstatus or "").startswith("checksum mismatch: got ")

    run_session(body)


def test_a_restored_backup_is_the_same_guest() -> None:
    async def body(sim: SimulatorSession) -> None:
        conf = await sim.vm(scsi0="shared:1,format=qcow2", name="one", cores="2")
        content_id = (
            sim.region.storages["shared"].volumes_on("n1")["100/vm-100-disk-0.qcow2"].content_id
        )
        ended = await sim.run_task("POST", "/nodes/n1/vzdump", vmid="100", storage="local")
        assert ended.status == "OK"
        assert ended.seconds == pytest.approx((1 << 30) / (100 << 20), rel=0.1)
        (row,) = await sim.get("/nodes/n1/storage/local/content", content="backup")
        assert (row["vmid"], row["subtype"]) == (100, "qemu")
        await sim.run_task("POST", "/nodes/n1/qemu", vmid="200", archive=row["volid"])
        again = await sim.config(200)
        assert (again["name"], again["cores"], again["smbios1"]) == ("one", 2, conf["smbios1"])
        assert (
            sim.region.storages["shared"].volumes_on("n1")["200/vm-200-disk-0.qcow2"].content_id
            == content_id
        )

    run_session(body)


def test_a_guest_is_locked_while_it_is_backed_up() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        upid = (await sim.post("/nodes/n1/vzdump", vmid="100", storage="local")).data
        await sim.clock.sleep(1)
        answer = await sim.put("/nodes/n1/qemu/100/config", cores="2")
        assert answer.message == "VM is locked (backup)"
        await sim.engine.runtimes["r1"].workers.wait(upid)
        assert (await sim.put("/nodes/n1/qemu/100/config", cores="2")).status == 200

    run_session(body)


def test_backup_retention() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        keep = {"prune-backups": "keep-last=2"}
        for _ in range(4):
            await sim.run_task("POST", "/nodes/n1/vzdump", vmid="100", storage="local", **keep)
            await sim.clock.sleep(5)
        assert len(await sim.get("/nodes/n1/storage/local/content", content="backup")) == 2

    run_session(body)


def test_linstor_generates_names() -> None:
    async def body(sim: SimulatorSession) -> None:
        conf = await sim.vm(scsi0="lin:1", ide2="lin:cloudinit")
        assert re.fullmatch(r"lin:pm-[0-9a-f]{8}_100,size=1G", conf["scsi0"])
        assert conf["ide2"] == "lin:vm-100-cloudinit,media=cdrom"
        path = "/nodes/n1/storage/lin/content"
        answer = await sim.post(path, vmid="9999", filename="vm-9999-pvc-1", size="1G")
        assert answer.data == "lin:vm-9999-pvc-1"
        answer = await sim.post(path, vmid="9999", filename="vm-9999-snapshot-1", size="1G")
        assert "has to be a valid UUID, legacy, state, or cloud-init name" in answer.message
        await sim.run_task("POST", "/nodes/n1/qemu/100/template")
        answer = await sim.post("/nodes/n1/qemu/100/clone", newid="101")
        assert answer.message.startswith("Linked clone feature is not supported for 'lin:pm-")

    run_session(body)
