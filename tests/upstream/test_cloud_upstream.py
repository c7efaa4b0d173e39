"""
The cloud controllers as operators run them: on a genuine control plane, Proxmox over HTTPS.

kube-apiserver, kube-controller-manager and kube-scheduler are genuine, the simulator is Proxmox.
Kubelets are a few writes. Guests are stopped, deleted, moved and renamed, the region falls silent,
the token loses its privileges; whatever happens, no node is deleted whose guest exists. The clock
of the controllers and of Proxmox runs fast, so that an hour takes seconds.
"""

import asyncio
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envtest.control_plane import ControlPlane, wait_default_account
from envtest.plugin import KUBERNETES, require
from envtest.process import free_port
from moxwell.api.core.nodes import Node
from moxwell.api.kinds import Resource
from moxwell.clock import SystemClock
from moxwell.controllers.cloud import features as settings
from moxwell.controllers.cloud import identity
from moxwell.controllers.cloud.lifecycle.plan import SHUTDOWN
from moxwell.controllers.cloud.node import plan
from moxwell.controllers.cloud.setup import add_cloud
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.lab.proxmox import certs, chaos
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.values import SecretValue
from moxwell.runtime.lease import LEASES
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.small_region import FEATURES, TOKEN, grant, world_text

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("cloud")]
PODS = Resource("", "v1", "pods", "Pod")
PATIENCE_SECONDS = 900  # of the machine; nothing here is measured by it
MINUTE, HOUR = 60.0, 3600.0
MANY = 1000
FIRST = 1000


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that never marks a node Unknown: the kubelets here renew no lease."""
    require(*KUBERNETES)
    with ControlPlane(tmp_path_factory.mktemp("cloud")) as made:
        made.start()
        made.start_controller_manager("--node-monitor-grace-period=24h")
        wait_default_account(made)
        made.start_scheduler()
        yield made


class Hasty(SystemClock):
    """A clock on which time passes many times as fast; the time of day is the true one."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return super().monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._speed)


class Rig:
    """The genuine cluster and the simulated region."""

    def __init__(self, kube: Kube, sim: Simulator, clock: Hasty) -> None:
        self.kube, self.sim, self.clock = kube, sim, clock
        self.sim_region = sim.engine.runtimes["r1"]
        self.region: SimRegion = self.sim_region.region

    def uuid(self, vmid: int) -> str:
        return str(self.region.guests[vmid].conf["smbios1"]).removeprefix("uuid=").split(",")[0]

    def guest(self, vmid: int, name: str) -> None:
        args = {"vmid": vmid, "name": name, "node": "pve1"}
        chaos.perform(self.sim_region, "take-vmid", args)
        uuid = f"10000000-0000-4000-8000-{vmid:012d}"
        self.region.guests[vmid].conf["smbios1"] = f"uuid={uuid}"

    async def join(self, name: str, vmid: int, *, ready: bool = True) -> None:
        """A kubelet registers, as one with ``--cloud-provider=external`` does."""
        taint = {"key": plan.TAINT, "value": "true", "effect": "NoSchedule"}
        notes = {identity.NODE_IP: f"10.0.{vmid // 250}.{vmid % 250 + 1}"}
        info = dict.fromkeys(
            ("machineID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
             "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"), ""
        ) | {"systemUUID": self.uuid(vmid)}  # fmt: skip
        room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        status = {
            "nodeInfo": info,
            "capacity": room,
            "allocatable": room,
            "conditions": [condition(ready)],
        }
        meta = {"name": name, "annotations": notes, "labels": {"kubernetes.io/hostname": name}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        body |= {"spec": {"taints": [taint]}, "status": status}
        await self.kube.create(body, Node.resource)

    async def set_ready(self, name: str, ready: bool) -> None:
        change = {"status": {"conditions": [condition(ready)]}}
        await self.kube.merge(Node.resource, name, change, subresource="status")

    async def taints(self, name: str) -> set[str]:
        return {t.key for t in (await self.kube.get(Node, name)).spec.taints}

    async def initialised(self, name: str) -> Node:
        async def done() -> Any:
            found = await self.kube.find(Node, name)
            return found if found is not None and not plan.is_new(found) else None

        node: Node = await until(done)
        return node

    async def is_there(self, name: str) -> bool:
        return await self.kube.find(Node, name) is not None


def condition(ready: bool) -> dict[str, str]:
    return {
        "type": "Ready",
        "status": str(ready),
        "reason": "Kubelet",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def until(check: Callable[[], Awaitable[Any]], pause: float = 0.1) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await check()):
            await asyncio.sleep(pause)
    return found


@asynccontextmanager
async def simulated(folder: Path, clock: Hasty) -> AsyncIterator[tuple[Simulator, RegionConfig]]:
    """A region over HTTPS, and how to reach it."""
    made = certs.make(folder, clock.now())
    world = read_world(world_text("9.2.11"), "cloud.yaml", clock.now().timestamp())
    grant(world["r1"], "moxwell@pve", FEATURES)
    world["r1"].pace.statd = 0.5
    sim = Simulator(world, clock, tls=made.context())
    await sim.start()
    token, _, secret = TOKEN.partition("=")
    config = RegionConfig(
        region="r1",
        urls=tuple(sim.urls.values()),
        auth=TokenAuth(token, SecretValue(secret)),
        ca_pem=made.ca.read_text(),
    )
    try:
        yield sim, config
    finally:
        await sim.stop()


@asynccontextmanager
async def running(
    plane: ControlPlane, folder: Path, *, speed: float = 20.0, **features: Any
) -> AsyncIterator[Rig]:
    """The cloud controllers between the two."""
    clock = Hasty(speed)
    access = kubeconfig.load([Path(plane.kubeconfig)]).access(clock, {})
    async with simulated(folder, clock) as (sim, config), KubeTransport(access) as handler:
        regions = Regions([config], clock)
        for region in regions.values():
            region.inventory.poll_frequently(1e9)  # so that it is listed every three seconds
        runtime = assemble(handler, clock, ManagerSettings(elect=False, identity="cloud"))
        add_cloud(runtime, clock, regions, settings.from_mapping(features))
        tasks = [asyncio.create_task(t) for t in (runtime.manager.run(), regions.run())]
        envtest = Rig(Kube(handler), sim, clock)
        try:
            await regions["r1"].inventory.wait_synced()
            yield envtest
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await envtest.kube.delete_collection(Node)


async def pod(envtest: Rig, name: str) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False}
    meta = {"name": name, "namespace": "default"}
    await envtest.kube.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, PODS
    )


