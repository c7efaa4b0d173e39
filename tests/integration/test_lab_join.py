"""
A simulated guest boots from a config drive, joins a hosted control plane over TLS and runs pods.

Uses real sockets and virtual time.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moxwell.api.capi.bootstrap import (
    Arg,
    JoinConfiguration,
    KubeadmConfig,
    KubeadmConfigSpec,
    NodeRegistration,
)
from moxwell.api.capi.shared import APIEndpoint
from moxwell.bootstrap.bootstrap_data import BootstrapData, BootstrapIdentity, nocloud_files
from moxwell.bootstrap.iso import build_iso
from moxwell.bootstrap.network import GuestNetwork
from moxwell.bootstrap.talos_config import TalosCluster, TalosJoin, patched, worker_config
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.bootstrap_tokens import token_secret
from moxwell.embedded.clusterapi.kubeadm import cloud_config as kubeadm
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
)
from moxwell.embedded.controllermanager.resources import DEPLOYMENTS, NODES, PODS
from moxwell.embedded.ports import free_port
from moxwell.errors import Unreachable
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import SENTINEL, GuestRunner
from moxwell.runtime.key import Key
from moxwell.runtime.tenant_clients import SECRETS
from moxwell.testing.inprocess_control_planes import InProcessControlPlanes
from moxwell.testing.loop import LoopClock, run_virtual

KEY = Key("team", "c1")
TOKEN = "abcdef.0123456789abcdef"


@dataclass
class StubVm:
    """A VM as the simulator passes it to a guest operating system."""

    vmid: int
    iso: bytes
    region: str = "r1"
    node: str = "pve1"
    name: str = "w1"
    uuid: str = "0000"
    conf: dict[str, Any] = field(default_factory=dict)
    setup_seconds: float = 8.0

    def __post_init__(self) -> None:
        self.uuid = f"00000000-0000-0000-0000-{self.vmid:012d}"
        self.conf = {
            "cores": 2,
            "memory": "4096",
            "net0": f"virtio=BC:24:11:00:00:{self.vmid % 256:02X},bridge=vmbr0",
            "ide0": "local:iso/cidata.iso,media=cdrom",
        }

    def media(self, drive: str, /) -> bytes | None:
        return self.iso if drive == "ide0" else None

    def power_off(self) -> None: ...
    def reboot(self) -> None: ...
    def load(self) -> tuple[float, float]:
        return 0.25, 0.5

    def report_load(self, cpu: float, memory: float, /) -> None: ...

    def live_config(self) -> dict[str, Any]:
        return self.conf


@dataclass
class World:
    clock: LoopClock
    guests: GuestRunner
    planes: InProcessControlPlanes
    plane: HostedControlPlane
    kube: Kube

    async def until(self, check: Any, seconds: int = 600) -> Any:
        for _ in range(seconds):
            if found := await check():
                return found
            await self.clock.sleep(1)
        raise AssertionError("the condition did not become true")


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    clock = LoopClock(SystemClock().now())  # certificates are checked by the real time
    planes = InProcessControlPlanes(folder, clock, new_port=free_port)
    guests = GuestRunner(KubeTransport, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(planes.run()), group.create_task(guests.run())]
        plane = await planes.ensure(
            HostedControlPlaneSpec(key=KEY, uid="u", version="v1.34.1", replicas=1)
        )
        access = kubeconfig.parse(plane.admin_kubeconfig).access(clock, {})
        async with KubeTransport(access) as transport:
            kube = Kube(transport)
            await kube.create(token_secret(TOKEN, clock.now(), KubeadmConfig()), SECRETS)
            yield World(clock, guests, planes, plane, kube)
        for task in tasks:
            task.cancel()


def config_drive(plane: HostedControlPlane, name: str, token: str = TOKEN, pin: str = "") -> bytes:
    args = (Arg(name="node-labels", value="moxwell.dev/node-group=md0"),)
    node = NodeRegistration(name="{{ local_hostname }}", kubelet_extra_args=args)
    join = JoinConfiguration(node_registration=node)
    config = KubeadmConfig(spec=KubeadmConfigSpec(join_configuration=join))
    hashes = [pin or kubeadm.ca_hash(plane.ca.encode())]
    endpoint = APIEndpoint(host=plane.host, port=plane.port)
    body = kubeadm.join_configuration(config, endpoint, token, hashes)
    body["nodeRegistration"]["taints"] = []
    return build_iso(
        {
            "user-data": kubeadm.join_data(config.spec, body, {}, {}).encode(),
            "meta-data": f"instance-id: i-{name}\nlocal-hostname: {name}\n"
            "kubernetes-version: v1.34.1\n".encode(),
            "network-config": b"version: 2\nethernets: {}\n",
        }
    )


def talos_drive(plane: HostedControlPlane, name: str, token: str = TOKEN) -> bytes:
    """The bootstrap ISO of a Talos worker, with a hostname of its own."""
    ca = plane.ca.encode()
    endpoint = f"https://{plane.host}:{plane.port}"
    cluster = TalosCluster(name="c1", endpoint=endpoint)
    join = TalosJoin(ca=ca, token=token, talos_ca=ca, talos_token=TOKEN)
    text = patched(worker_config(cluster, join, "v1.34.1"), ())
    identity = BootstrapIdentity(name, f"proxmox://r1/{name}", "v1.34.1")
    data = BootstrapData(text.encode(), "talos")
    return build_iso(nocloud_files(data, identity, GuestNetwork(())))


def test_a_talos_worker_joins_without_discovery(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as w:
            await w.guests.booted(StubVm(103, talos_drive(w.plane, "t1")))
            await w.guests.booted(StubVm(104, talos_drive(w.plane, "t2", "abcdef.wrong")))

            async def joined() -> Any:
                node = await w.kube.find(NODES, "t1")
                return node is not None and is_ready(node) and node

            node = await w.until(joined)
            assert node["spec"]["providerID"] == "proxmox://r1/t1"
            assert await w.kube.find(NODES, "t2") is None

    run_virtual(scenario())


def is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def test_a_guest_joins_runs_pods_and_becomes_not_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as w:
            guest = StubVm(101, config_drive(w.plane, "w1"))
            await w.guests.booted(guest)

            async def joined() -> Any:
                node = await w.kube.find(NODES, "w1")
                return node is not None and is_ready(node) and node

            node = await w.until(joined)
            assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.34.1"
            assert node["status"]["nodeInfo"]["systemUUID"] == guest.uuid
            assert node["metadata"]["labels"]["moxwell.dev/node-group"] == "md0"
            read = await w.guests.agent(guest, "guest-file-read", {"file": SENTINEL})
            assert read["content"] == "success\n"

            await w.kube.create(deployment("web", 2), DEPLOYMENTS)

            async def running() -> Any:
                pods = (await w.kube.list(PODS, "default")).items
                phases = [p.get("status", {}).get("phase") for p in pods]
                return phases == ["Running", "Running"]

            await w.until(running)
            await w.guests.stopped("r1", 101)

            async def not_ready() -> Any:
                found = await w.kube.get(NODES, "w1")
                return not is_ready(found)

            await w.until(not_ready)
            await w.guests.booted(StubVm(101, b""))
            await w.until(joined)

    run_virtual(scenario())


@pytest.mark.parametrize(
    "token, pin, message",
    [
        pytest.param("abcdef.ffffffffffffffff", "", "nauthorized", id="a wrong token"),
        pytest.param(TOKEN, "sha256:00", "caCertHashes", id="another CA"),
    ],
)
def test_a_guest_with_invalid_data_does_not_join(
    tmp_path: Path, token: str, pin: str, message: str
) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as w:
            guest = StubVm(102, config_drive(w.plane, "w2", token, pin))
            await w.guests.booted(guest)

            async def failed() -> Any:
                args = {"command": ["cloud-init", "status"]}
                pid = (await w.guests.agent(guest, "exec", args))["pid"]
                status = await w.guests.agent(guest, "exec-status", {"pid": pid})
                return "error" in status["out-data"]

            await w.until(failed, 900)
            log = await w.guests.agent(guest, "file-read", {"file": "/var/log/cloud-init.log"})
            assert message in log["content"]
            assert await w.kube.find(NODES, "w2") is None

    run_virtual(scenario())


def test_a_stopped_guest_has_no_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        guests = GuestRunner(KubeTransport, LoopClock())
        with pytest.raises(Unreachable):
            await guests.agent(StubVm(1, b""), "ping", {})

    run_virtual(scenario())


def deployment(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": "nginx"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def test_a_stopped_control_plane_keeps_data_and_port(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(tmp_path) as w:
            await w.planes.sleep(KEY)
            again = await w.planes.ensure(
                HostedControlPlaneSpec(key=KEY, uid="u", version="v1.35.0", replicas=1)
            )
            assert (again.port, again.admin_kubeconfig) == (w.plane.port, w.plane.admin_kubeconfig)
            assert (await w.kube.version()).git_version.startswith("v1.35.0")
            secret = await w.kube.get(SECRETS, "bootstrap-token-abcdef", "kube-system")
            assert base64.b64decode(secret["data"]["token-id"]) == b"abcdef"
            await w.planes.destroy(KEY)

    run_virtual(scenario())
    assert list(tmp_path.iterdir()) == []
