"""
Moxwell as its users run it, on genuine Kubernetes: the released components and the operator itself.

The components are applied as they are released; two things of a real cluster are missing and played
here: no kubelet runs the Deployment (the operator is a process with the very token of its
ServiceAccount), and no Service leads to its webhooks (they are called by URL). Proxmox is the
simulator, in a thread of its own, with guests that boot, join and may become control planes.
"""

import asyncio
import base64
import contextlib
import importlib.util
import json
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from envtest import kubeconfig, managers
from envtest.control_plane import ControlPlane
from envtest.process import Failed, Process, free_port, wait_ready
from moxwell.clock import Clock, SystemClock
from moxwell.embedded.controlplanes.machine_control_planes import MachineControlPlanes
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.proxmox import certs, simulator
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.two_regions_world import QUICK, TOKEN, TOKEN_SECRET

Json = dict[str, Any]
RELEASE = Path(__file__).parents[2] / "release"
SPACE, ACCOUNT = "moxwell-system", "moxwell-controller-manager"
PATIENCE_SECONDS = 600.0
TRIES = 5
OLD = """
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: ProxmoxCluster
metadata: {name: heard}
spec:
  controlPlaneEndpoint: {host: 10.0.0.4, port: 6443}
  ipv4Config: {addresses: [10.0.0.10], prefix: 24, gateway: 10.0.0.1}
  dnsServers: [10.0.0.2]
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: ProxmoxMachineTemplate
metadata: {name: heard}
spec: {template: {spec: {sourceNode: pve1, templateID: 9000}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: ProxmoxMachine
metadata: {name: heard}
spec: {sourceNode: pve1, templateID: 9000}
"""


class Simulated:
    """The Proxmox clusters of a world, on loopback, in a thread; a context manager."""

    def __init__(self, folder: Path, world: str = QUICK, token: str = TOKEN) -> None:
        self.folder, self._world, self._token = folder, world, token
        folder.mkdir(parents=True, exist_ok=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._lives: list[asyncio.Task[None]] = []
        self.simulator: simulator.Simulator | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something where the simulator runs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        clock = SystemClock()
        planes = MachineControlPlanes(self.folder / "planes", clock)
        guests = GuestRunner(KubeTransport, clock, control_planes=planes)
        made = certs.make(self.folder / "certs", clock.now())
        self.ca = made.ca
        regions = read_world(self._world, "world", clock.now().timestamp())
        self.simulator = self.make_simulator(regions, clock, made.context(), guests)
        await self.simulator.start()
        self._lives = [asyncio.create_task(guests.run()), asyncio.create_task(planes.run())]

    def make_simulator(
        self, regions: dict[str, SimRegion], clock: Clock, tls: ssl.SSLContext, guests: GuestOs
    ) -> simulator.Simulator:
        """The simulator of these regions, not started."""
        return simulator.Simulator(regions, clock, tls=tls, guest_os=guests)

    async def _stop(self) -> None:
        for life in self._lives:
            life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await life
        if self.simulator is not None:
            await self.simulator.stop()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0.1)

    @property
    def regions(self) -> dict[str, SimRegion]:
        assert self.simulator is not None
        return self.simulator.regions

    def config(self, secret: str = TOKEN_SECRET) -> str:
        """The file that tells the operator of these clusters."""
        assert self.simulator is not None
        entries = [
            {
                "region": name,
                "url": self.simulator.url(name),
                "token_id": self._token,
                "token_secret": secret,
                "ca_file": str(self.ca),
            }
            for name in self.regions
        ]
        return yaml.safe_dump({"clusters": entries})

    def ours(self) -> dict[str, list[int]]:
        """Ids of guests that the world did not begin with, by region."""
        return {
            name: sorted(
                vmid
                for vmid, guest in list(region.guests.items())
                if not guest.conf.get("template") and vmid != 201
            )
            for name, region in self.regions.items()
        }


