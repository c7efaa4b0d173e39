"""
Benchmark of one lab cluster with many nodes: CPU, memory, descriptors, latency, database size.

Starts ``moxwell up`` with a lab large enough, creates one cluster without nodes, then scales it and
waits until all nodes are ready. CPU, memory and descriptors are those of the daemon and all
processes below it, minus those of the cluster without nodes. Latency is measured by a client in
this process that sends ten requests a second to the management API and the tenant's API. ``--week``
writes the heartbeats of a week on virtual time and measures the database.

    python bench/scale.py [--nodes 30 100 300] [--idle 60] [--week 5]
"""

import argparse
import asyncio
import base64
import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from scale_usage import Usage, usage
from scale_week import database_after_week

from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import Resource
from moxwell.cli import demo
from moxwell.clock import SystemClock
from moxwell.errors import MoxwellError
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAME, NAMESPACE = "scale", "tenant-scale"
SETTLE_SECONDS = 20.0
LIMITS = {
    "CPU ms per node to make": 60.0,
    "CPU ms per node per second idle": 0.2,
    "MB per node": 0.5,
    "descriptors per node": 1.0,
    "p99 ms of a request while made": 50.0,
    "p99 ms of a request idle": 50.0,
    "seconds moxwell status": 1.0,
    "seconds moxwell get machines": 1.0,
    "seconds kubectl get nodes": 1.0,
    "seconds dashboard": 1.0,
}


@dataclass(slots=True)
class Latencies:
    """Durations of requests in milliseconds."""

    values: list[float] = field(default_factory=list)

    def p99(self) -> float:
        ordered = sorted(self.values)
        return ordered[int(len(ordered) * 0.99)] if ordered else float("nan")


def world(folder: Path, nodes: int) -> Path:
    """The lab's world with hosts and storages large enough for so many nodes."""
    text = (resources.files("moxwell.lab") / "lab.yaml").read_text()
    text = re.sub(r"cpus: \d+", f"cpus: {max(64, nodes)}", text)
    text = re.sub(r"memory: \d+G", f"memory: {max(256, nodes * 4)}G", text)
    text = re.sub(r"capacity: \d+[GT]", f"capacity: {max(10, nodes // 10)}T", text)
    file = folder / "world.yaml"
    file.write_text(text)
    return file


@contextlib.contextmanager
def daemon(folder: Path, nodes: int) -> Iterator[tuple[int, dict[str, str]]]:
    """A running daemon: its PID and the environment of commands."""
    environ = os.environ | {"XDG_STATE_HOME": str(folder), "MOXWELL_NAME": NAME}
    up = ["up", "--no-demo", "--world", str(world(folder, nodes))]
    moxwell(environ, *up)
    pid = int(re.findall(r'"pid":(\d+)', (_state(folder) / "facts.json").read_text())[0])
    try:
        yield pid, environ
    finally:
        moxwell(environ, "down")


def _state(folder: Path) -> Path:
    return folder / "moxwell" / NAME


def moxwell(environ: dict[str, str], *argv: str) -> float:
    """Run a command; returns how long it took."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "moxwell", *argv], env=environ, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


@contextlib.asynccontextmanager
async def client(text: bytes) -> AsyncIterator[Kube]:
    async with KubeTransport(kubeconfig.parse(text).access(SystemClock(), {})) as transport:
        yield Kube(transport)


async def probe(kube: Kube, into: Latencies) -> None:
    """Send requests as a user would, until cancelled: read one object, read the version."""
    while True:
        for request in (lambda: kube.find(NODES, "absent"), kube.version):
            began = time.monotonic()
            with contextlib.suppress(MoxwellError):
                await request()
            into.values.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def probing(*clients: Kube) -> AsyncIterator[Latencies]:
    """Measure the latency of requests inside the block."""
    found = Latencies()
    tasks = [asyncio.create_task(probe(kube, found)) for kube in clients]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def create(kube: Kube) -> None:
    """Create the cluster without nodes and wait until it is ready."""
    await demo.create_namespace(kube, NAMESPACE)
    body = demo.manifest(NAME, NAMESPACE, 0)
    body["spec"]["nodeGroups"] = [_group(0)]
    await kube.create(body, Kubernetes.resource)
    await _until_ready(kube)


async def scale(kube: Kube, nodes: int) -> None:
    """Scale the cluster and wait until every node is ready."""
    await kube.merge(Kubernetes, NAME, {"spec": {"nodeGroups": [_group(nodes)]}}, NAMESPACE)
    await _until_ready(kube)


def _group(nodes: int) -> dict[str, object]:
    return {"name": "md0", "replicas": nodes, "instanceType": "u1.small"}


async def _until_ready(kube: Kube) -> None:
    while not demo.is_ready(await kube.get(Kubernetes, NAME, NAMESPACE)):
        await asyncio.sleep(1)


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase used."""

    seconds: float
    cpu: float

    @property
    def share(self) -> float:
        return self.cpu / self.seconds


