"""proxmoxer, an independent client, drives the simulator over HTTPS."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from proxmoxer import AuthenticationError, ProxmoxAPI, ResourceException
from requests import Session

from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.loop import LoopClock, VirtualLoop

WORLD = """
regions:
  - name: lab
    version: {version}
    cluster: lab
    pace: {{bandwidth: 1G, boot: 10, refusal: 0, statd: 1}}
    nodes:
      - {{name: pve1, cpus: 4, memory: 16G}}
      - {{name: pve2, cpus: 4, memory: 16G}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, capacity: 100G,
         content: [images, iso, vztmpl, snippets, import]}}
      - {{storage: thin, type: lvmthin, vgname: pve, thinpool: data, capacity: 200G,
         content: [images, rootdir]}}
      - {{storage: ceph, type: rbd, pool: rbd, capacity: 500G, content: [images]}}
    access:
      users:
        - {{userid: root@pam, password: hunter2}}
"""
KERNEL = "-kernel /boot/vmlinuz -initrd /boot/initrd.img"


class Proxmox:
    """proxmoxer in threads; virtual time advances only between its calls."""

    def __init__(self, simulator: Simulator, folder: certs.SimulatorCertificates) -> None:
        self.simulator, self._ca = simulator, str(folder.ca)
        self._address = simulator.url().removeprefix("https://")
        self.api: Any = None

    async def call(self, action: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, action)

    async def login(self, **credentials: Any) -> None:
        def connect() -> Any:
            return ProxmoxAPI(self._address, verify_ssl=self._ca, **credentials)

        self.api = await self.call(connect)

    async def done(self, action: Callable[[], Any]) -> str:
        """Start a task and wait for it by polling its status."""
        upid = await self.call(action)
        node = upid.split(":")[1]
        while True:
            status = await self.call(self.api.nodes(node).tasks(upid).status.get)
            if status["status"] == "stopped":
                return str(status["exitstatus"])
            await self.simulator.clock.sleep(1)

    async def close(self) -> None:
        session: Session | None = getattr(self.api, "_store", {}).get("session")
        if session is not None:
            await self.call(session.close)


@asynccontextmanager
async def proxmox(folder: Path, version: str, **credentials: Any) -> AsyncIterator[Proxmox]:
    clock = LoopClock()
    regions = read_world(WORLD.format(version=version), "world", clock.now().timestamp())
    made = certs.make(folder, clock.now())
    simulator = Simulator(regions, clock, tls=made.context())
    await simulator.start()
    client = Proxmox(simulator, made)
    try:
        await client.login(**(credentials or {"user": "root@pam", "password": "hunter2"}))
        yield client
    finally:
        await client.close()
        await simulator.stop()
        await clock.sleep(60)  # longer than the TLS shutdown timeout


def play(story: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


async def make_template(px: Proxmox) -> None:
    qemu = px.api.nodes("pve1").qemu
    options = {
        "name": "tmpl",
        "memory": 512,
        "scsihw": "virtio-scsi-single",
        "scsi0": "ceph:4",
        "ide2": "ceph:cloudinit",
        "net0": "virtio,bridge=vmbr0",
        "agent": 1,
        "args": KERNEL,
    }
    assert await px.done(lambda: qemu.post(vmid=9000, **options)) == "OK"
    assert await px.done(qemu(9000).template.post) == "OK"


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
def test_a_machine_is_cloned_started_and_destroyed(tmp_path: Path, version: str) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, version) as px:
            await make_template(px)
            qemu, api = px.api.nodes("pve1").qemu, px.api
            newid = int(await px.call(api.cluster.nextid.get))
            clone = {"newid": newid, "name": "worker", "description": "owner=1"}
            assert await px.done(lambda: qemu(9000).clone.post(**clone)) == "OK"
            vm = qemu(newid)
            await px.call(lambda: vm.config.put(cores=2, tags="k8s;web", ciuser="core"))
            assert await px.done(lambda: vm.resize.put(disk="scsi0", size="8G")) == "OK"
            config = await px.call(vm.config.get)
            assert config["scsi0"] == f"ceph:base-9000-disk-0/vm-{newid}-disk-0,size=8G"
            assert await px.done(vm.status.start.post) == "OK"
            await px.simulator.clock.sleep(15)
            rows = (await px.call(vm.agent("network-get-interfaces").get))["result"]
            assert rows[1]["hardware-address"] in config["net0"].lower()
            assert await px.done(lambda: vm.status.shutdown.post(timeout=30)) == "OK"
            assert await px.done(lambda: vm.delete(purge=1)) == "OK"
            left = await px.call(lambda: api.cluster.resources.get(type="vm"))
            assert [row["vmid"] for row in left if row.get("name") == "worker"] == []

    play(story)


def test_agent_commands(tmp_path: Path) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, "8.4.21") as px:
            vm = px.api.nodes("pve1").qemu(100)
            create = px.api.nodes("pve1").qemu.post
            assert await px.done(lambda: create(vmid=100, agent=1, args=KERNEL)) == "OK"
            assert await px.done(vm.status.start.post) == "OK"
            await px.simulator.clock.sleep(15)
            command = ["sh", "-c", "echo hello"]
            pid = (await px.call(lambda: vm.agent("exec").post(command=command)))["pid"]
            status = await px.call(lambda: vm.agent("exec-status").get(pid=pid))
            assert (status["exitcode"], status["out-data"]) == (0, "hello\n")

    play(story)


def test_firewall_rules(tmp_path: Path) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, "8.4.21") as px:
            create = px.api.nodes("pve1").qemu.post
            assert await px.done(lambda: create(vmid=100)) == "OK"
            firewall = px.api.nodes("pve1").qemu(100).firewall
            await px.call(lambda: firewall.options.put(enable=1))
            rule = {"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "22", "enable": 1}
            await px.call(lambda: firewall.rules.post(**rule))
            await px.call(lambda: firewall.rules.post(type="in", action="DROP"))
            rules = await px.call(firewall.rules.get)
            assert [r["action"] for r in sorted(rules, key=lambda r: r["pos"])] == [
                "DROP",
                "ACCEPT",
            ]
            await px.call(firewall.rules(0).delete)
            assert (await px.call(firewall.rules.get))[0]["dport"] == "22"

    play(story)


def test_an_upload_becomes_a_drive(tmp_path: Path) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, "8.4.21") as px:
            node = px.api.nodes("pve1")
            image = io.BytesIO(b"x" * 4096)
            image.name = "user-data.iso"
            upload = node.storage("local").upload.post
            assert await px.done(lambda: upload(content="iso", filename=image)) == "OK"
            listed = await px.call(lambda: node.storage("local").content.get(content="iso"))
            assert [row["size"] for row in listed] == [4096]
            drive = "local:iso/user-data.iso,media=cdrom"
            assert await px.done(lambda: node.qemu.post(vmid=100, ide0=drive)) == "OK"
            assert (await px.call(node.qemu(100).config.get))["ide0"] == f"{drive},size=4K"
            volume = node.storage("local").content("local:iso/user-data.iso")
            assert await px.done(volume.delete) == "OK"

    play(story)


def test_a_token_has_its_own_rights(tmp_path: Path) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, "8.4.21") as px:
            create = px.api.nodes("pve1").qemu.post
            assert await px.done(lambda: create(vmid=100, name="seen")) == "OK"
            access = px.api.access
            await px.call(lambda: access.users.post(userid="ci@pve"))
            token = access.users("ci@pve").token("t1")
            secret = (await px.call(lambda: token.post(privsep=0)))["value"]
            acl = {"path": "/vms/100", "users": "ci@pve", "roles": "PVEAuditor"}
            await px.call(lambda: access.acl.put(**acl))
            await px.close()
            await px.login(user="ci@pve", token_name="t1", token_value=secret)
            rows = await px.call(px.api.nodes("pve1").qemu.get)
            assert [row["name"] for row in rows] == ["seen"]
            with pytest.raises(ResourceException) as refused:
                await px.call(px.api.nodes("pve1").qemu(100).status.start.post)
            assert refused.value.status_code == 403
            assert "(/vms/100, VM.PowerMgmt)" in str(refused.value)

    play(story)


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    async def story() -> None:
        async with proxmox(tmp_path, "8.4.21") as px:
            qemu = px.api.nodes("pve1").qemu
            with pytest.raises(ResourceException, match=r"100\.conf' does not exist"):
                await px.call(qemu(100).config.get)
            with pytest.raises(ResourceException) as refused:
                await px.call(lambda: qemu.post(vmid=100, memory="abc"))
            assert "memory" in refused.value.errors
            with pytest.raises(AuthenticationError):
                await px.login(user="root@pam", password="wrong")

    play(story)