async def test_a_node_joins_and_is_scheduled_on_only_then(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with running(plane, tmp_path) as envtest:
        await pod(envtest, "waits")
        await envtest.join("ours", 100)
        node = await envtest.initialised("ours")
        assert node.spec.provider_id == "proxmox://r1/100"
        assert node.metadata.labels[identity.ZONE] == "pve1"

        async def bound() -> Any:
            return (await envtest.kube.get(PODS, "waits", "default"))["spec"].get("nodeName")

        assert await until(bound) == "ours"
        assert [a.type for a in (await envtest.kube.get(Node, "ours")).status.addresses] == [
            "InternalIP",
            "Hostname",
        ]
        await envtest.kube.delete(PODS, "waits", "default")


async def test_a_guest_is_stopped_started_and_deleted(plane: ControlPlane, tmp_path: Path) -> None:
    async with running(plane, tmp_path) as envtest:
        await envtest.join("ours", 100)
        await envtest.initialised("ours")
        await envtest.set_ready("ours", False)

        async def tainted() -> bool:
            return SHUTDOWN in await envtest.taints("ours")

        async def clean() -> bool:
            return not await tainted()

        await until(tainted)
        await envtest.set_ready("ours", True)
        await until(clean)
        chaos.perform(envtest.sim_region, "delete-guest", {"vmid": 100})
        await envtest.clock.sleep(MINUTE)
        assert await envtest.is_there("ours")  # it still reports
        await envtest.set_ready("ours", False)

        async def gone() -> bool:
            return not await envtest.is_there("ours")

        await until(gone)


async def test_a_guest_is_moved_and_renamed(plane: ControlPlane, tmp_path: Path) -> None:
    async with running(plane, tmp_path, force_update_labels=True) as envtest:
        await envtest.join("ours", 100)
        await envtest.initialised("ours")
        chaos.perform(envtest.sim_region, "move-guest", {"vmid": 100, "node": "pve2"})

        async def moved() -> bool:
            node = await envtest.kube.get(Node, "ours")
            return node.metadata.labels[identity.ZONE] == "pve2"

        await until(moved)
        envtest.region.guests[100].conf["name"] = "renamed"
        envtest.region.changed.add(100)
        await envtest.set_ready("ours", False)
        await envtest.clock.sleep(MINUTE)
        assert await envtest.is_there("ours")


async def test_a_silent_region_and_a_token_without_privileges_cost_no_node(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with running(plane, tmp_path, speed=300.0, provider="capmox") as envtest:
        await envtest.join("ours", 100)
        await envtest.initialised("ours")
        await envtest.set_ready("ours", False)
        envtest.sim.engine.faults["r1"].add(Fault("status", status=596))
        await envtest.clock.sleep(HOUR)
        assert await envtest.is_there("ours")
        envtest.sim.engine.faults["r1"].remove()
        await envtest.clock.sleep(MINUTE)
        envtest.region.access.acl.clear()
        await envtest.clock.sleep(10 * MINUTE)
        assert await envtest.is_there("ours")
        await envtest.join("late", 200)
        await envtest.clock.sleep(10 * MINUTE)
        assert plan.is_new(await envtest.kube.get(Node, "late"))  # no identity without its guest


async def test_a_thousand_nodes(plane: ControlPlane, tmp_path: Path) -> None:
    async with running(plane, tmp_path) as envtest:
        for n in range(MANY):
            envtest.guest(FIRST + n, f"n{n}")
        await envtest.clock.sleep(MINUTE)
        async with asyncio.TaskGroup() as group:
            for start in range(20):
                group.create_task(_join_some(envtest, range(start, MANY, 20)))

        async def all_done() -> bool:
            nodes = (await envtest.kube.list(Node)).items
            return len(nodes) == MANY and not any(plan.is_new(n) for n in nodes)

        await until(all_done, pause=2.0)  # whoever lists a thousand all the time is in the way
        ids = {n.spec.provider_id for n in (await envtest.kube.list(Node)).items}
        assert ids == {f"proxmox://r1/{FIRST + n}" for n in range(MANY)}


async def _join_some(envtest: Rig, numbers: range) -> None:
    for n in numbers:
        await envtest.join(f"n{n}", FIRST + n)


FILE = """
features: {{provider: default, network: {{mode: default}}}}
clusters:
  - url: "{url}/api2/json"
    insecure: true
    token_id: "{token}"
    token_secret: "{secret}"
    region: r1
"""


async def test_the_command_takes_the_flags_of_the_other_one(
    plane: ControlPlane, tmp_path: Path
) -> None:
    clock, port = Hasty(1.0), free_port()
    access = kubeconfig.load([Path(plane.kubeconfig)]).access(clock, {})
    async with simulated(tmp_path, clock) as (sim, _), KubeTransport(access) as handler:
        token, _, secret = TOKEN.partition("=")
        file = tmp_path / "config.yaml"
        file.write_text(FILE.format(url=sim.url(), token=token, secret=secret))
        envtest = Rig(Kube(handler), sim, clock)
        program = Path(sys.executable).with_name("moxwell")
        more = (f"--cloud-config={file}", f"--secure-port={port}")
        who = f"--kubeconfig={plane.kubeconfig}"
        process = plane.run("ccm", program, "operator", *FLAGS, *more, who)
        try:
            await envtest.join("ours", 100)
            assert (await envtest.initialised("ours")).spec.provider_id == "proxmox://r1/100"
            lease = await envtest.kube.get(
                LEASES, "cloud-controller-manager-proxmox", "kube-system"
            )
            assert lease["spec"]["holderIdentity"]

            async def counted() -> bool:
                text = await asyncio.to_thread(metrics, port)
                return all(line in text for line in COUNTED)

            await until(counted)  # a moment after the node is seen without its taint
        finally:
            await asyncio.to_thread(process.stop)
            await envtest.kube.delete_collection(Node)


COUNTED = (
    "node_controller_cloud_provider_taint_removal_delay_seconds_count 1.0",
    'proxmox_api_request_duration_seconds_count{request="getVMConfig"}',
)
FLAGS = (
    "--cloud-provider=proxmox",
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller",
    "--leader-elect=true",
    "--leader-elect-resource-name=cloud-controller-manager-proxmox",
    "--use-service-account-credentials",
    "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
    "--node-status-update-frequency=5m0s",
    "--concurrent-node-syncs=2",
    "--bind-address=127.0.0.1",
    "-v=4",
)


def metrics(port: int) -> str:
    """What a scraper reads over HTTPS."""
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    for path in ("healthz", "livez", "readyz"):
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/{path}", context=loose) as answer:
            assert answer.status == 200
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=loose) as answer:
        return str(answer.read().decode())
