"""
Benchmark: the embedded API server against kube-apiserver with etcd, both durable, on one machine.

Run: ``python bench/apiserver.py`` (needs ``make envtest``). One client writes and reads ConfigMaps
of 1 kB over TLS, one server at a time in alternating rounds; the best round counts. Measured are
requests per second and the servers' CPU and memory. Results are ratios without a limit.
"""

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "conformance")]

from apisuite import embedded  # noqa: E402
from apisuite.server import Server  # noqa: E402
from envtest import locate  # noqa: E402
from envtest.control_plane import ControlPlane  # noqa: E402

REQUESTS, ROUNDS = 600, 3
NAMESPACE = "/api/v1/namespaces/default/configmaps"
PAYLOAD = {"text": "x" * 1000}
SendRequest = Callable[[aiohttp.ClientSession, int], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class BenchmarkServer:
    """A server: its URL, the client's TLS context, and its processes."""

    url: str
    tls: ssl.SSLContext
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    per_second: float
    cpu_ms: float


def make_server(config: Path, scratch: Path, pids: tuple[int, ...]) -> BenchmarkServer:
    Server(
        config, locate.program("kubectl"), scratch
    ).close()  # writes the kubeconfig's certificate files
    url = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"]
    tls = ssl.create_default_context(cafile=str(scratch / "ca.crt"))
    tls.load_cert_chain(scratch / "admin.crt", scratch / "admin.key")
    return BenchmarkServer(url, tls, pids)


def cpu_seconds(pids: tuple[int, ...]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def memory_mib(pids: tuple[int, ...]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * 4096 / 2**20


def create(mark: str) -> SendRequest:
    async def send(session: aiohttp.ClientSession, number: int) -> int:
        body = {"metadata": {"name": f"{mark}-{number}"}, "data": PAYLOAD}
        async with session.post(NAMESPACE, json=body) as answer:
            await answer.read()
            return answer.status

    return send


def merge(mark: str) -> SendRequest:
    headers = {"Content-Type": "application/merge-patch+json"}

    async def send(session: aiohttp.ClientSession, number: int) -> int:
        body = f'{{"data":{{"n":"{time.monotonic_ns()}"}}}}'
        path = f"{NAMESPACE}/{mark}-{number}"
        async with session.patch(path, data=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    return send


def read(mark: str) -> SendRequest:
    async def send(session: aiohttp.ClientSession, number: int) -> int:
        async with session.get(f"{NAMESPACE}/{mark}-{number}") as answer:
            await answer.read()
            return answer.status

    return send


async def load(server: BenchmarkServer, send: SendRequest, connections: int) -> Result:
    """Run all requests over a number of concurrent connections."""
    connector = aiohttp.TCPConnector(limit=connections, ssl=server.tls)
    numbers = iter(range(REQUESTS))
    async with aiohttp.ClientSession(server.url, connector=connector) as session:
        await session.get("/version")

        async def lane() -> None:
            for number in numbers:
                status = await send(session, number)
                if status not in (200, 201):
                    raise SystemExit(f"{server.url} answered {status}")

        before, began = cpu_seconds(server.pids), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(lane())
        took = time.perf_counter() - began
    return Result(REQUESTS / took, (cpu_seconds(server.pids) - before) / REQUESTS * 1000)


def better(old: Result | None, new: Result) -> Result:
    return new if old is None or new.per_second > old.per_second else old


async def play(both: dict[str, BenchmarkServer]) -> dict[tuple[str, str], Result]:
    best: dict[tuple[str, str], Result] = {}
    for number in range(ROUNDS):
        for name, server in both.items():
            for connections in (1, 16, 64):
                mark = f"r{number}c{connections}"
                kinds: tuple[tuple[str, SendRequest], ...] = (
                    ("create", create(mark)),
                    ("merge patch", merge(mark)),
                    ("get", read(mark)),
                )
                for kind, send in kinds:
                    key = (name, f"{kind}, {connections} connections")
                    best[key] = better(best.get(key), await load(server, send, connections))
    return best


def report(best: dict[tuple[str, str], Result], both: dict[str, BenchmarkServer]) -> None:
    print(f"{'embedded / kube-apiserver':32} {'requests/s':>10} {'server CPU':>10}")
    for what in dict.fromkeys(key for _, key in best):
        embedded_server, kube_apiserver = best["embedded", what], best["kube-apiserver", what]
        rate = embedded_server.per_second / kube_apiserver.per_second
        cpu = (
            embedded_server.cpu_ms / kube_apiserver.cpu_ms
            if kube_apiserver.cpu_ms
            else float("nan")
        )
        print(f"{what:32} {rate:9.2f}x {cpu:9.2f}x   ({embedded_server.per_second:.0f}/s here)")
    memory = {name: memory_mib(server.pids) for name, server in both.items()}
    ratio = memory["embedded"] / memory["kube-apiserver"]
    print(f"{'memory at the end':32} {ratio:9.2f}x   ({memory['embedded']:.0f} MiB here)")


def main() -> int:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(scratch / "plane")).start(durable=True)
        process, config = embedded.start(scratch / "embedded")
        stack.callback(process.stop)
        pids = (plane.processes["etcd"].pid, plane.processes["kube-apiserver"].pid)
        both = {
            "kube-apiserver": make_server(plane.kubeconfig, scratch / "g", pids),
            "embedded": make_server(config, scratch / "e", (process.pid,)),
        }
        report(asyncio.run(play(both)), both)
    return 0


if __name__ == "__main__":
    sys.exit(main())
