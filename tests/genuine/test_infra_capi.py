"""
Machines under genuine Cluster API: core, kubeadm bootstrap and IPAM provider, Proxmox simulated.

One Kubernetes apiserver is both the management cluster and the cluster that the machines join:
guests read their seed disk, join with the token that the genuine bootstrap provider made, and
become Nodes. What is told are the scenes of ``moxwell.testing.machine_stories``, one after the
other on one cluster; the embedded stage tells the same ones.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from moxwell.api import registry
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
from moxwell.sim.engine import Engine
from moxwell.sim.world import read_world
from moxwell.testing.estate import TOKEN, TOKEN_SECRET, WORLD, configs
from moxwell.testing.fresh import CRDS
from moxwell.testing.leftovers import furnish
from moxwell.testing.machine_stories import SCENES, Stage, begin, end
from moxwell.testing.pve import SimTransport
from rig import control_plane, managers
from rig.control_plane import ControlPlane
from rig.plugin import CAPI, KUBERNETES, require

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
FAST = WORLD.replace("boot: 6, shutdown: 3, statd: 5", "boot: 1, shutdown: 1, statd: 1, ha: 1")
SETTLE_SECONDS = 8.0

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


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path_factory.mktemp("capi-infra")) as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=25s")
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


def run_story(plane: ControlPlane, tell: Callable[[Stage], Awaitable[None]]) -> None:
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
    tell: Callable[[Stage], Awaitable[None]],
    engine: Engine,
    guests: Guests,
    handler: HttpTransport,
) -> None:
    clock = SystemClock()
    runtime = assemble(handler, clock, Settings(elect=False, identity="rig"))
    known = configs(*engine.desks)
    wires = {
        name: SimTransport(engine, name, token=f"{TOKEN}={TOKEN_SECRET}") for name in engine.desks
    }
    regions = Regions(known, clock, connect=lambda config: wires[config.region])
    kube = Kube(handler)
    await _install(kube)
    await furnish(engine.desks["north"].region, wires["north"])
    add_infra(runtime, clock, regions, Ledger(), book=RegionBook(regions, known))
    running = [
        asyncio.create_task(work) for work in (guests.run(), regions.run(), runtime.manager.run())
    ]
    await asyncio.sleep(SETTLE_SECONDS)  # until the simulated regions have come to rest
    try:
        await tell(await _stage(plane, kube, engine))
    finally:
        runtime.manager.stop()
        for task in running[:2]:
            task.cancel()
        for task in running:
            with suppress(asyncio.CancelledError):
                await task
        await engine.close()


async def _stage(plane: ControlPlane, kube: Kube, engine: Engine) -> Stage:
    """The genuine API, and what nodes need to join it."""

    async def apply(text: str) -> None:
        await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", stdin=text)

    pair = plane.authority.pair
    ca, key, config = (p.read_bytes() for p in (pair.cert, pair.key, Path(plane.kubeconfig)))
    await apply(BOOTSTRAP % {"ca": base64.b64encode(ca).decode(), "url": plane.url})
    return Stage(kube, engine, apply, ca, key, config, plane.port)


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


def test_every_scene_under_genuine_cluster_api(plane: ControlPlane) -> None:
    async def tell(stage: Stage) -> None:
        await begin(stage)
        for scene in SCENES:
            await scene(stage)
        await end(stage)

    run_story(plane, tell)
