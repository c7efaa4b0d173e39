"""Backups, backup jobs and restores."""

from typing import Any

import pytest

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.volumes import vzdump_options
from moxwell.lab.proxmox.volumes.archives import GuestArchive, config_text, extract_command
from support.simulator_session import SimulatorSession, run_session

BACKUP = "/nodes/n1/vzdump"


@pytest.mark.parametrize(
    "options, errors",
    [
        pytest.param({}, {"vmid": "property is missing"}, id="nothing to back up"),
        pytest.param({"vmid": "100", "all": 1}, {"all": "option conflicts with option 'vmid'"},
                     id="all and some"),
        pytest.param({"vmid": "100", "notes-template": "a\n"},
                     {"notes-template": "contains a line feed\n"}, id="line feed in notes"),
        pytest.param({"vmid": "100", "notes-template": "{{vmid}} {{nosuch}}"},
                     {"notes-template": "found unknown: variable 'nosuch' at char 13\n"},
                     id="unknown variable"),
        pytest.param({"vmid": "100", "notes-template": r"\q"},
                     {"notes-template": r"found unknown: escape sequence '\q' at char 0" + "\n"},
                     id="unknown escape"),
    ],
)  # fmt: skip
def test_backup_options(options: dict[str, Any], errors: dict[str, str]) -> None:
    with pytest.raises(PveException) as caught:
        vzdump_options.verify(options)
    assert caught.value.errors == errors


def test_an_excluded_guest_means_all_others() -> None:
    options: dict[str, Any] = {"exclude": "100"}
    vzdump_options.verify(options)
    assert options["all"] == 1


def test_the_configuration_in_an_archive() -> None:
    conf = {"memory": "64", "description": "one\ntwo", "scsi0": "local:1/vm-1-disk-0.raw,size=1G",
            "virtio1": "local:1/vm-1-disk-1.raw,backup=0,size=1G"}  # fmt: skip
    text = config_text(GuestArchive("qemu", dict(conf)))
    assert text.splitlines() == [
        "#one",
        "#two",
        "memory: 64",
        "scsi0: local:1/vm-1-disk-0.raw,size=1G",
        "virtio1: local:1/vm-1-disk-1.raw,backup=0,size=1G",
        "#qmdump#map:scsi0:drive-scsi0:local:raw:",
    ]


@pytest.mark.parametrize(
    "path, command",
    [
        pytest.param("/d/a.vma", "vma extract -v -r /var/tmp/vzdumptmp7.fifo /d/a.vma"
                     " /var/tmp/vzdumptmp7", id="plain"),
        pytest.param("/d/a.vma.gz", "set -o pipefail && zcat /d/a.vma.gz | vma extract -v -r"
                     " /var/tmp/vzdumptmp7.fifo - /var/tmp/vzdumptmp7", id="gzip"),
    ],
)  # fmt: skip
def test_extract_commands(path: str, command: str) -> None:
    assert extract_command(path, 7) == command


def test_a_restore_leaves_out_disks_without_backup() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="local:1", scsi1="local:1,backup=0", description="mine")
        assert (await sim.run_task("POST", BACKUP, vmid="100", storage="shared")).status == "OK"
        rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
        archive = rows[0]["volid"]
        form = {"vmid": "101", "archive": archive, "storage": "shared"}
        assert (await sim.run_task("POST", "/nodes/n1/qemu", **form)).status == "OK"
        conf = await sim.config(101)
        assert conf["scsi0"] == "shared:101/vm-101-disk-0.raw,size=1G"
        assert conf["description"].startswith("mine\nscsi1: local:100/vm-100-disk-1.raw")
        failed = await sim.run_task("POST", "/nodes/n1/qemu", **{**form, "vmid": "102",
                                                                 "storage": "nosuch"})  # fmt: skip
        assert failed.status.endswith("failed: storage 'nosuch' does not exist")

    run_session(body, "9.2.11")


