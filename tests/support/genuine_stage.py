"""The environment of stories on a genuine control plane, with what nodes need to join it."""

import asyncio
import base64
from pathlib import Path

from envtest.control_plane import ControlPlane
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.engine import Engine
from moxwell.testing.machine_stories import StoryEnvironment
from moxwell.testing.region_contents import add_foreign_objects
from support.cluster_api_run import wire

LOOK_SECONDS, STILL_SECONDS, PATIENCE_SECONDS = 0.3, 6.0, 600.0
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


async def furnished(plane: ControlPlane, kube: Kube, engine: Engine) -> StoryEnvironment:
    """The genuine API, what nodes need to join it, and things of strangers."""

    async def apply(text: str) -> None:
        await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", stdin=text)

    await add_foreign_objects(engine.runtimes["north"].region, wire(engine, "north"))
    pair = plane.authority.pair
    ca, key, config = (p.read_bytes() for p in (pair.cert, pair.key, Path(plane.kubeconfig)))
    await apply(bootstrap_objects(plane))
    made = StoryEnvironment(kube, engine, apply, ca, key, config, plane.port)
    made.poll_seconds, made.still_seconds = LOOK_SECONDS, STILL_SECONDS
    made.timeout_seconds = PATIENCE_SECONDS
    return made


def bootstrap_objects(plane: ControlPlane) -> str:
    """What nodes need to join a control plane, as a manifest."""
    ca = base64.b64encode(plane.authority.pair.cert.read_bytes()).decode()
    return BOOTSTRAP % {"ca": ca, "url": plane.url}