async def measure(folder: Path, nodes: int, idle: float) -> dict[str, float]:
    """Create a cluster, leave it idle; returns the figures."""
    with daemon(folder, nodes) as (pid, environ):
        async with client((_state(folder) / "kubeconfig").read_bytes()) as kube:
            await create(kube)
            secret = await kube.get(demo.SECRETS, f"{NAME}-kubeconfig", NAMESPACE)
            async with client(base64.b64decode(secret["data"]["value"])) as tenant:
                await asyncio.sleep(SETTLE_SECONDS)
                empty, _ = await rest(pid, idle, kube, tenant)
                before, began = usage(pid), time.monotonic()
                async with probing(kube, tenant) as making:
                    await scale(kube, nodes)
                made = Phase(time.monotonic() - began, usage(pid).cpu - before.cpu)
                await asyncio.sleep(SETTLE_SECONDS)
                rested, calm = await rest(pid, idle, kube, tenant)
        after = usage(pid)
        found = Measured(nodes, before, after, made, empty, rested, making, calm)
        return found.figures() | commands(environ)


async def rest(pid: int, seconds: float, *clients: Kube) -> tuple[Phase, Latencies]:
    """Measure while nothing happens."""
    start, began = usage(pid), time.monotonic()
    async with probing(*clients) as calm:
        await asyncio.sleep(seconds)
    return Phase(time.monotonic() - began, usage(pid).cpu - start.cpu), calm


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured for one size."""

    nodes: int
    before: Usage
    after: Usage
    made: Phase
    empty: Phase
    rested: Phase
    making: Latencies
    calm: Latencies

    def figures(self) -> dict[str, float]:
        """The rows of the table."""
        nodes, before, after = self.nodes, self.before, self.after
        idle, empty = self.rested.share * 1000, self.empty.share * 1000
        return {
            "seconds to all ready": self.made.seconds,
            "CPU ms per node to make": self.made.cpu / nodes * 1000,
            "CPU ms per node to make, less idle": self._above_idle() / nodes * 1000,
            "CPU ms per second idle, without nodes": empty,
            "CPU ms per node per second idle": (idle - empty) / nodes,
            "MB without nodes": before.memory / 1e6,
            "MB per node": (after.memory - before.memory) / nodes / 1e6,
            "descriptors without nodes": float(before.descriptors),
            "descriptors per node": (after.descriptors - before.descriptors) / nodes,
            "p99 ms of a request while made": self.making.p99(),
            "p99 ms of a request idle": self.calm.p99(),
        }

    def _above_idle(self) -> float:
        """CPU seconds of making beyond what the cluster without nodes and the probes use."""
        return self.made.cpu - self.empty.share * self.made.seconds


def commands(environ: dict[str, str]) -> dict[str, float]:
    """How long the user waits for an answer."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = moxwell(environ, "status")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds moxwell status": status,
        "CPU seconds moxwell status": cpu,
        "seconds moxwell get machines": moxwell(environ, "get", "machines", "-A"),
        "seconds kubectl get nodes": kubectl(environ),
        "seconds dashboard": dashboard(environ),
    }


def kubectl(environ: dict[str, str]) -> float:
    """How long ``kubectl get nodes`` takes; not a number without kubectl."""
    if shutil.which("kubectl") is None:
        return float("nan")
    file = Path(environ["XDG_STATE_HOME"]) / "tenant.conf"
    argv = [sys.executable, "-m", "moxwell", "cluster", "kubeconfig", NAME, "-n", NAMESPACE]
    file.write_bytes(subprocess.run(argv, env=environ, check=True, capture_output=True).stdout)
    get = ["kubectl", "--kubeconfig", str(file), "get", "nodes"]
    subprocess.run(get, env=environ, check=True, capture_output=True)  # fills its discovery cache
    began = time.monotonic()
    subprocess.run(get, env=environ, check=True, capture_output=True)
    return time.monotonic() - began


def dashboard(environ: dict[str, str]) -> float:
    """How long the dashboard takes to send everything."""
    state = _state(Path(environ["XDG_STATE_HOME"]))
    url = re.findall(r'"dashboard":"([^"]+)"', (state / "facts.json").read_text())[0]
    key = (state / "dashboard.key").read_text()
    request = urllib.request.Request(f"{url}/api/state", headers={"Authorization": f"Bearer {key}"})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()
    return time.monotonic() - began


def tell(columns: dict[int, dict[str, float]]) -> None:
    """Print one Markdown table."""
    print("| figure | " + " | ".join(f"{n} nodes" for n in columns) + " | limit |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name in next(iter(columns.values())):
        shown = " | ".join(f"{figures[name]:.2f}" for figures in columns.values())
        print(f"| {name} | {shown} | {LIMITS.get(name, '')} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[30, 100, 300])
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to measure at rest")
    parser.add_argument("--week", type=int, default=0, help="nodes whose week of heartbeats counts")
    given = parser.parse_args()
    columns: dict[int, dict[str, float]] = {}
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as folder:
            columns[nodes] = asyncio.run(measure(Path(folder), nodes, given.idle))
            tell(columns)
    if given.week:
        database_after_week(given.week)
    over = [n for n, c in columns.items() for k, v in c.items() if v > LIMITS.get(k, float("inf"))]
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
