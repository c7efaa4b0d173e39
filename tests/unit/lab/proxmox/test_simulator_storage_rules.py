"""Storage configuration: options per type, content types, what a refused change leaves."""

import pytest

from support.simulator_session import SimulatorSession, run_session

Form = dict[str, str]
Case = tuple[str, Form, str]

CREATED: list[Case] = [
    ("a directory", {"type": "dir", "path": "/mnt/a//b/"}, ""),
    ("an illegal path", {"type": "dir", "path": "/mnt/a b"},
     "illegal path for directory storage: /mnt/a b"),
    ("no path", {"type": "dir"}, "missing value for required option 'path'"),
    ("an option of another type", {"type": "dir", "path": "/mnt/a", "vgname": "vg0"},
     "unexpected property 'vgname'"),
    ("a shared thin pool", {"type": "lvmthin", "vgname": "vg0", "thinpool": "d", "shared": "1"},
     "unexpected property 'shared'"),
    ("none beside others", {"type": "dir", "path": "/mnt/a", "content": "none,iso"},
     "unable to combine 'none' with other content types"),
    ("no content on NFS", {"type": "nfs", "server": "192.0.2.7", "export": "/e", "content": ""},
     "storage does not support content type 'none'"),
    ("backups on LVM", {"type": "lvm", "vgname": "vg0", "content": "backup"},
     "storage does not support content type 'none'"),
    ("a name that is taken", {"storage": "shared", "type": "dir", "path": "/mnt/a"},
     "create storage failed: storage ID 'shared' already defined"),
    ("a missing base", {"type": "lvm", "vgname": "vg0", "base": "nosuch:0.0.0.x"},
     "create storage failed: base storage ID 'nosuch' does not exist"),
    ("a base that is no iSCSI", {"type": "lvm", "vgname": "vg0", "base": "shared:0.0.0.x"},
     "create storage failed: unsupported base type 'nfs'"),
]  # fmt: skip


