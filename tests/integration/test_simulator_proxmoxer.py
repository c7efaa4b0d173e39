"""
The lifecycle of a VM, driven over HTTPS by proxmoxer, an independent client.
"""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proxmoxer import ProxmoxAPI, ResourceException

from moxwell.clock import SystemClock
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.world import read_world

WORLD = """
regions:
  - name: r
    version: {version}
    cluster: c
    pace: {{boot: 0.05, shutdown: 0.05, statd: 0.1, refusal: 0, agent_timeout: 0.05}}
    nodes: [{{name: n1}}, {{name: n2}}]
    storages:
      - storage: shared
        type: nfs
        server: 192.0.2.9
        export: /srv
        content: [images, iso, rootdir]
        capacity: 100G
    access:
      users: [{{userid: root@pam, password: secret}}]
      tokens: [{{token: root@pam!t, secret: s, privsep: false}}]
    files:
      /mnt/kernel: {{what: kernel}}
      /mnt/initrd: {{what: initrd}}
"""
BOOTS = "-kernel /mnt/kernel -initrd /mnt/initrd -append quiet"


@pytest.fixture(params=["8.4.21", "9.2.11"], ids=["8.4", "9.2"])
async def server(request: Any, tmp_path: Path) -> AsyncIterator[tuple[int, str]]:
    clock = SystemClock()
    made = certs.make(tmp_path, clock.now())
    world = WORLD.format(version=request.param)
    regions = read_world(world, "w.yaml", clock.now().timestamp())
    simulator = Simulator(regions, clock, tls=made.context())
    await simulator.start()
    yield int(simulator.url().rpartition(":")[2]), str(made.ca)
    await simulator.stop()


class VmLifecycle:
    """Runs proxmoxer in a thread."""

    def __init__(self, api: Any) -> None:
        self.api, self.node = api, api.nodes("n1")

    def done(self, upid: str) -> str:
        """Poll a task until it has stopped."""
        while True:
            status = self.node.tasks(upid).status.get()
            if status["status"] == "stopped":
                return str(status["exitstatus"])
            time.sleep(0.01)

    def prepare(self) -> None:
        vm = {"vmid": 9000, "name": "template", "memory": 256, "scsi0": "shared:1,format=qcow2"}
        vm |= {"net0": "virtio,bridge=vmbr0,firewall=1", "agent": "1", "args": BOOTS}
        assert self.done(self.node.qemu.post(**vm)) == "OK"
        assert self.done(self.node.qemu(9000).template.post()) == "OK"

    def clone(self) -> None:
        vmid = int(self.api.cluster.nextid.get())
        assert vmid == 100
        clone = self.node.qemu(9000).clone
        assert self.done(clone.post(newid=vmid, name="worker")) == "OK"
        self.node.qemu(vmid).config.put(cores=2, tags="k8s", description="owner=x")
        config = self.node.qemu(vmid).config.get()
        assert (config["cores"], config["name"], config["tags"]) == (2, "worker", "k8s")
        assert self.done(self.node.qemu(vmid).resize.put(disk="scsi0", size="+1G")) == "OK"
        with pytest.raises(ResourceException) as caught:
            clone.post(newid=vmid)
        assert caught.value.status_code == 500
        assert "config file already exists" in str(caught.value)

    def upload(self) -> None:
        iso = io.BytesIO(b"x" * 70000)
        iso.name = "cidata.iso"
        upid = self.node.storage("shared").upload.post(content="iso", filename=iso)
        assert self.done(upid) == "OK"
        content = self.node.storage("shared").content.get(content="iso")
        assert [(row["volid"], row["size"]) for row in content] == [
            ("shared:iso/cidata.iso", 70000)
        ]
        upid = self.node.qemu(100).config.post(ide2="shared:iso/cidata.iso,media=cdrom")
        assert self.done(upid) == "OK"

    def firewall(self) -> None:
        self.api.cluster.firewall.groups.post(group="k8s", comment="nodes")
        group = self.api.cluster.firewall.groups("k8s")
        group.post(type="in", action="ACCEPT", proto="tcp", dport="6443", enable=1)
        rules = self.node.qemu(100).firewall.rules
        rules.post(type="group", action="k8s", enable=1)
        assert [(row["type"], row["action"]) for row in rules.get()] == [("group", "k8s")]
        self.node.qemu(100).firewall.options.put(enable=1, policy_in="DROP")
        assert self.node.qemu(100).firewall.options.get()["policy_in"] == "DROP"

    def run(self) -> None:
        assert self.done(self.node.qemu(100).status.start.post()) == "OK"
        for _ in range(3000):
            try:
                self.node.qemu(100).agent.ping.post()
            except ResourceException:
                time.sleep(0.02)
            else:
                break
        name = self.node.qemu(100).agent("get-host-name").get()
        assert name["result"] == {"host-name": "guest1"}
        assert self.done(self.node.qemu(100).status.shutdown.post(timeout=10)) == "OK"

    def remove(self) -> None:
        assert self.done(self.node.qemu(100).delete(purge=1)) == "OK"
        assert self.done(self.node.qemu(9000).delete()) == "OK"
        with pytest.raises(ResourceException):
            self.node.qemu(100).config.get()
        images = self.node.storage("shared").content.get(content="images")
        assert images == []

    def run_all(self) -> None:
        for part in (
            self.prepare, self.clone, self.upload, self.firewall, self.run, self.remove
        ):  # fmt: skip
            part()


async def test_vm_lifecycle_with_a_ticket(server: tuple[int, str]) -> None:
    port, ca = server

    def call_api() -> None:
        api = ProxmoxAPI("127.0.0.1", port=port, user="root@pam", password="secret", verify_ssl=ca)
        VmLifecycle(api).run_all()

    await asyncio.to_thread(call_api)


async def test_permissions_of_a_token(server: tuple[int, str]) -> None:
    port, ca = server

    def call_api() -> None:
        token = {"user": "root@pam", "token_name": "t", "token_value": "s"}
        api = ProxmoxAPI("127.0.0.1", port=port, verify_ssl=ca, **token)
        assert {row["node"] for row in api.nodes.get()} == {"n1", "n2"}
        assert api.version.get()["release"] in {"8.4", "9.2"}
        with pytest.raises(ResourceException, match="only root can set 'args' config"):
            api.nodes("n1").qemu.post(vmid=100, args=BOOTS)

    await asyncio.to_thread(call_api)
