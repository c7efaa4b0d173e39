"""
Machines under genuine Cluster API: core, kubeadm bootstrap and IPAM provider, Proxmox simulated.

One Kubernetes apiserver is both the management cluster and the cluster that the machines join:
guests read their seed disk, join with the token that the genuine bootstrap provider made, and
become Nodes. What is told are the scenes of ``moxwell.testing.machine_stories``, one after the
other on one cluster, half of them on another one: two workers share them. The embedded stage tells
the same ones.
"""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.engine import Engine
from moxwell.testing.machine_stories import STORIES, Story, StoryEnvironment, begin, end
from moxwell.testing.region_contents import add_foreign_objects
from support.cluster_api_run import run_story, wire

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
LOOK_SECONDS, STILL_SECONDS, PATIENCE_SECONDS = 0.3, 6.0, 600.0
HALVES = [
    pytest.param(STORIES[0::2], id="one half", marks=pytest.mark.xdist_group("infra capi 1")),
    pytest.param(STORIES[1::2], id="the other half", marks=pytest.mark.xdist_group("infra capi 2")),
]

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


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI)
    with ControlPlane(tmp_path / "plane") as made:
        made.start("--enable-bootstrap-token-auth=true")
        made.start_controller_manager("--node-monitor-grace-period=25s", "--node-monitor-period=1s")
        control_plane.wait_default_account(made)
        managers.start(made)
        yield made


async def furnished(plane: ControlPlane, kube: Kube, engine: Engine) -> StoryEnvironment:
    """The genuine API, what nodes need to join it, and things of strangers."""

    async def apply(text: str) -> None:
        await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", stdin=text)

    await add_foreign_objects(engine.runtimes["north"].region, wire(engine, "north"))
    pair = plane.authority.pair
    ca, key, config = (p.read_bytes() for p in (pair.cert, pair.key, Path(plane.kubeconfig)))
    await apply(BOOTSTRAP % {"ca": base64.b64encode(ca).decode(), "url": plane.url})
    made = StoryEnvironment(kube, engine, apply, ca, key, config, plane.port)
    made.poll_seconds, made.still_seconds = LOOK_SECONDS, STILL_SECONDS
    made.timeout_seconds = PATIENCE_SECONDS
    return made


@pytest.mark.parametrize("scenes", HALVES)
def test_every_scene_under_genuine_cluster_api(
    plane: ControlPlane, scenes: tuple[Story, ...]
) -> None:
    async def tell(kube: Kube, engine: Engine) -> None:
        stage = await furnished(plane, kube, engine)
        await begin(stage)
        for scene in scenes:
            await scene(stage)
        await end(stage)

    run_story(plane, tell)