@pytest.mark.parametrize("case", CREATED, ids=[case[0] for case in CREATED])
def test_each_type_has_its_options(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        answer = await sim.post("/storage", **({"storage": "new"} | case[1]))
        assert (answer.status, answer.message) == (500 if case[2] else 200, case[2])
        names = {row["storage"] for row in await sim.get("/storage")}
        assert ("new" in names) == (not case[2])

    run_session(body, "9.2.11")


SHOWN: list[tuple[str, Form, dict[str, object]]] = [
    ("dir", {"path": "/mnt/a//b/"}, {"path": "/mnt/a/b", "content": "images,rootdir"}),
    ("nfs", {"server": "192.0.2.7", "export": "/e"},
     {"path": "/mnt/pve/new", "content": "images", "shared": 1}),
    ("cifs", {"server": "192.0.2.7", "share": "s", "password": "p"},
     {"content": "images", "shared": 1, "password": None}),
    ("cephfs", {}, {"path": "/mnt/pve/new", "content": "backup", "shared": 1}),
    ("zfspool", {"pool": "rpool"}, {"content": "images,rootdir", "shared": None}),
    ("lvm", {"vgname": "vg0", "content": "images,iso"}, {"content": "images"}),
    ("btrfs", {"path": "/mnt/b", "content": ""}, {"content": "none"}),
]  # fmt: skip


@pytest.mark.parametrize("case", SHOWN, ids=[case[0] for case in SHOWN])
def test_a_new_storage_has_the_defaults_of_its_type(
    case: tuple[str, Form, dict[str, object]],
) -> None:
    async def body(sim: SimulatorSession) -> None:
        answer = await sim.post("/storage", storage="new", type=case[0], **case[1])
        assert answer.status == 200, answer
        row = await sim.get("/storage/new")
        assert {key: row.get(key) for key in case[2]} == case[2]

    run_session(body)


CHANGED: list[Case] = [
    ("a fixed option", {"base": "shared:x"}, "can't change value of fixed parameter 'base'"),
    ("an option of another type", {"subdir": "/x"}, "unexpected property 'subdir'"),
    ("a required option", {"delete": "vgname"}, "unable to delete required option 'vgname'"),
    ("a fixed option deleted", {"delete": "base"}, "unable to delete fixed option 'base'"),
    ("an unknown option", {"delete": "server"}, "no such option 'server'"),
    ("set and deleted", {"tagged_only": "1", "delete": "tagged_only"},
     "cannot set and delete property 'tagged_only' at the same time!"),
    ("an old digest", {"disable": "1", "digest": "0" * 40},
     "detected modified configuration - file changed by other user? Try again."),
]  # fmt: skip


@pytest.mark.parametrize("case", CHANGED, ids=[case[0] for case in CHANGED])
def test_refused_changes_leave_the_storage(case: Case) -> None:
    async def body(sim: SimulatorSession) -> None:
        before = await sim.get("/storage/thick")
        answer = await sim.put("/storage/thick", **case[1])
        if answer.status != 400:  # the schema of updates has no options that all types fix
            assert (answer.status, answer.message) == (500, f"update storage failed: {case[2]}")
        assert await sim.get("/storage/thick") == before

    run_session(body)


def test_the_content_of_a_storage_returns_to_its_default() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post("/pools", poolid="p")
        await sim.put("/pools/p", storage="thin")
        assert (await sim.put("/storage/local", nodes="n2", delete="content")).status == 200
        row = await sim.get("/storage/local")
        assert row["content"] == "images,rootdir"
        assert "nodes" not in row
        assert (await sim.request("DELETE", "/storage/local")).status == 200
        assert (await sim.get("/storage/local"))["path"] == "/var/lib/vz"
        assert (await sim.request("DELETE", "/storage/thin")).status == 200
        assert (await sim.get("/pools/p"))["members"] == []

    run_session(body)


def test_a_storage_of_other_nodes_is_listed_as_disabled() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post("/storage", storage="far", type="dir", path="/mnt/far", nodes="n2")
        rows = {row["storage"]: row for row in await sim.get("/nodes/n1/storage")}
        assert (rows["far"]["enabled"], rows["far"]["active"], rows["far"]["total"]) == (0, 0, 0)
        assert (await sim.get("/nodes/n1/storage/far/status"))["enabled"] == 0
        found = await sim.get("/nodes/n1/storage", content="images", target="n2")
        assert {"far", "local"} & {row["storage"] for row in found} == set()
        answer = await sim.request("GET", "/nodes/n1/storage", {"storage": "far", "content": "iso"})
        assert (answer.status, answer.errors) == (400, {"storage": "No such storage."})
        found = await sim.get("/nodes/n1/storage", storage="tank", format="1")
        assert found[0]["formats"] == {"supported": ["raw", "subvol"], "default": "raw"}
        assert found[0]["format"] == [{"raw": 1, "subvol": 1}, "raw"]

    run_session(body, "9.2.11")


def test_attributes_belong_to_backups() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1", scsi1="thin:1")
        shared = "/nodes/n1/storage/shared/content/shared:100/vm-100-disk-0.raw"
        thin = "/nodes/n1/storage/thin/content/thin:vm-100-disk-0"
        for path, form, wanted in (
            (shared, {"notes": "x"}, "only backups can have notes"),
            (shared, {"protected": "1"}, "only backups support attribute 'protected'"),
            (thin, {"notes": "x"}, "attribute 'notes' is not supported for storage type 'lvmthin'"),
        ):
            answer = await sim.put(path, **form)
            assert (answer.status, answer.message) == (500, wanted)

    run_session(body)


def test_protected_backups_are_limited() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await sim.put("/storage/shared", **{"max-protected-backups": "1"})
        for _ in range(2):
            await sim.run_task("POST", "/nodes/n1/vzdump", vmid="100", storage="shared")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
        first, second = (f"/nodes/n1/storage/shared/content/{row['volid']}" for row in rows)
        assert (await sim.put(first, protected="1")).status == 200
        answer = await sim.put(second, protected="1")
        wanted = "The number of protected backups per guest is limited to 1 on storage 'shared'"
        assert (answer.status, answer.message) == (500, wanted)

    run_session(body)


def test_a_volume_chain_shows_its_newest_snapshot_as_parent() -> None:
    async def body(sim: SimulatorSession) -> None:
        chain = {"snapshot-as-volume-chain": "1", "path": "/mnt/chain", "content": "images"}
        await sim.post("/storage", storage="chain", type="dir", **chain)
        await sim.vm(scsi0="chain:1,format=qcow2")
        for name in ("one", "two"):
            await sim.run_task("POST", "/nodes/n1/qemu/100/snapshot", snapname=name)
        rows = await sim.get("/nodes/n1/storage/chain/content")
        assert [(row["volid"], row["parent"]) for row in rows] == [
            ("chain:100/vm-100-disk-0.qcow2", "snap-two-vm-100-disk-0.qcow2")
        ]
        ended = await sim.run_task("POST", "/nodes/n1/qemu/100/snapshot/one/rollback")
        assert ended.status == (
            "can't rollback, 'one' is not most recent snapshot on '100/vm-100-disk-0.qcow2'"
        )

    run_session(body, "9.2.11")
