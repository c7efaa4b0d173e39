"""
The chart under genuine Cluster API: genuine Helm installs, scales and uninstalls, in Helm's order.

The management cluster is genuine; Proxmox is simulated, and the control plane's part is played.
Helm deletes all at once, control plane and templates among the first. What counts is the end.
"""

import asyncio
import base64
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest import locate
from envtest.control_plane import ControlPlane
from envtest.plugin import require
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.engine import Engine
from support.cluster_api_run import run_story

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
CHART = Path(__file__).parents[2] / "charts" / "moxwell-cluster"
PATIENCE_SECONDS = 600.0
_CORE = ("clusters", "machinedeployments", "machinesets", "machines", "machinehealthchecks")
_IPAM = ("ipaddressclaims", "ipaddresses", "inclusterippools")
_REST = (
    "proxmoxclusters", "proxmoxmachines", "proxmoxmachinetemplates", "kubeadmconfigs",
    "kubeadmconfigtemplates", "kamajicontrolplanes",
)  # fmt: skip
_NAMED = [f"{k}.cluster.x-k8s.io" for k in _CORE] + [f"{k}.ipam.cluster.x-k8s.io" for k in _IPAM]
EVERYTHING = ",".join((*_NAMED, *_REST))
VALUES = """
cluster:
  zones:
    - zone: a
      region: north
      ipv4Config: {addresses: ["10.1.0.10-10.1.0.99"], prefix: 24, gateway: 10.1.0.1}
    - zone: b
      region: south
      ipv4Config: {addresses: ["10.2.0.10-10.2.0.99"], prefix: 24, gateway: 10.2.0.1}
nodePools:
  - {name: w, templateId: 9000, numCores: 2, memoryMiB: 4096}
"""
STATUS = {
    "initialization": {"controlPlaneInitialized": True},
    "externalManagedControlPlane": True,
    "ready": True,
    "initialized": True,
    "replicas": 1,
    "readyReplicas": 1,
    "version": "v1.34.1",
}


class Stage:
    """A genuine management cluster, Helm, and two simulated regions."""

    def __init__(self, plane: ControlPlane, kube: Kube, engine: Engine, folder: Path) -> None:
        self.plane, self.kube, self.engine, self._folder = plane, kube, engine, folder

    async def helm(self, *args: str) -> None:
        program = [str(locate.program("helm")), "--kubeconfig", str(self.plane.kubeconfig)]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self._folder)}
        done = await asyncio.to_thread(
            subprocess.run, [*program, *args, "-n", "default"], env=env, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    async def put(self, verb: str, replicas: int) -> None:
        values = yaml.safe_load(VALUES)
        values["nodePools"][0]["replicas"] = replicas
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        await self.helm(verb, "c", str(CHART), "-f", str(file))

    async def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        run = asyncio.to_thread(self.plane.kubectl, *args, stdin=stdin, check=check)
        return str((await run).stdout)

    async def until(self, what: str, test: Callable[[], Awaitable[Any]]) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not await test():
            if asyncio.get_running_loop().time() > end:
                output = await self.kubectl("get", EVERYTHING, "-n", "default", "-o", "yaml")
                raise AssertionError(f"{what} did not come: {output[-9000:]}")
            await asyncio.sleep(0.5)

    async def play_plane(self) -> None:
        """What a hosted control plane brings: Secrets, an endpoint, and that it is up."""
        pair = self.plane.authority.pair
        files = {"value": Path(self.plane.kubeconfig)}, {"tls.crt": pair.cert, "tls.key": pair.key}
        labels = {"cluster.x-k8s.io/cluster-name": "c"}
        for name, held in zip(("c-kubeconfig", "c-ca"), files, strict=True):
            data = {k: base64.b64encode(f.read_bytes()).decode() for k, f in held.items()}
            meta = {"name": name, "namespace": "default", "labels": labels}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}
            text = yaml.safe_dump({**body, "metadata": meta, "data": data})
            await self.kubectl("apply", "-f", "-", stdin=text)
        planes = Resource(
            "controlplane.cluster.x-k8s.io", "v1alpha2", "kamajicontrolplanes", "KamajiControlPlane"
        )
        where = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": self.plane.port}}
        await self.kube.merge(planes, "c", {"spec": where}, "default")
        await self.kube.merge_status(planes, "c", {"status": STATUS}, "default")

    async def machines(self) -> list[ProxmoxMachine]:
        return list((await self.kube.list(ProxmoxMachine, "default")).items)

    def guests(self) -> list[int]:
        found = [runtime.region.guests.items() for runtime in self.engine.runtimes.values()]
        return [v for rows in found for v, g in rows if v != 201 and not g.conf.get("template")]

    def seeds(self) -> list[str]:
        stored = [
            volumes
            for runtime in self.engine.runtimes.values()
            for storage in runtime.region.storages.values()
            for volumes in storage.volumes.values()
        ]
        return [name for volumes in stored for name in volumes if name.endswith(".iso")]


def test_the_chart_comes_and_goes(capi: ControlPlane, tmp_path: Path) -> None:
    require("helm")

    async def tell(kube: Kube, engine: Engine) -> None:
        stage = Stage(capi, kube, engine, tmp_path)
        await stage.put("install", 1)
        await stage.play_plane()

        async def provisioned() -> bool:
            found = await stage.machines()
            return bool(found) and all(m.spec.provider_id for m in found)

        async def is_gone() -> bool:
            return not await stage.kubectl("get", EVERYTHING, "-n", "default", "-o", "name")

        async def has_two_guests() -> bool:
            return len(stage.guests()) == 2

        await stage.until("a guest of its own", provisioned)
        await stage.put("upgrade", 2)
        await stage.until("a second guest", has_two_guests)
        await stage.helm("uninstall", "c")  # one guest runs, one is being made
        await stage.until("nothing is left in Kubernetes", is_gone)
        assert stage.guests() == []
        assert stage.seeds() == []
        assert stage.engine.runtimes["north"].region.guests[201].running  # somebody else's

    run_story(capi, tell)