def components() -> list[Json]:
    """What the release holds."""
    spec = importlib.util.spec_from_file_location("release_render", RELEASE / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: list[Json] = module.components()
    return made


def pointed(objects: list[Json], port: int) -> list[Json]:
    """The same objects with webhooks called on loopback, and without what only a kubelet runs."""
    url = f"https://127.0.0.1:{port}"
    found = []
    for obj in objects:
        if obj["kind"] == "ValidatingWebhookConfiguration":
            for hook in obj["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"]["url"] = url + path
        if obj["kind"] == "CustomResourceDefinition":
            client = obj["spec"]["conversion"]["webhook"]["clientConfig"]
            client["url"] = url + client.pop("service")["path"]
        if obj["kind"] != "Deployment" and not is_configuration(obj):
            found.append(obj)
    return found


def is_configuration(obj: Json) -> bool:
    """The Secret that a user fills."""
    return (obj["kind"], obj["metadata"]["name"]) == ("Secret", "moxwell-config")


class Operator:
    """One operator, running with the rights of the release and nothing more."""

    def __init__(self, plane: ControlPlane, config: Path, *, name: str = "operator") -> None:
        self.plane, self._config, self.name = plane, config, name
        self.webhooks, self._health = free_port(), free_port()
        self.process: Process | None = None

    def install(self, objects: list[Json] | None = None) -> None:
        """Apply the components (or what clusterctl made of them)."""
        found = pointed(objects or components(), self.webhooks)
        text = yaml.dump_all(found, Dumper=managers.DUMPER)
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        self.plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")

    def point(self) -> None:
        """Lead the webhooks of components that are there already to this process."""
        url = f"https://127.0.0.1:{self.webhooks}"
        for obj in components():
            name = obj["metadata"]["name"]
            if obj["kind"] == "ValidatingWebhookConfiguration":
                path, where = "/webhooks/0/clientConfig", {"url": f"{url}/validate"}
            elif obj["kind"] == "CustomResourceDefinition":
                path = "/spec/conversion/webhook/clientConfig"
                where = {"url": f"{url}/convert"}
            else:
                continue
            change = json.dumps([{"op": "replace", "path": path, "value": where}])
            self.plane.kubectl("patch", obj["kind"].lower(), name, "--type=json", "-p", change)

    def start(self, *flags: str) -> None:
        token = self.plane.kubectl(
            "create", "token", ACCOUNT, "-n", SPACE, "--duration=2h"
        ).stdout.strip()
        path = self.plane.folder / f"{self.name}.kubeconfig"
        ca = self.plane.authority.pair.cert
        kubeconfig.write(path, server=self.plane.url, ca=ca, who=kubeconfig.user(token=token))
        self.process = self.plane.run(
            self.name,
            Path(sys.executable),
            "-m",
            "moxwell",
            "operator",
            "--controllers=infra",
            f"--config={self._config}",
            f"--kubeconfig={path}",
            f"--leader-elect-resource-namespace={SPACE}",
            f"--webhook-port={self.webhooks}",
            f"--health-port={self._health}",
            "--bind-address=127.0.0.1",
            *flags,
        )
        wait_ready(self.process, self._is_ready)
        wait_ready(self.process, self._is_heard)

    def _is_ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self._health}/readyz"
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _is_heard(self) -> bool:
        """Apiservers learn a moment later whom to trust: until then nobody converts."""
        done = self.plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=OLD, check=False)
        return done.returncode == 0

    @property
    def log(self) -> str:
        assert self.process is not None
        return self.process.log.read_text(errors="replace")


def get(plane: ControlPlane, kind: str, *more: str) -> list[Json]:
    """Objects of a kind in ``default``, as JSON."""
    done = plane.kubectl("get", kind, *more, "-o", "json")
    found: Json = json.loads(done.stdout)
    return list(found["items"]) if "items" in found else [found]


def apply(plane: ControlPlane, text: str, *more: str) -> None:
    """As a user does: again, where a webhook was too slow to be heard."""
    for _ in range(TRIES):
        done = plane.kubectl("apply", "-f", "-", *more, stdin=text, check=False)
        if done.returncode == 0 or "webhook" not in done.stderr or "denied" in done.stderr:
            break
    assert done.returncode == 0, done.stderr


def until(what: str, ask: Callable[[], Any], tell: Callable[[], str] = lambda: "") -> Any:
    """The first answer that is true."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            if found := ask():
                return found
        except subprocess.CalledProcessError:
            pass
        time.sleep(1)
    raise Failed(f"{what} did not come:\n{tell()}")


def story(plane: ControlPlane) -> str:
    """How far everything is, for whoever must find out why not."""
    lines = []
    for kind in ("clusters", "kubeadmcontrolplanes", "machines", "proxmoxclusters"):
        for obj in get(plane, kind):
            said = obj.get("status", {}).get("conditions") or []
            bad = [f"{c['type']}={c['status']} {c['message'][:200]}" for c in said]
            lines.append(f"{kind} {obj['metadata']['name']}: {bad}")
    for obj in get(plane, "proxmoxmachines"):
        said = obj.get("status", {}).get("conditions") or []
        bad = [f"{c['type']}={c['status']} {c['reason']} {c['message'][:300]}" for c in said]
        lines.append(f"proxmoxmachines {obj['metadata']['name']}: {bad}")
    return "\n".join(lines)


def workload(plane: ControlPlane, cluster: str, folder: Path) -> Path:
    """The kubeconfig that Cluster API keeps for a cluster, as a file."""
    (secret,) = get(plane, "secret", f"{cluster}-kubeconfig")
    path = folder / f"{cluster}.kubeconfig"
    path.touch(0o600)
    path.write_bytes(base64.b64decode(secret["data"]["value"]))
    return path
