"""kubectl, the newest and the oldest, with pods of simulated nodes: logs, exec, forwarding, top."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from envtest import locate
from envtest.plugin import require
from moxwell.api.kinds import Resource
from moxwell.api.requests import UserInfo
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.kubelet.simulated_kubelets import SimulatedKubelets
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.ports import free_port
from moxwell.kube.client import Kube
from moxwell.lab.guests.kubelet import NodeFacts
from moxwell.lab.guests.kubelet_http import KubeletServer
from moxwell.lab.guests.pod_usage import VmLoad
from moxwell.lab.guests.pods import running_status
from moxwell.lab.guests.running_kubelets import RunningKubelet, RunningKubelets
from moxwell.pki.folder import CertificateAuthority

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.parametrize("version", ["kubectl", "kubectl-oldest"]),
]
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
Json = dict[str, Any]
CONTAINER: Json = {"name": "web", "image": "nginx:1.29", "ports": [{"containerPort": 80}]}


@dataclass(frozen=True)
class Cluster:
    """An API server with one node and one pod, and the kubelet of the node."""

    folder: Path
    kube: Kube
    http: HttpServer
    kubelets: RunningKubelets
    stops: list[Callable[[], None]] = field(default_factory=list)

    def stop_kubelet(self) -> None:
        for stop in self.stops:
            stop()

    async def run(self, program: str, *args: str, stdin: str = "") -> tuple[int, str, str]:
        process = await self.start(program, *args)
        out, error = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        return process.returncode or 0, out.decode(), error.decode()

    async def start(self, program: str, *args: str) -> asyncio.subprocess.Process:
        config = str(self.folder / "kubeconfig")
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(locate.program(program)), *args, stdin=pipe, stdout=pipe, stderr=pipe,
            env={"HOME": str(self.folder), "KUBECONFIG": config, "PATH": os.environ["PATH"]},
        )  # fmt: skip


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    clock, file, kubelets = SystemClock(), folder / "kubelets.json", RunningKubelets()
    authority = CertificateAuthority(folder / "pki", clock.now)
    server = KubeletServer(kubelets, clock)
    await server.start(file)
    jane = {"jane-token": UserInfo(name="jane")}
    try:
        async with (
            EmbeddedApiServer(
                clock=clock,
                root_ca=authority.certificate.decode(),
                token_key=authority.token_key,
                kubelets=lambda _: SimulatedKubelets(file, "c1"),
            ) as api,
            HttpServer(api, authority, folder=folder / "pki", tokens=jane) as http,
        ):
            http.write_kubeconfig(folder / "kubeconfig")
            yield Cluster(folder, Kube(api), http, kubelets)
    finally:
        await server.stop()


@pytest.fixture
async def cluster(tmp_path: Path, version: str) -> AsyncIterator[Cluster]:
    require(version)
    async with running(tmp_path) as made:
        capacity = {"cpu": "4", "memory": "8Gi"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}
        await made.kube.create(node, NODES)
        status = {"capacity": capacity, "allocatable": capacity}
        await made.kube.merge(NODES, "w1", {"status": status}, subresource="status")
        spec = {"containers": [CONTAINER], "nodeName": "w1"}
        meta = {"name": "web", "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        pod = await made.kube.create(pod, PODS)
        state = running_status(pod, "2026-01-01T00:00:00Z")
        pod = await made.kube.merge(PODS, "web", {"status": state}, "default", subresource="status")
        facts = NodeFacts(name="w1", uuid="u", version="v1", cpus=4, memory_mib=8192, addresses=())
        kubelet = RunningKubelet(facts, lambda: {"u": pod}, lambda: VmLoad(0.25, 0.5))
        made.stops.append(made.kubelets.add("c1", kubelet))
        yield made


async def test_logs(cluster: Cluster, version: str) -> None:
    code, out, error = await cluster.run(version, "logs", "web", "--tail=2", "--timestamps")
    assert (code, len(out.splitlines())) == (0, 2), error
    assert "Z simulated log: web runs since" in out
    code, out, error = await cluster.run(version, "logs", "web", "--previous")
    assert code == 1
    assert 'previous terminated container "web" in pod "web" not found' in error
    code, _, error = await cluster.run(version, "logs", "web", "-c", "other")
    assert code == 1
    assert "container other is not valid for pod web" in error


async def test_logs_are_followed(cluster: Cluster, version: str) -> None:
    process = await cluster.start(version, "logs", "-f", "web", "--tail=1")
    assert process.stdout is not None
    first = await asyncio.wait_for(process.stdout.readline(), 30)
    assert await asyncio.wait_for(process.stdout.readline(), 30) > first
    process.terminate()
    await process.communicate()


async def test_exec(cluster: Cluster, version: str) -> None:
    assert (await cluster.run(version, "exec", "web", "--", "hostname"))[:2] == (0, "web\n")
    code, out, error = await cluster.run(version, "exec", "web", "--", "sh", "-c", "echo a; exit 3")
    assert (code, out) == (3, "a\n"), error
    code, out, error = await cluster.run(
        version, "exec", "-i", "web", "--", "sh", stdin="uname\necho $HOSTNAME\nnonsense\n"
    )
    assert (code, out) == (127, "Linux\nweb\n")
    assert "This shell is simulated" in error
    assert "nonsense: not found" in error
    copied = "x" * 200_000
    assert await cluster.run(version, "exec", "-i", "web", "--", "cat", stdin=copied) == (
        0,
        copied,
        "",
    )


async def test_what_is_refused_says_why(cluster: Cluster, version: str) -> None:
    code, _, error = await cluster.run(version, "attach", "web")
    assert code == 1
    assert "use kubectl logs or kubectl exec" in error
    code, _, error = await cluster.run(version, "cp", "/etc/hostname", "web:/tmp/x")
    assert code == 2
    assert "simulated containers have no file system" in error


async def test_port_forward(cluster: Cluster, version: str) -> None:
    port = free_port()
    process = await cluster.start(version, "port-forward", "pod/web", f"{port}:80")
    assert process.stdout is not None
    assert b"Forwarding from" in await asyncio.wait_for(process.stdout.readline(), 30)
    async with aiohttp.ClientSession() as session:
        for path in ("/one", "/two"):
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                text = await response.text()
                assert f"Request: GET {path}" in text
    process.terminate()
    await process.communicate()


async def test_a_port_that_no_container_has(cluster: Cluster, version: str) -> None:
    port = free_port()
    process = await cluster.start(version, "port-forward", "pod/web", f"{port}:81")
    assert process.stdout is not None
    assert process.stderr is not None
    await asyncio.wait_for(process.stdout.readline(), 30)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/")
    error = b""
    while b"declared ports only: 80" not in error:
        error += await asyncio.wait_for(process.stderr.readline(), 30)
    if process.returncode is None:
        process.terminate()
    await process.communicate()


async def test_top(cluster: Cluster, version: str) -> None:
    code, out, error = await cluster.run(version, "top", "nodes")
    assert code == 0, error
    assert out.splitlines()[1].split() == ["w1", "1000m", "25%", "4096Mi", "50%"]
    code, out, error = await cluster.run(version, "top", "pods", "-A", "--containers")
    assert code == 0, error
    assert out.splitlines()[1].split()[:3] == ["default", "web", "web"]


async def test_a_lost_node_and_a_user_without_rights(cluster: Cluster, version: str) -> None:
    token = ("--token", "jane-token", "--server", cluster.http.url, "--insecure-skip-tls-verify")
    config = cluster.folder / "kubeconfig"
    kept = config.read_text()
    config.write_text("apiVersion: v1\nkind: Config\n")
    for command in (("logs", "web"), ("exec", "web", "--", "id"), ("top", "nodes")):
        code, _, error = await cluster.run(version, *token, *command)
        assert code == 1
        assert "forbidden" in error, command
    config.write_text(kept)
    cluster.stop_kubelet()
    code, _, error = await cluster.run(version, "logs", "web")
    assert code == 1
    assert "the simulated kubelet of node w1 does not run" in error
    code, _, error = await cluster.run(version, "exec", "web", "--", "id")
    assert code == 1
    assert "the simulated kubelet of node w1 does not run" in error
