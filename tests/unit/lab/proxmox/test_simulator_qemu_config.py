"""VM configuration updates: immediate, pending, hotplugged, rejected."""

from typing import Any

import pytest

from support.simulator_session import SimulatorSession, run_session

CONF = "/nodes/n1/qemu/100/config"
SSH = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkVYt8EhZcPd9mVq4jJ3bqVw1xkGmFzP0d3nq5mF2yR a@b"


async def start(sim: SimulatorSession) -> None:
    assert (await sim.run_task("POST", "/nodes/n1/qemu/100/status/start")).status == "OK"


def test_a_new_vm_gets_generated_values() -> None:
    async def body(sim: SimulatorSession) -> None:
        conf = await sim.vm(scsi0="shared:1", net0="virtio,bridge=vmbr0", ide2="none,media=cdrom")
        assert conf["boot"] == "order=scsi0;ide2;net0"
        assert conf["net0"].startswith("virtio=BC:24:11:")
        assert conf["smbios1"].startswith("uuid=")
        assert {"meta", "vmgenid", "digest"} <= set(conf)

    run_session(body)


REFUSED: list[tuple[str, dict[str, str], int, str]] = [
    ("nothing", {}, 500, "no options specified"),
    ("an unknown option", {"delete": "nosuch"}, 400, "unknown option 'nosuch'"),
    ("both at once", {"cores": "2", "delete": "cores"}, 400, "you can't use '-cores' and"),
    ("an absent boot device", {"boot": "order=scsi9"}, 500, "device 'scsi9' does not exist'"),
    ("an unknown storage", {"scsi1": "nosuch:1"}, 500, "storage 'nosuch' does not exist"),
    ("an ISO as a disk", {"ide3": "shared:iso/cidata.iso"}, 400, "explicit 'media=cdrom'"),
    ("an import as a disk", {"scsi3": "shared:import/image.qcow2"}, 400, "needs to be 'images'"),
    ("a size with import-from", {"scsi1": "shared:1,import-from=shared:import/image.qcow2"}, 400,
     "requires special syntax"),
    ("a missing volume", {"scsi1": "shared:100/no.raw"}, 500, "'shared:100/no.raw' does not exist"),
    ("limits that exclude each other", {"scsi1": "shared:1,iops=5,iops_rd=5"}, 400,
     "unable to parse drive options"),
    ("a burst without a limit", {"scsi1": "shared:1,mbps_max=5"}, 400,
     "unable to parse drive options"),
    ("a CD on virtio", {"virtio1": "none,media=cdrom"}, 400, "unable to parse drive options"),
    ("a path of no storage", {"scsi1": "/tmp/x.raw"}, 400, "unable to associate path '/tmp/x.raw'"),
    ("no key", {"sshkeys": "notakey"}, 500, "SSH public key validation error"),
    ("too much balloon", {"memory": "128", "balloon": "512"}, 500, "balloon value too large"),
    ("an old digest", {"cores": "2", "digest": "0" * 40}, 500, "checksum mismatch"),
    ("a second cloud-init drive", {"scsi3": "shared:cloudinit"}, 500, "already attached at 'ide2'"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_rejected_changes(case: tuple[str, dict[str, str], int, str]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(ide2="shared:cloudinit")
        before = await sim.config()
        answer = await sim.put(CONF, **case[1])
        assert answer.status == case[2]
        assert case[3] in answer.message + "".join(answer.errors.values())
        assert await sim.config() == before

    run_session(body)


def test_changes_that_cannot_be_hotplugged_stay_pending() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(cores="1", memory="64")
        await start(sim)
        await sim.put(CONF, cores="2", name="now")
        assert (await sim.config())["cores"] == 2
        assert (await sim.get(CONF, current="1"))["cores"] == 1
        rows = {row["key"]: row for row in await sim.get("/nodes/n1/qemu/100/pending")}
        assert rows["cores"] == {"key": "cores", "value": 1, "pending": 2}
        assert rows["name"] == {"key": "name", "value": "now"}
        await sim.run_task("POST", "/nodes/n1/qemu/100/status/stop")
        assert (await sim.get(CONF, current="1"))["cores"] == 2

    run_session(body)


LIVE: list[tuple[str, dict[str, str], str, bool]] = [
    ("a new disk", {"scsi1": "shared:1"}, "scsi1", False),
    ("a new IDE disk waits", {"ide1": "shared:1"}, "ide1", True),
    ("limits", {"scsi2": "shared:100/vm-100-disk-1.raw,iops_rd=5"}, "scsi2", False),
    ("ssd= waits", {"scsi2": "shared:100/vm-100-disk-1.raw,ssd=1"}, "scsi2", True),
    ("a new card", {"net1": "virtio,bridge=vmbr0"}, "net1", False),
    ("ejecting", {"ide3": "none,media=cdrom"}, "ide3", False),
    ("cpu units", {"cpuunits": "200"}, "cpuunits", False),
    ("memory waits", {"memory": "128"}, "memory", True),
    ("affinity waits", {"affinity": "0"}, "affinity", True),
]


@pytest.mark.parametrize("case", LIVE, ids=[case[0] for case in LIVE])
def test_hotplugged_changes(case: tuple[str, dict[str, str], str, bool]) -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(
            memory="64",
            scsi0="shared:1",
            scsi2="shared:1",
            ide3="shared:iso/cidata.iso,media=cdrom",
        )
        await start(sim)
        assert (await sim.put(CONF, **case[1])).status == 200
        rows = {row["key"]: row for row in await sim.get("/nodes/n1/qemu/100/pending")}
        assert ("pending" in rows[case[2]]) is case[3]

    run_session(body)


def test_a_failed_hotplug_is_reported_and_stays_pending() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1")
        await start(sim)
        answer = await sim.put(CONF, delete="scsi0")
        assert answer.errors["scsi0"].strip() == ("hotplug problem - can't unplug bootdisk 'scsi0'")
        rows = {row["key"]: row for row in await sim.get("/nodes/n1/qemu/100/pending")}
        assert rows["scsi0"]["delete"] == 1
        ended = await sim.run_task("POST", CONF, delete="scsi0")
        assert ended.status == (
            "400 Parameter verification failed. scsi0: hotplug problem - can't unplug bootdisk"
            " 'scsi0'"
        )

    run_session(body)


def test_detached_volumes_become_unused_and_can_be_attached_again() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm(scsi0="shared:1", scsi1="shared:1")
        await sim.put(CONF, delete="scsi0,scsi1")
        conf = await sim.config()
        assert conf["unused0"] == "shared:100/vm-100-disk-0.raw"
        assert conf["unused1"] == "shared:100/vm-100-disk-1.raw"
        await sim.put(CONF, scsi5=conf["unused0"])
        conf = await sim.config()
        assert "unused0" not in conf
        assert conf["scsi5"] == "shared:100/vm-100-disk-0.raw,size=1G"
        await sim.put(CONF, delete="unused1")
        rows = await sim.get("/nodes/n1/storage/shared/content", content="images")
        assert [row["volid"] for row in rows] == ["shared:100/vm-100-disk-0.raw"]

    run_session(body)


def test_a_detached_foreign_volume_is_neither_unused_nor_freed() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        path = "/nodes/n1/storage/shared/content"
        await sim.post(path, vmid="777", filename="vm-777-pvc.raw", size="1G")
        await sim.put(CONF, scsi1="shared:777/vm-777-pvc.raw,backup=0")
        await sim.put("/nodes/n1/qemu/100/unlink", idlist="scsi1", force="1")
        assert not any(key.startswith("unused") for key in await sim.config())
        await sim.run_task("DELETE", "/nodes/n1/qemu/100", purge="1")
        assert len(await sim.get(path, vmid="777", content="images")) == 1

    run_session(body)


def test_background_delay_waits_for_the_worker() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        answer = await sim.post(CONF, scsi1="shared:1", background_delay="5")
        assert (answer.status, answer.data) == (200, None)
        answer = await sim.post(CONF, scsi2="shared:100/no.raw", background_delay="5")
        assert answer.message == (
            "failed to update VM 100: volume 'shared:100/no.raw' does not exist"
        )

    run_session(body)


@pytest.mark.parametrize(("version", "tags"), [("8.4.21", "b;a;b"), ("9.2.11", "a;b")])
def test_tags_of_a_new_vm_are_sorted_from_version_9_on(version: str, tags: str) -> None:
    async def body(sim: SimulatorSession) -> None:
        assert (await sim.vm(tags="b;a;b"))["tags"] == tags

    run_session(body, version)


def test_options_that_only_root_may_set() -> None:
    async def body(sim: SimulatorSession) -> None:
        await sim.vm()
        found = (await sim.post("/access/users/root@pam/token/tt", privsep="0")).data
        token = f"root@pam!tt={found['value']}"
        for option in ("args", "affinity", "hugepages"):
            value = {"args": "-foo", "affinity": "0", "hugepages": "any"}[option]
            answer = await sim.request("PUT", CONF, {option: value}, token=token)
            assert answer.message == f"only root can set '{option}' config"

    run_session(body)


DUMPS: list[tuple[str, str, list[str]]] = [
    ("user", "#cloud-config", ["hostname: web", "fqdn: web.k8s.test", "user: core", "  - ssh-ed"]),
    ("network", "version: 1", ["address: '10.1.0.5'", "gateway: '10.1.0.1'", "type: nameserver"]),
    ("meta", "instance-id: ", []),
]


@pytest.mark.parametrize("case", DUMPS, ids=[case[0] for case in DUMPS])
def test_cloud_init_documents(case: tuple[str, str, list[str]]) -> None:
    async def body(sim: SimulatorSession) -> None:
        options: dict[str, Any] = {
            "name": "web",
            "net0": "virtio=BC:24:11:00:91:30,bridge=vmbr0",
            "ide2": "shared:cloudinit",
            "ciuser": "core",
            "ipconfig0": "ip=10.1.0.5/24,gw=10.1.0.1",
            "nameserver": "10.1.0.2",
            "searchdomain": "k8s.test",
            "sshkeys": SSH.replace(" ", "%20").replace("@", "%40"),
        }
        await sim.vm(**options)
        text = await sim.get("/nodes/n1/qemu/100/cloudinit/dump", type=case[0])
        assert text.startswith(case[1])
        assert all(part in text for part in case[2])

    run_session(body)


def test_normalized_drives() -> None:
    async def body(sim: SimulatorSession) -> None:
        iso = "/mnt/pve/shared/template/iso/cidata.iso"
        sim.region.files["/dev/sdb"] = {"size": 1 << 30}
        conf = await sim.vm(ide0=iso, ide1="none", scsi5="/dev/sdb")
        assert conf["ide0"] == "shared:iso/cidata.iso,media=cdrom,size=1M"
        assert (conf["ide1"], conf["scsi5"]) == ("none,media=cdrom", "/dev/sdb")

    run_session(body)
