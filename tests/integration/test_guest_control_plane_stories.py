"""
Control planes on simulated guests: init, join, second control plane node, restart, lost guest.

Uses real sockets, an RSA CA as Cluster API creates it, and virtual time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from moxwell.bootstrap.iso import build_iso
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.kubeadm.cloud_config import ca_hash
from moxwell.embedded.controllermanager.resources import NODES, PODS
from moxwell.embedded.controlplanes.machine_control_planes import MachineControlPlanes
from moxwell.embedded.ports import free_port
from moxwell.errors import Retryable
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests import control_plane_pki
from moxwell.lab.guests.control_plane import GuestControlPlane
from moxwell.lab.guests.guest_runner import SENTINEL, GuestRunner
from moxwell.lab.guests.userdata import CONTROL_PLANE
from moxwell.testing.loop import LoopClock, run_virtual

TOKEN = "abcdef.0123456789abcdef"
SUCCESS = f"echo success > {SENTINEL}"


@dataclass
class StubVm:
    """A VM as the simulator passes it to a guest operating system."""

    vmid: int
    name: str
    iso: bytes
    region: str = "r1"
    node: str = "pve1"
    uuid: str = ""
    conf: dict[str, Any] = field(default_factory=dict)
    setup_seconds: float = 8.0

    def __post_init__(self) -> None:
        self.uuid = f"00000000-0000-0000-0000-{self.vmid:012d}"
        net = f"virtio=BC:24:11:00:00:{self.vmid % 256:02X},bridge=vmbr0"
        self.conf = {"cores": 2, "memory": "4096", "net0": net, "ide0": "local:iso/s,media=cdrom"}

    def media(self, drive: str, /) -> bytes | None:
        return self.iso if drive == "ide0" else None

    def live_config(self) -> dict[str, Any]:
        return self.conf

    def power_off(self) -> None: ...
    def reboot(self) -> None: ...
    def load(self) -> tuple[float, float]:
        return 0.25, 0.5

    def report_load(self, cpu: float, memory: float, /) -> None: ...


def _pem(key: rsa.RSAPrivateKey) -> str:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none).decode()


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """An RSA CA and an RSA service account key."""
    key, tokens = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = SystemClock().now()
    created = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(b"of its own making"), critical=False)
        .sign(key, hashes.SHA256())
    )
    ca = created.public_bytes(serialization.Encoding.PEM).decode()
    return {"ca.crt": ca, "ca.key": _pem(key), "sa.key": _pem(tokens)}


class World:
    """Guests, their control plane, and access to it."""

    def __init__(self, folder: Path, keys: dict[str, str]) -> None:
        self.clock, self.keys, self.port = LoopClock(), keys, free_port()
        self.host = "127.88.0.1"
        self.planes = MachineControlPlanes(folder, self.clock)
        self.guests = GuestRunner(KubeTransport, self.clock, control_planes=self.planes)

    def access(self) -> Any:
        plane = GuestControlPlane(
            host=self.host,
            port=self.port,
            version="v1.34.1",
            ca=self.keys["ca.crt"],
            ca_key=self.keys["ca.key"],
            service_key=self.keys["sa.key"],
        )
        return control_plane_pki.administrator(plane, self.clock.now())

    def config_drive(self, name: str, commands: list[str], files: dict[str, str]) -> bytes:
        written = [{"path": p, "content": c} for p, c in files.items()]
        data = yaml.safe_dump({"write_files": written, "runcmd": commands})
        meta = f"instance-id: i-{name}\nlocal-hostname: {name}\nkubernetes-version: v1.34.1\n"
        return build_iso(
            {
                "user-data": f"#cloud-config\n{data}".encode(),
                "meta-data": meta.encode(),
                "network-config": b"version: 2\nethernets: {}\n",
            }
        )

    def pki(self) -> dict[str, str]:
        return {f"/etc/kubernetes/pki/{name}": text for name, text in self.keys.items()}

    def init_drive(self, name: str, host: str = "") -> bytes:
        cluster = {
            "kind": "ClusterConfiguration",
            "controlPlaneEndpoint": f"{host or self.host}:{self.port}",
            "kubernetesVersion": "v1.34.1",
        }
        own = {"kind": "InitConfiguration", "bootstrapTokens": [{"token": TOKEN}]}
        path = "/run/kubeadm/kubeadm.yaml"
        files = {**self.pki(), path: yaml.safe_dump_all([cluster, own])}
        return self.config_drive(name, [f"kubeadm init --config {path} && {SUCCESS}"], files)

    def join_drive(self, name: str, *, control_plane: bool = False) -> bytes:
        token = {
            "apiServerEndpoint": f"{self.host}:{self.port}",
            "token": TOKEN,
            "caCertHashes": [ca_hash(self.keys["ca.crt"].encode())],
        }
        body: dict[str, Any] = {
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": token},
        }
        if control_plane:
            body["controlPlane"] = {}
        path = "/run/kubeadm/kubeadm-join-config.yaml"
        files = {path: yaml.safe_dump(body)} | (self.pki() if control_plane else {})
        return self.config_drive(name, [f"kubeadm join --config {path} && {SUCCESS}"], files)

    async def boot(self, vmid: int, name: str, iso: bytes) -> StubVm:
        guest = StubVm(vmid, name, iso)
        await self.guests.booted(guest)
        return guest

    async def until(self, check: Any) -> Any:
        for _ in range(600):
            try:
                if found := await check():
                    return found
            except Retryable:
                pass
            await self.clock.sleep(1)
        raise AssertionError("the condition did not become true")


@asynccontextmanager
async def world(folder: Path, keys: dict[str, str]) -> AsyncIterator[tuple[World, Kube]]:
    created = World(folder, keys)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(created.planes.run()), group.create_task(created.guests.run())]
        async with KubeTransport(created.access()) as transport:
            yield created, Kube(transport)
        for task in tasks:
            task.cancel()


async def ready(kube: Kube, name: str) -> Any:
    node = await kube.find(NODES, name)
    answer = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in answer) and node


def test_a_machine_becomes_a_control_plane_and_others_join_it(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with world(tmp_path, keys) as (w, kube):
            init_drive = await w.boot(101, "cp-1", w.init_drive("cp-1"))
            await w.until(lambda: ready(kube, "cp-1"))
            answer = await w.guests.agent(init_drive, "file-read", {"file": SENTINEL})
            assert answer["content"] == "success\n"
            await w.boot(102, "w-1", w.join_drive("w-1"))
            await w.boot(103, "cp-2", w.join_drive("cp-2", control_plane=True))
            await w.until(lambda: ready(kube, "w-1"))
            await w.until(lambda: ready(kube, "cp-2"))

            async def labeled() -> list[str]:
                nodes = (await kube.list(NODES)).items
                found = [n for n in nodes if CONTROL_PLANE in n["metadata"]["labels"]]
                return sorted(n["metadata"]["name"] for n in found) if len(found) == 2 else []

            assert await w.until(labeled) == ["cp-1", "cp-2"]

            async def mirrored() -> bool:
                pods = (await kube.list(PODS, "kube-system")).items
                up = {p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"}
                return {"kube-apiserver-cp-1", "etcd-cp-1", "kube-scheduler-cp-2"} <= up

            assert await w.until(mirrored)
            worker = await kube.get(NODES, "w-1")
            assert "taints" not in worker["spec"]

    run_virtual(scenario())


def has_data(folder: Path) -> bool:
    return any(folder.iterdir())


def test_a_restart_keeps_the_data(tmp_path: Path, keys: dict[str, str]) -> None:
    async def scenario() -> None:
        async with world(tmp_path, keys) as (w, kube):
            init_drive = await w.boot(101, "cp-1", w.init_drive("cp-1"))
            before = await w.until(lambda: ready(kube, "cp-1"))
            await w.guests.stopped("r1", 101)
            with pytest.raises(Retryable):
                await kube.get(NODES, "cp-1")
            await w.guests.booted(init_drive)
            after = await w.until(lambda: ready(kube, "cp-1"))
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert has_data(tmp_path)
            await w.guests.stopped("r1", 101)
            assert w.guests.keep_only([])
            assert not has_data(tmp_path)

    run_virtual(scenario())


def test_it_is_served_until_the_last_member_stops(tmp_path: Path, keys: dict[str, str]) -> None:
    async def scenario() -> None:
        async with world(tmp_path, keys) as (w, kube):
            await w.boot(101, "cp-1", w.init_drive("cp-1"))
            await w.until(lambda: ready(kube, "cp-1"))
            await w.boot(103, "cp-2", w.join_drive("cp-2", control_plane=True))
            await w.until(lambda: ready(kube, "cp-2"))
            await w.guests.stopped("r1", 101)
            await w.clock.sleep(90)
            node = await kube.get(NODES, "cp-1")
            answer = {c["type"]: c["status"] for c in node["status"]["conditions"]}
            assert answer["Ready"] == "Unknown"

    run_virtual(scenario())


def test_an_endpoint_that_is_not_loopback_is_rejected(tmp_path: Path, keys: dict[str, str]) -> None:
    async def scenario() -> None:
        async with world(tmp_path, keys) as (w, _):
            guest = await w.boot(101, "cp-1", w.init_drive("cp-1", host="10.0.0.4"))
            await w.clock.sleep(30)
            log = {"file": "/var/log/cloud-init.log"}
            answer = await w.guests.agent(guest, "file-read", log)
            assert "127.1.2.3" in answer["content"]

    run_virtual(scenario())