def test_a_container_comes_back() -> None:
    async def body(sim: SimulatorSession) -> None:
        form = {"vmid": "200", "ostemplate": "shared:vztmpl/debian-12.tar.gz", "rootfs": "local:1",
                "hostname": "ct"}  # fmt: skip
        assert (await sim.run_task("POST", "/nodes/n1/lxc", **form)).status == "OK"
        assert (await sim.run_task("POST", BACKUP, vmid="200", storage="shared")).status == "OK"
        rows = await sim.get("/nodes/n1/storage/shared/content", content="backup")
        again = {"vmid": "201", "ostemplate": rows[0]["volid"], "restore": "1", "storage": "shared"}
        assert (await sim.run_task("POST", "/nodes/n1/lxc", **again)).status == "OK"
        conf = await sim.get("/nodes/n1/lxc/201/config")
        assert (conf["hostname"], conf["rootfs"]) == ("ct", "shared:201/vm-201-disk-0.raw,size=1G")

    run_session(body, "9.2.11")


def test_a_job_for_other_guests_replaces_its_selection() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.post("/cluster/backup", id="job1", vmid="100", dow="mon", starttime="02:30")
        job = await sim.get("/cluster/backup/job1")
        assert (job["schedule"], job["vmid"]) == ("mon 02:30", "100")
        assert (await sim.put("/cluster/backup/job1", all="1")).status == 200
        assert "vmid" not in await sim.get("/cluster/backup/job1")
        refused = await sim.put("/cluster/backup/job1", delete="schedule")
        assert refused.message.endswith("delete: unknown option 'schedule'")

    run_session(body, "9.2.11")


JOB = {"vmid": "100", "storage": "shared", "schedule": "02:00"}


@pytest.mark.parametrize(
    "form, message",
    [
        pytest.param({}, "no options specified", id="nothing"),
        pytest.param({"vmid": "100", "all": "1"},
                     "400 Parameter verification failed.\n"
                     "all: option conflicts with option 'vmid'", id="a conflict in the request"),
        pytest.param({"schedule": "03:00", "starttime": "03:00"}, "Parameter verification failed.",
                     id="two schedules"),
        pytest.param({"delete": "vmid"},
                     "400 Parameter verification failed.\nvmid: property is missing",
                     id="nothing left to back up"),
    ],
)  # fmt: skip
def test_a_change_of_a_job_is_refused(form: dict[str, str], message: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.post("/cluster/backup", id="job1", **JOB)
        answer = await sim.put("/cluster/backup/job1", **form)
        assert answer.message.strip() == message

    run_session(session)


def test_the_guests_of_a_job_with_their_volumes() -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.vm(100, scsi0="local:1", name="one")
        await sim.vm(101)
        await sim.post("/cluster/backup", id="job1", **(JOB | {"vmid": "100,101", "node": "n1"}))
        rows = await sim.get("/cluster/backup/job1/included_volumes")
        found = {row["id"]: (row["name"], row["leaf"]) for row in rows["children"]}
        assert found == {100: ("one", 0), 101: (None, 1)}
        await sim.put("/cluster/backup/job1", delete="node", vmid="101")
        assert await sim.get("/cluster/backup-info/not-backed-up") == [
            {"vmid": 100, "type": "qemu", "name": "one"}
        ]

    run_session(session)


@pytest.mark.parametrize(
    "form, status",
    [
        pytest.param({"storage": "shared", "dumpdir": "/srv"},
                     "cannot use options 'storage' and 'dumpdir' at the same time",
                     id="two places"),
        pytest.param({"storage": "shared", "tmpdir": "/none"}, "tmpdir '/none' does not exist",
                     id="no temporary folder"),
        pytest.param({"storage": "shared", "remove": "0", "prune-backups": "keep-last=1"},
                     "job errors", id="as many as may be kept"),
    ],
)  # fmt: skip
def test_a_backup_that_fails(form: dict[str, str], status: str) -> None:
    async def session(sim: SimulatorSession) -> None:
        await sim.vm(100)
        assert (await sim.run_task("POST", BACKUP, vmid="100", storage="shared")).status == "OK"
        assert (await sim.run_task("POST", BACKUP, vmid="100", **form)).status == status

    run_session(session)


def test_a_stop_without_guests_starts_no_task() -> None:
    async def session(sim: SimulatorSession) -> None:
        assert (await sim.post(BACKUP, stop="1")).data == "OK"

    run_session(session)
