"""
Machines under genuine Cluster API: core, kubeadm bootstrap and IPAM provider, Proxmox simulated.

One Kubernetes apiserver is both the management cluster and the cluster that the machines join:
guests read their seed disk, join with the token that the genuine bootstrap provider made, and
become Nodes. The control plane is an object whose status the test writes, as a hosted one would.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.api import registry
from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.clock import SystemClock
from moxwell.controllers.infra.book import RegionBook
from moxwell.controllers.infra.wiring import add_infra
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import HttpTransport
from moxwell.lab.guests import Guests
from moxwell.pve.ledger import Ledger
from moxwell.pve.regions import Regions
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import Settings
from moxwell.sim import mischief
from moxwell.sim.engine import Engine
from moxwell.sim.faults import Fault
from moxwell.sim.world import read_world
from moxwell.testing.estate import TOKEN, TOKEN_SECRET, WORLD, configs
from moxwell.testing.pve import SimTransport
from rig import control_plane, managers
from rig.control_plane import ControlPlane
from rig.plugin import CAPI, KUBERNETES, require

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
NODES = Resource("", "v1", "nodes", "Node", False)
FAST = WORLD.replace("boot: 6, shutdown: 3, statd: 5", "boot: 1, shutdown: 1, statd: 1")
PATIENCE_SECONDS = 240.0

BOOTSTRAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters: [{name: "", cluster: {certificate-authority-data: %(ca)s, server: "%(url)s"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: info, namespace: kube-public}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: info, namespace: kube-public}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: info}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approve}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "cluster-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
"""
CLUSTER = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["10.244.0.0/16"]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxCluster, name: c}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KamajiControlPlane, name: c}
---
apiVersion: controlplane.cluster.x-k8s.io/v1alpha2
kind: KamajiControlPlane
metadata: {name: c, namespace: default}
spec: {replicas: 1, version: v1.34.1, dataStoreName: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxCluster
metadata: {name: c, namespace: default}
spec:
  controlPlaneEndpoint: {host: 127.0.0.1, port: %(port)s}
  dnsServers: [8.8.8.8]
  zoneConfig:
    - zone: a
      region: north
      ipv4Config: {addresses: ["10.1.0.10-10.1.0.99"], prefix: 24, gateway: 10.1.0.1}
    - zone: b
      region: south
      ipv4Config: {addresses: ["10.2.0.10-10.2.0.99"], prefix: 24, gateway: 10.2.0.1}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: w, namespace: default}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          name: '{{ local_hostname }}'
          kubeletExtraArgs:
            - {name: provider-id, value: "proxmox://'{{ ds.meta_data.instance_id }}'"}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxMachineTemplate
metadata: {name: w, namespace: default}
spec: {template: {spec: {templateID: 9000, numCores: 2}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxMachineTemplate
metadata: {name: w2, namespace: default}
spec: {template: {spec: {templateID: 9000, numCores: 3}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: w, namespace: default}
spec:
  clusterName: c
  replicas: 2
  selector: {matchLabels: {}}
  template:
    spec:
      clusterName: c
      version: v1.34.1
      bootstrap:
        configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: w}
      infrastructureRef:
        {apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxMachineTemplate, name: w}
"""


CHECK = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: c, namespace: default}
spec:
  clusterName: c
  selector: {matchLabels: {cluster.x-k8s.io/cluster-name: c}}
  checks:
    unhealthyNodeConditions:
      - {type: Ready, status: Unknown, timeoutSeconds: 1}
      - {type: Ready, status: "False", timeoutSeconds: 1}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path_factory.mktemp("capi-infra")) as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=25s")
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


class Rig:
    """The genuine cluster, the simulated regions and our controllers."""

    def __init__(self, plane: ControlPlane, kube: Kube, engine: Engine) -> None:
        self.plane, self.kube, self.engine = plane, kube, engine

    async def apply(self, text: str, **values: Any) -> None:
        filled = text % values if values else text
        await asyncio.to_thread(self.plane.kubectl, "apply", "-f", "-", stdin=filled)

    async def until(self, what: str, test: Callable[[], Awaitable[Any]]) -> Any:
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (found := await test()):
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{what} did not come: {await self.state()}")
            await asyncio.sleep(1)
        return found

    async def state(self) -> str:
        lines = []
        for m in (await self.kube.list(ProxmoxMachine, "default")).items:
            said = [f"{c.type}={c.status} {c.reason} {c.message}" for c in m.status.conditions]
            lines.append(f"{m.name}: {m.status.next_move} {said}")
        for n in (await self.kube.list(Machine, "default")).items:
            found = [f"{c.type}={c.status} {c.message}" for c in n.status.conditions]
            lines.append(f"{n.name}: {n.status.phase} {found}")
        return "\n".join(lines)

    async def machines(self) -> list[Machine]:
        """Machines that have a node, unless there are others."""
        found = (await self.kube.list(Machine, "default")).items
        return list(found) if all(m.status.node_ref for m in found) else []

    async def with_nodes(self, count: int) -> list[Machine]:
        async def test() -> list[Machine]:
            found = await self.machines()
            return found if len(found) == count else []

        made: list[Machine] = await self.until(f"{count} machines with nodes", test)
        return made

    def guests(self) -> dict[str, list[int]]:
        return {
            name: [
                v for v, g in desk.region.guests.items() if not g.conf.get("template") and v != 201
            ]
            for name, desk in self.engine.desks.items()
        }


def run_story(plane: ControlPlane, tell: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = SystemClock()
        access = kubeconfig.find(clock, {}, str(plane.kubeconfig))
        guests = Guests(HttpTransport, clock)
        engine = Engine(read_world(FAST, "world", clock.monotonic()), clock, inside=guests)
        async with HttpTransport(access) as handler:
            await _story(plane, tell, engine, guests, handler)

    asyncio.run(main())


async def _story(
    plane: ControlPlane,
    tell: Callable[[Rig], Awaitable[None]],
    engine: Engine,
    guests: Guests,
    handler: HttpTransport,
) -> None:
    clock = SystemClock()
    runtime = assemble(handler, clock, Settings(elect=False, identity="rig"))
    known = configs(*engine.desks)
    token = f"{TOKEN}={TOKEN_SECRET}"
    regions = Regions(
        known, clock, connect=lambda config: SimTransport(engine, config.region, token=token)
    )
    kube = Kube(handler)
    await _install(kube)
    add_infra(runtime, clock, regions, Ledger(), book=RegionBook(regions, known))
    running = [
        asyncio.create_task(work) for work in (guests.run(), regions.run(), runtime.manager.run())
    ]
    try:
        await tell(Rig(plane, kube, engine))
    finally:
        runtime.manager.stop()
        for task in running[:2]:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task
        await engine.close()


async def _install(kube: Kube) -> None:
    """Our CRDs, and Kamaji's for the control plane's stand-in."""
    wanted = ("proxmox", "kamajicontrolplanes")
    for crd in registry.make_crds(upstream=True):
        if crd["metadata"]["name"].startswith(wanted):
            await kube.apply(crd, CRDS, force=True)
    for plural in ("proxmoxmachines", "proxmoxclusters"):
        name = f"{plural}.infrastructure.cluster.x-k8s.io"
        established = False
        while not established:
            await asyncio.sleep(0.2)
            crd = await kube.get(CRDS, name)
            said = crd.get("status", {}).get("conditions", [])
            established = any(c["type"] == "Established" and c["status"] == "True" for c in said)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def begin(rig: Rig) -> None:
    """The cluster as its users would apply it, and the part of its control plane."""
    authority = rig.plane.authority.pair
    ca, key, config = (
        _encoded(p) for p in (authority.cert, authority.key, Path(rig.plane.kubeconfig))
    )
    await rig.apply(BOOTSTRAP, ca=ca, url=rig.plane.url)
    labels = {"cluster.x-k8s.io/cluster-name": "c"}
    secrets = {"c-kubeconfig": {"value": config}, "c-ca": {"tls.crt": ca, "tls.key": key}}
    for name, data in secrets.items():
        meta = {"name": name, "namespace": "default", "labels": labels}
        body = {"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}
        await rig.apply(yaml.safe_dump({**body, "metadata": meta, "data": data}))
    await rig.apply(CLUSTER, port=rig.plane.port)
    status = {
        "initialization": {"controlPlaneInitialized": True},
        "externalManagedControlPlane": True,
        "ready": True,
        "initialized": True,
        "replicas": 1,
        "readyReplicas": 1,
        "version": "v1.34.1",
    }
    resource = Resource(
        "controlplane.cluster.x-k8s.io", "v1alpha2", "kamajicontrolplanes", "KamajiControlPlane"
    )
    await rig.kube.merge_status(resource, "c", {"status": status}, "default")


def test_a_cluster_over_two_regions_under_genuine_cluster_api(plane: ControlPlane) -> None:
    async def tell(rig: Rig) -> None:
        await begin(rig)
        first = await rig.with_nodes(2)
        assert {m.spec.failure_domain or m.status.failure_domain for m in first} <= {"a", "b", ""}
        assert sorted(len(v) for v in rig.guests().values()) == [1, 1]
        for machine in first:
            node = await rig.kube.get(NODES, machine.status.node_ref.name)  # type: ignore[union-attr]
            assert node["spec"]["providerID"] == machine.spec.provider_id

        await scale(rig, 3)
        await rig.with_nodes(3)
        await lose_south(rig)
        await kill_one(rig)
        await roll(rig)
        await scale(rig, 1)
        await rig.with_nodes(1)
        await end(rig)

    run_story(plane, tell)


async def scale(rig: Rig, count: int) -> None:
    await asyncio.to_thread(
        rig.plane.kubectl, "scale", "machinedeployment", "w", f"--replicas={count}"
    )


async def lose_south(rig: Rig) -> None:
    """A region falls silent and comes back; nothing is given up and nothing is made anew."""
    before = rig.guests()
    rig.engine.faults["south"].add(Fault("cut-before"))

    async def unknown() -> bool:
        found = (await rig.kube.list(ProxmoxMachine, "default")).items
        said = [c.reason for m in found for c in m.status.conditions if c.type == "Ready"]
        return "RegionUnreachable" in said and "Provisioned" in said

    await rig.until("a region that is down is told", unknown)
    rig.engine.faults["south"].remove()
    await rig.until("the region is back", lambda: all_ready(rig))
    assert rig.guests() == before


async def kill_one(rig: Rig) -> None:
    """A guest dies; its node falls silent, and the health check has it replaced."""
    await rig.apply(CHECK)
    dead = (await rig.kube.list(ProxmoxMachine, "default")).items[0]
    desk = rig.engine.desks[dead.spec.region or ""]
    mischief.perform(desk, "stop-guest", {"vmid": dead.spec.virtual_machine_id})

    async def told() -> bool:
        seen = await rig.kube.find(ProxmoxMachine, dead.name, "default")
        return seen is None or any(c.reason == "Stopped" for c in seen.status.conditions)

    async def replaced() -> bool:
        gone = await rig.kube.find(ProxmoxMachine, dead.name, "default") is None
        return gone and len(await rig.machines()) == 3 and await all_ready(rig)

    await rig.until("a stopped guest is told", told)
    await rig.until("the dead machine is replaced", replaced)
    await asyncio.to_thread(rig.plane.kubectl, "delete", "machinehealthcheck", "c")


async def all_ready(rig: Rig) -> bool:
    found = (await rig.kube.list(ProxmoxMachine, "default")).items
    ready = [c.status for m in found for c in m.status.conditions if c.type == "Ready"]
    return bool(ready) and set(ready) == {"True"}


async def roll(rig: Rig) -> None:
    """A new template: Cluster API replaces every machine, one after the other."""
    patch = (
        '{"spec":{"template":{"spec":{"infrastructureRef":{"name":"w2",'
        '"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"ProxmoxMachineTemplate"}}}}}'
    )
    await asyncio.to_thread(
        rig.plane.kubectl, "patch", "machinedeployment", "w", "--type=merge", "-p", patch
    )

    async def rolled() -> bool:
        found = (await rig.kube.list(ProxmoxMachine, "default")).items
        machines = await rig.machines()
        return len(found) == len(machines) == 3 and all(m.spec.num_cores == 3 for m in found)

    await rig.until("every machine is made from the new template", rolled)


async def end(rig: Rig) -> None:
    """The Cluster goes, and takes everything of ours with it, and nothing else."""
    await asyncio.to_thread(rig.plane.kubectl, "delete", "cluster", "c", "--wait=false")

    async def gone() -> bool:
        if (await rig.kube.list(ProxmoxMachine, "default")).items:
            return False
        plane = Resource(
            "controlplane.cluster.x-k8s.io", "v1alpha2", "kamajicontrolplanes", "KamajiControlPlane"
        )
        clusters = Resource("cluster.x-k8s.io", "v1beta2", "clusters", "Cluster")
        left = await rig.kube.find(clusters, "c", "default")
        return left is None and await rig.kube.find(plane, "c", "default") is None

    await rig.until("the cluster is gone", gone)
    assert rig.guests() == {"north": [], "south": []}
    for desk in rig.engine.desks.values():
        for storage in desk.region.storages.values():
            names = [v for shelf in storage.volumes.values() for v in shelf]
            assert not [n for n in names if n.endswith(".iso") or "moxwell" in n]
    assert rig.engine.desks["north"].region.guests[201].running
    ipam = Resource("ipam.cluster.x-k8s.io", "v1beta2", "ipaddresses", "IPAddress")
    assert (await rig.kube.list(ipam, "default")).items == ()
